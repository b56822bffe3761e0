"""Child processes of a test, and the hunt for what they leave behind.

Every process that a child starts, however far down and whoever adopts it, inherits one variable of the environment: by
that it is found. A child gets a temporary folder of its own (with a short name, for sockets), so left-over files are
found too. Only processes that carry a test's own mark are ever killed.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import psutil

MARK = "TAILRACE_TEST_MARK"
TESTS = Path(__file__).parent.parent
SERVER_MODULE = "tailrace.server.process.main"


class NoLock:
    """In place of a query's lock: a driver on another machine knows none of this one's."""

    def __init__(self, *_: object) -> None:
        pass

    def release(self) -> None:
        pass


class Sandbox:
    """A mark and a temporary folder for the children of one test. Use as a context: nothing survives it."""

    def __init__(self) -> None:
        self.mark = uuid.uuid4().hex
        self._root = tempfile.TemporaryDirectory(prefix="tr-", ignore_cleanup_errors=True)
        self.root = Path(self._root.name)
        self.temporary = self.root / "t"
        self.temporary.mkdir()

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.living():
            _kill(process)
        self._root.cleanup()

    def environment(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        """Of the test's children: this process's, with ``more``, the mark and the temporary folder."""
        return {
            **os.environ,
            **(more or {}),
            MARK: self.mark,
            "TMPDIR": str(self.temporary),
            "SPARK_LOCAL_DIRS": str(self.temporary),
            "PYTHONPATH": os.pathsep.join([str(TESTS), *(path for path in sys.path if path)]),
            "PYTHONUNBUFFERED": "1",
        }

    def start(
        self,
        script: Path,
        config: dict[str, Any],
        environment: Mapping[str, str] | None = None,
        place: Callable[[list[str]], list[str]] = list,
    ) -> subprocess.Popen[bytes]:
        """Run a script with a JSON configuration as its argument. Its output goes to ``log``.

        ``place`` makes of the command the one that runs it elsewhere.
        """
        with open(self.log, "ab") as log:
            return subprocess.Popen(
                place([sys.executable, str(script), json.dumps(config)]),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.environment(environment),
                cwd=self.root,
                start_new_session=True,
            )

    @property
    def log(self) -> Path:
        return self.root / "log"

    def log_tail(self, lines: int = 40) -> str:
        """The end of the children's output, without Java's stack traces."""
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return "\n".join([line for line in text.splitlines() if not line.lstrip().startswith("at ")][-lines:])

    def living(self) -> list[psutil.Process]:
        """All processes that carry the mark, zombies not counted."""
        return _marked(self.mark)

    def servers(self) -> list[psutil.Process]:
        """The state servers among them."""
        return servers_among(self.living())

    def gone_within(self, seconds: float) -> list[str]:
        """What still lives after that time, in words."""
        deadline = time.monotonic() + seconds
        while True:
            living = self.living()
            if not living or time.monotonic() > deadline:
                return [_words(process) for process in living]
            time.sleep(0.05)

    def leftovers(self) -> list[str]:
        """Files, sockets and folders below the temporary folder. Folders that are empty and shared do not count."""
        return sorted(
            str(path.relative_to(self.temporary))
            for path in self.temporary.rglob("*")
            if not (path.is_dir() and path.parent == self.temporary and not any(path.iterdir()))
            and path.name.split("-")[0] != "hsperfdata_root"
        )


def session_servers() -> list[psutil.Process]:
    """The living state servers of the shared Spark session."""
    return servers_among(_marked(os.environ[MARK]))


def session_server_folders() -> list[str]:
    """The folders (socket, log) of state servers of the shared session, living or dead. Named by run and executor."""
    base = Path(tempfile.gettempdir()) / f"tailrace-{os.getuid()}"
    executors = [process.pid for process in _marked(os.environ[MARK]) if process.name() == "java"]
    return sorted(
        path.name for path in base.glob("*-*-*") if path.is_dir() and int(path.name.split("-")[1]) in executors
    )


def _marked(mark: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


def servers_among(processes: list[psutil.Process]) -> list[psutil.Process]:
    found = []
    for process in processes:
        try:
            if SERVER_MODULE in process.cmdline():
                found.append(process)
        except psutil.Error:
            continue
    return found


def _words(process: psutil.Process) -> str:
    try:
        return f"{process.pid} {' '.join(process.cmdline())[:160]}"
    except psutil.Error:
        return str(process.pid)


def _kill(process: psutil.Process) -> None:
    try:
        process.kill()
    except psutil.NoSuchProcess:
        pass


def kill(pid: int) -> bool:
    """SIGKILL; whether there was such a process."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def wait_until(what: str, condition: Callable[[], bool], seconds: float, pause: float = 0.001) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {seconds} s")
        time.sleep(pause)
