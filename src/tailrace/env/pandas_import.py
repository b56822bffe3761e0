"""Whether pyarrow knows pandas in this process.

pyarrow imports pandas, where it is installed, the first time that it makes an array of anything, only to see whether
that is a Series. A state server has no use for it: it would start 0.2 s later and be 33 MB larger. So pyarrow, which
looks once, looks while pandas cannot be found. A user's function may use pandas; before one is loaded pyarrow is made
to see it, since it would take a Series for a list of plain values, in which NaN is not null.

Threads: call ``hide_pandas`` before there are any.
"""

from __future__ import annotations

import sys

import pyarrow as pa

_PANDAS = "pandas"


class _Nowhere:
    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name == _PANDAS:
            raise ModuleNotFoundError(f"no module {name}, for a moment", name=name)


def hide_pandas() -> None:
    """Let pyarrow find that there is no pandas. Anybody else may import it afterwards."""
    nowhere = _Nowhere()
    sys.meta_path.insert(0, nowhere)
    try:
        pa.array([0])
    finally:
        sys.meta_path.remove(nowhere)


def show_pandas() -> None:
    """Let pyarrow know pandas from here on, where there is one."""
    try:
        _ = pa.lib._pandas_api.pd
    except ImportError:
        pass
