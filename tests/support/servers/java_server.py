"""A server in Java for a test: a process and a temporary folder of its own, which are gone afterwards.

Also when the test's process is killed: ``lab/servers/guard.py`` watches it. A server that does
not start fails the test.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Self

from tailrace.lab.servers import guard
from tailrace.lab.servers.maven import java


class JavaServer(ABC):
    """``with Server() as server:`` and it serves."""

    start_s = 60.0
    """How long it may take to serve."""
    pause_s = 0.05
    jvm: tuple[str, ...] = ()
    """Options of its own."""

    def __enter__(self) -> Self:
        jars = self.jars()
        self._guard: subprocess.Popen[bytes] | None = None
        self.folder = Path(tempfile.mkdtemp(prefix="tr-java-"))
        try:
            self._launch(jars)
            self._wait()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._guard is not None:
            assert self._guard.stdin is not None
            self._guard.stdin.close()
            self._guard.wait(30)
        shutil.rmtree(self.folder, ignore_errors=True)

    @abstractmethod
    def jars(self) -> list[Path]: ...

    @abstractmethod
    def command(self) -> list[str]:
        """Java's arguments after the class path. May write files into the folder first."""

    @abstractmethod
    def serves(self) -> bool:
        """Whether it answers by now; an ``OSError`` means that it does not."""

    def _launch(self, jars: list[Path]) -> None:
        options, words = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *self.jvm], self.command()
        started = [java(), *options, f"-Djava.io.tmpdir={self.folder}", "-cp", os.pathsep.join(map(str, jars)), *words]
        with self._log.open("wb") as log:
            self._guard = subprocess.Popen(
                [sys.executable, "-I", "-S", guard.__file__, str(self.folder), *started],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                start_new_session=True,
            )

    def _wait(self) -> None:
        assert self._guard is not None
        deadline = time.monotonic() + self.start_s
        while not self._asked():
            if self._guard.poll() is not None or time.monotonic() > deadline:
                message = self._log.read_text(errors="replace")[-3000:]
                raise AssertionError(f"{type(self).__name__} did not start; its log ends:\n{message}")
            time.sleep(self.pause_s)

    def _asked(self) -> bool:
        try:
            return self.serves()
        except OSError:
            return False

    @property
    def _log(self) -> Path:
        return self.folder / "log"
