"""Real servers for tests: a stand-in for the executor's JVM, a small operator, frames for it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Collection
from pathlib import Path

import pyarrow as pa

from tailrace.env import processes
from tailrace.env.randomness import new_run_id
from tailrace.ids import MIN_MICROS
from tailrace.operators.aggregate.accumulators import Accumulator, AccumulatorInput, Output
from tailrace.operators.aggregate.ingest.partials import PartialIngest
from tailrace.operators.aggregate.spec import AggregateSpec
from tailrace.operators.ingest.frame import Frame
from tailrace.server.process.launch import ensure_server
from tailrace.server.transport.client import StateClient
from tailrace.server.transport.server_config import ServerAddress, ServerConfig
from tailrace.server.transport.stage_messages import CommittedAttempt, StageKey
from tailrace.state.layout import Merge
from tailrace.types import BIGINT, Field

SHARDS = 8
SPEC = AggregateSpec(
    name="counts",
    keys=(Field("k", BIGINT),),
    accumulators=(
        Accumulator(Merge.ADD, AccumulatorInput.ONE, None, BIGINT),
        Accumulator(Merge.ADD, AccumulatorInput.VALUE, "v", BIGINT),
    ),
    outputs=(Output("n", "count", (0,), BIGINT), Output("sum", "sum", (1,), BIGINT)),
    window=None,
    window_name="window",
    window_position=0,
    time_column=None,
    emit_changed=True,
    watermarked=False,
    ansi=True,
    shards=SHARDS,
)


def frame(keys: list[int], values: list[int] | None = None) -> Frame:
    batch = pa.RecordBatch.from_pydict(
        {
            "k": pa.array(keys, pa.int64()),
            "v": pa.array(values or keys, pa.int64()),
        }
    )
    return PartialIngest(SPEC, MIN_MICROS, False, {"k": BIGINT, "v": BIGINT}).frame([batch])


def config(store: Path, **more: object) -> ServerConfig:
    given = {
        "run": new_run_id(),
        "token": "secret-token",
        "operators": (SPEC.to_json(),),
        "store_uri": str(store),
        "memory_bytes": 64 << 20,
        "function_timeout_s": 600.0,
        **more,
    }
    return ServerConfig(**given)  # type: ignore[arg-type]


class StandIn:
    """A process that stands for an executor's JVM."""

    def __init__(self) -> None:
        self.process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        found = processes.facts(self.process.pid)
        assert found is not None
        self.facts = found

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


def start(
    server_config: ServerConfig,
    executor: StandIn,
    temporary: Path,
    host: str | None = None,
    suspects: Collection[str] = (),
) -> ServerAddress:
    return ensure_server(server_config, host=host, executor=executor.facts, temporary=str(temporary), suspects=suspects)


def stage(
    client: StateClient, run: str, epoch: int, try_: int, attempt: int, partition: int, *frames: Frame
) -> CommittedAttempt:
    with client.stage(StageKey(run, SPEC.name, epoch, try_, attempt, partition)) as writer:
        for each in frames:
            writer.write(each)
        receipt = writer.finish()
    return CommittedAttempt(partition, attempt, receipt.rows, receipt.checksum)


def rows(batches: list[pa.RecordBatch] | None) -> dict[int, tuple[int, int]]:
    assert batches is not None
    found = [row for batch in batches for row in batch.to_pylist()]
    return {row["k"]: (row["n"], row["sum"]) for row in found}


def running(pid: int) -> bool:
    found = processes.facts(pid)
    return found is not None and not found.zombie


def eventually(what: Callable[[], bool], timeout_s: float = 10.0) -> bool:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if what():
            return True
        time.sleep(0.02)
    return False


def left_over(temporary: Path) -> list[str]:
    """What servers have left on disk."""
    base = temporary / f"tailrace-{os.getuid()}"
    # Not by rglob: it fails where a folder goes while it is looked at.
    return sorted(os.path.join(folder, name) for folder, folders, files in os.walk(base) for name in (*folders, *files))
