"""The child's side of ``process``: one Spark session, and one or several queries of a workload on its engine.

A command names a method of a query, and ``way`` says which query is meant. Commands come one at a time: queries run
side by side where the parent shows each of them its file before it waits for any.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import tailrace as tr
from tailrace.lab import catalog, registry
from tailrace.lab.engines.listener import EngineListener
from tailrace.lab.engines.query import EngineQuery
from tailrace.lab.engines.session import start_session

catalog.load()

# These are a page long each and only repeat how Spark was started on this machine.
_NOT_OURS = ("spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions", "spark.driver.extraClassPath")

Answer = dict[str, Any]


class _Child:
    def __init__(
        self,
        workload: str,
        engine: str,
        values: dict[str, registry.Value],
        work: str,
        confs: dict[str, str],
        ways: dict[str, dict[str, Any]],
    ) -> None:
        """``ways``: name to options, folder and checkpoint of a query."""
        asked = registry.engine(engine)
        self.spark = start_session(f"lab {engine}", work=Path(work), heap=asked.heap, extra={**asked.confs, **confs})
        if asked.ports is not None:
            tr.enable(self.spark)
        listener = EngineListener()
        self.spark.streams.addListener(listener)
        self.queries = {
            name: EngineQuery(
                self.spark,
                listener,
                workload,
                engine,
                values,
                way["options"],
                Path(way["folder"]),
                way["checkpoint"],
            )
            for name, way in ways.items()
        }

    def acts(self, say: Callable[[Answer], None]) -> dict[tuple[str, str], Callable[..., Answer]]:
        """What can be asked for, by way and name."""
        return {
            (way, act.__name__): act
            for way, query in self.queries.items()
            for act in (
                query.start,
                query.batch,
                query.several,
                query.show,
                query.finished,
                query.timeline,
                query.stop,
                query.first_row,
            )
        } | {(way, "run"): partial(query.run, report=say) for way, query in self.queries.items()}

    def end(self) -> None:
        for query in self.queries.values():
            query.stop()
        self.spark.stop()


def main() -> None:
    # Answers go out on a private copy of standard output: Spark and its JVM may write to the real one.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def say(answer: Answer) -> None:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    child = _Child(**json.loads(sys.argv[1]))
    confs = dict(sorted(child.spark.sparkContext.getConf().getAll()))
    say({"confs": {name: value for name, value in confs.items() if name not in _NOT_OURS}})
    acts = child.acts(say)
    try:
        for line in sys.stdin:
            command = json.loads(line)
            try:
                say(acts[command.pop("way"), command.pop("do")](**command))
            except Exception as error:  # the parent decides; a child that only dies says less
                say({"error": f"{type(error).__name__}: {error}"})
    finally:
        child.end()


if __name__ == "__main__":
    main()
