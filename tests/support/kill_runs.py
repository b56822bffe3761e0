"""One query that is killed and restarted: its files, its processes, and the verdict at the end."""

from __future__ import annotations

import subprocess
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from support.kill_case import GROUP, SCHEMA, batches, late_rows, question
from support.killing import Trail
from support.processes import TESTS, Sandbox
from tailrace.testing import ScriptedSource, describe, differences, expected

CHILD = TESTS / "crash" / "child_query.py"
GONE_S = 10.0
"""By then nothing of a killed driver may be left: the JVM sees the end of its pipe, the server the end of the JVM."""
FINISH_S = 120.0


class KillRun:
    child = CHILD

    def __init__(self, seed: int, mode: str, options: dict[str, str] | None = None, master: str = "local[2]") -> None:
        self.sandbox = Sandbox()
        self.root = self.sandbox.root / "q"
        self.trail = Trail(self.root)
        self._mode = mode
        self._options = options or {}
        self._master = master
        self._seed = seed
        self.root.mkdir()
        self.feed(seed)

    def feed(self, seed: int) -> None:
        """Write all that the query reads."""
        self._batches = batches(seed)
        ScriptedSource(self.root / "in", SCHEMA).add(self._batches)

    def __enter__(self) -> KillRun:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            print(f"the child's log ends:\n{self.sandbox.log_tail(80)}")
        self.sandbox.__exit__()

    def start(self, **more: Any) -> subprocess.Popen[bytes]:
        config = {"root": str(self.root), "mode": self._mode, "options": self._options, "master": self._master, **more}
        return self.sandbox.start(self.child, config)

    def where(self) -> str:
        """Where the query stands, for the log of a test."""
        return (
            f"offsets {self.trail.spark_epoch('offsets')}, commits {self.trail.spark_epoch('commits')}, "
            f"log entries {self.trail.log_entries()}"
        )

    def finish(self) -> None:
        """Run to the end, unharmed; nothing is left then."""
        child = self.start()
        try:
            code = child.wait(FINISH_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the query did not end within {FINISH_S} s; {self.where()}") from None
        assert code == 0, f"the query failed; {self.where()}\n{self.sandbox.log_tail()}"
        self.check_nothing_left()

    def check_nothing_left(self) -> None:
        assert self.sandbox.gone_within(5.0) == []
        assert self.sandbox.leftovers() == []

    def output(self, epoch: int) -> pa.Table:
        """What the sink holds of an epoch."""
        for folder in ("out", "late"):
            changed = self.root / folder / "changed"
            assert not changed.exists(), changed.read_text()[:4000]
        return pq.read_table(self.root / "out" / f"{epoch:06d}.parquet")

    def verify(self, spark: SparkSession) -> None:
        """The sink holds exactly the oracle's rows."""
        scales = {"score": 1000.0, "spread": 1000.0}
        for want in expected(spark, question(self._mode), self._batches):
            found = differences(self.output(want.epoch), want.rows, GROUP[self._mode], scales)
            assert not found, f"epoch {want.epoch}:\n{describe(found)}"
        if self._mode == "late":
            self._verify_late()

    def _verify_late(self) -> None:
        """The second sink holds every late row once, and nothing of it is left in the state."""
        names = ["auction", "name", "price", "score", "ts"]
        for epoch, want in enumerate(late_rows(self._seed)):
            path = self.root / "late" / f"{epoch:06d}.parquet"
            assert path.exists() == bool(len(want)), f"epoch {epoch} has {len(want)} late rows"
            if len(want):
                got = pq.read_table(path)
                assert got["tailrace_reason"].unique().to_pylist() == ["late"]
                order = [("ts", "ascending"), ("score", "ascending")]
                both = [table.select(names).sort_by(order).to_pylist() for table in (got, want)]
                assert both[0] == both[1], f"epoch {epoch}"
        left = self.root / "check" / "tailrace" / "late"
        assert not left.exists() or list(left.iterdir()) == []
