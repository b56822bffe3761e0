"""What every server of the lab is: a program on a loopback port, with a temporary folder, under a guard (``guard.py``).

A context manager. The server and its folder also go when this process is interrupted or killed. No other process is
touched. Not thread-safe: one owner enters and leaves; anybody may use the address in between.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tailrace.errors import TailraceError

HOST = "127.0.0.1"
_GUARD = Path(__file__).with_name("guard.py")
_START_TIMEOUT_S = 60


class GuardedServer(ABC):
    program: str
    """What errors call it, and the beginning of its folder's name."""

    def __init__(self) -> None:
        self.port = 0
        self._guard: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def _start(self) -> None:
        """Starts the program in ``folder`` by `_launch` and waits for it by `_wait_until`."""

    def __enter__(self) -> Self:
        self.folder = Path(tempfile.mkdtemp(prefix=f"tailrace-{self.program}-"))
        try:
            self._start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        guard, self._guard = self._guard, None
        if guard is not None:
            assert guard.stdin is not None
            guard.stdin.close()
            guard.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def _log(self) -> Path:
        return self.folder / "log.txt"

    def _secret_file(self, name: str, text: str) -> Path:
        """A file that only this user may read: a password on the command line would be for everybody."""
        path = self.folder / name
        path.touch(0o600)
        path.write_text(text)
        return path

    def _launch(self, command: Sequence[str]) -> None:
        with self._log.open("ab") as log:
            self._guard = subprocess.Popen(
                [sys.executable, "-I", "-S", str(_GUARD), str(self.folder), *command],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env={**os.environ, "TMPDIR": str(self.folder)},
                start_new_session=True,  # Ctrl-C reaches us only, and we end it
            )

    def _wait_until(self, ready: Callable[[], object]) -> None:
        """Until ``ready`` raises no `OSError` any more."""
        deadline = time.monotonic() + _START_TIMEOUT_S
        while True:
            try:
                ready()
                return
            except OSError as error:
                if self._guard is None or self._guard.poll() is not None or time.monotonic() > deadline:
                    end = self._log.read_text(errors="replace")[-2000:]
                    message = f"{self.program} did not start ({error}); the end of its log:\n{end}"
                    raise TailraceError(message) from None
                time.sleep(0.02)


class RestartableServer(GuardedServer):
    """One that tests end in between: ``_start`` may be called again, with the same port and the same data."""

    crash_signal = signal.SIGKILL

    @property
    def pid(self) -> int:
        """Of the server itself, which is the guard's only child."""
        assert self._guard is not None
        guard = self._guard.pid
        return int(Path(f"/proc/{guard}/task/{guard}/children").read_text().split()[0])

    def kill(self) -> None:
        """The server dies at once, as by a crash of its own; ``restart`` brings it back at the same port."""
        guard, pid = self._guard, self.pid
        assert guard is not None and guard.stdin is not None
        self._guard = None
        os.kill(pid, self.crash_signal)
        guard.wait()  # sees that the server has ended and leaves the folder, which it removes when its input closes
        guard.stdin.close()

    @property
    def runs(self) -> bool:
        """Whether it has not ended, by ``kill`` or by itself."""
        return self._guard is not None and self._guard.poll() is None

    def restart(self) -> None:
        if self.runs:
            self.kill()
        self._start()


def free_port() -> int:
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """Held all at once while looking, so that no two are the same."""
    held = [socket.socket() for _ in range(count)]
    try:
        for each in held:
            each.bind((HOST, 0))
        return [each.getsockname()[1] for each in held]
    finally:
        for each in held:
            each.close()
