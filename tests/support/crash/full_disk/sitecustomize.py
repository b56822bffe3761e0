"""Lets writes fail as on a full disk: see ``support.crash.tiny_disk``. Python runs this at the start of a process."""

import errno
import os
from typing import Any

_filler = os.environ.get("TAILRACE_TEST_FULL_DISK", "")
_writev = os.writev


def _full_writev(fd: int, buffers: Any) -> int:
    if os.path.exists(_filler) and os.readlink(f"/proc/self/fd/{fd}").startswith(os.path.dirname(_filler) + "/"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    return _writev(fd, buffers)


if _filler:
    os.writev = _full_writev
