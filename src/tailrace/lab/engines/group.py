"""Engine processes that live and end together.

Entering starts nothing: each process is added as it is made, so that a failure while the next one is made still ends
those before it. A run that fails or is interrupted has nothing to wait for: its processes are killed first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

from tailrace.lab.engines.process import EngineProcess


class EngineGroup:
    def __init__(self) -> None:
        self._engines: list[EngineProcess] = []

    def add(self, engine: EngineProcess) -> EngineProcess:
        self._engines.append(engine)
        return engine

    def wait_ready(self) -> None:
        """Waits for every Spark session; they start side by side."""
        for engine in self._engines:
            engine.wait_ready()

    def __enter__(self) -> EngineGroup:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            for engine in self._engines:
                engine.kill()
        for engine in self._engines:
            engine.close()


def ask_all(
    engines: Mapping[str, EngineProcess], do: str, arguments: Callable[[str], Mapping[str, Any]] = lambda name: {}
) -> None:
    """Gives the command to every engine, then waits for all of them: they do it side by side."""
    for name, engine in engines.items():
        engine.send(do, **arguments(name))
    for engine in engines.values():
        engine.answer()
