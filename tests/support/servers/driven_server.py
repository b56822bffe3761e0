"""One real server with the driver that a test is: rows in, outputs read, deltas into a manifest, compactions taken.

What the server takes is read from the system: the largest resident memory of its process since the last look. Where a
memory cgroup can be made, the server is started in one, with its forkserver, and the kernel sees to its limit.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa

from support.servers.memory_cgroup import MemoryCgroup
from support.servers.state_servers import StandIn, config
from tailrace.commit.manifest import EMPTY, Manifest, next_objects
from tailrace.ids import MIN_MICROS, Micros
from tailrace.operators.aggregate.accumulators import Accumulator, AccumulatorInput, Output
from tailrace.operators.aggregate.ingest.partials import PartialIngest
from tailrace.operators.aggregate.spec import AggregateSpec
from tailrace.operators.ingest.frame import Frame
from tailrace.operators.windows.time_window import TimeWindowSpec
from tailrace.server.transport.client import StateClient
from tailrace.server.transport.server_config import ProcessConfig, ServerAddress, ServerConfig
from tailrace.server.transport.stage_messages import CommittedAttempt, StageKey
from tailrace.state.layout import Merge
from tailrace.types import BIGINT, TIMESTAMP, Field

SHARDS = 64
HOUR = Micros(3_600_000_000)
_TYPES = {"k": BIGINT, "v": BIGINT, "ts": TIMESTAMP}


def spec(*, windows: bool, shards: int = SHARDS) -> AggregateSpec:
    """Counts and sums of keys: in windows of an hour that are put out when they close, or all changes at once."""
    return AggregateSpec(
        name="sums",
        keys=(Field("k", BIGINT),),
        accumulators=(
            Accumulator(Merge.ADD, AccumulatorInput.ONE, None, BIGINT),
            Accumulator(Merge.ADD, AccumulatorInput.VALUE, "v", BIGINT),
        ),
        outputs=(Output("n", "count", (0,), BIGINT), Output("sum", "sum", (1,), BIGINT)),
        window=TimeWindowSpec(HOUR, HOUR, Micros(0)) if windows else None,
        window_name="window",
        window_position=0,
        time_column=Field("ts", TIMESTAMP) if windows else None,
        emit_changed=not windows,
        watermarked=windows,
        ansi=True,
        shards=shards,
    )


class DrivenServer:
    def __init__(
        self, operator: AggregateSpec, common: ServerConfig, address: ServerAddress, group: MemoryCgroup | None
    ) -> None:
        self.operator = operator
        self.group = group
        self.address = address
        self.client = StateClient(address, common.access)
        self.manifest: Manifest = EMPTY
        self.compactions = 0
        self._common = common
        self._watermark: int = MIN_MICROS
        self._try = 0

    def open(self, shards: range, manifest: Manifest = EMPTY) -> None:
        self._try += 1
        self.client.open(shards, manifest, self._try)
        self.manifest = manifest

    def epoch(self, keys: np.ndarray, hours: np.ndarray | None = None, *, watermark: int = MIN_MICROS) -> int:
        """Rows of these keys, each with the value 1, by two tasks: how many rows come out."""
        number = self.manifest.epoch + 1
        halves = np.array_split(np.arange(len(keys)), 2)
        staged = [
            self._stage(number, task, self._frame(keys[half], None if hours is None else hours[half]))
            for task, half in enumerate(halves)
            if len(half)
        ]
        done = self.client.run_epoch(
            number, self._try, staged, self._watermark, max(watermark, self._watermark), commit=True, inline_bytes=0
        )
        self._watermark = max(watermark, self._watermark)
        rows = sum(batch.num_rows for batch in self.client.output(number, self._try))
        assert rows == done.output.rows
        committed = done.committed
        assert committed is not None
        deltas = [] if committed.delta is None else [committed.delta]
        horizons = dict(committed.horizons)
        objects, applied = next_objects(self.manifest, number, deltas, committed.compactions, horizons)
        self.compactions += len(applied)
        self.manifest = Manifest(number, self._common.run, self._try, objects, horizons=horizons)
        self.client.forget(number)
        self.client.compact(self.manifest)
        return rows

    def _frame(self, keys: np.ndarray, hours: np.ndarray | None) -> Frame:
        columns = {"k": pa.array(keys), "v": pa.array(np.ones(len(keys), np.int64))}
        if hours is not None:
            columns["ts"] = pa.array(hours * HOUR).cast(pa.timestamp("us", tz="UTC"))
        ingest = PartialIngest(self.operator, self._watermark, False, {name: _TYPES[name] for name in columns})
        return ingest.frame([pa.RecordBatch.from_pydict(columns)])

    def _stage(self, epoch: int, task: int, frame: Frame) -> CommittedAttempt:
        with self.client.stage(StageKey(self._common.run, self.operator.name, epoch, self._try, task, task)) as writer:
            writer.write(frame)
            receipt = writer.finish()
        return CommittedAttempt(task, task, receipt.rows, receipt.checksum)

    # Memory ----------------------------------------------------------------------------------------------------------

    def peak_bytes(self) -> int:
        """The largest resident memory since the last call."""
        lines = Path(f"/proc/{self.address.pid}/status").read_text().splitlines()
        peak = next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))
        Path(f"/proc/{self.address.pid}/clear_refs").write_text("5")
        return peak << 10


_LAUNCH = """
import dataclasses, json, os, sys
from pathlib import Path
from tailrace.env import processes
from tailrace.server.process.launch import ensure_server
from tailrace.server.transport.server_config import ProcessConfig
group = sys.argv[1]
given = ProcessConfig.from_json(sys.stdin.readline())
if group:
    Path(group, "cgroup.procs").write_text(str(os.getpid()))
executor = processes.facts(given.executor_pid)
print(json.dumps(dataclasses.asdict(ensure_server(given.common, executor=executor, temporary=given.directory))))
"""


def _launched(common: ServerConfig, executor: StandIn, temporary: Path, group: MemoryCgroup | None) -> ServerAddress:
    """By a process of its own that is in the group: so are the forkserver that it starts, and the server."""
    facts = executor.facts
    given = ProcessConfig("", str(temporary), "", facts.pid, facts.started, common)
    done = subprocess.run(
        [sys.executable, "-c", _LAUNCH, "" if group is None else str(group.path)],
        input=given.to_json() + "\n",
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=120,
    )
    return ServerAddress(**json.loads(done.stdout))


@contextmanager
def driven_server(
    operator: AggregateSpec, store: Path, temporary: Path, limit_bytes: int | None = None, **settings: object
) -> Iterator[DrivenServer]:
    """``limit_bytes``: of a memory cgroup for the server and its forkserver, where one can be made."""
    group = None if limit_bytes is None else MemoryCgroup.made(limit_bytes)
    executor = StandIn()
    common = config(store, operators=(operator.to_json(),), **settings)
    try:
        address = _launched(common, executor, temporary, group)
        assert group is None or group.has(address.pid), "the limit is the server's"
        yield DrivenServer(operator, common, address, group)
    finally:
        executor.end()
        if group is not None:
            group.remove()
