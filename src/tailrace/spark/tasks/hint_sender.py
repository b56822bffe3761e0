"""Hints from a task: of the rows that pass a point, which state they will need, to the servers that own it.

The driver's instructions have, for each operator, which point sends and whether all points report when rows pass them.
They come in a local property of the job, set when the epoch before has ended: where rows go through a shuffle, Spark
runs the tasks before it while it makes the batch, and calls the driver's batch function only then. A point that does
neither costs nothing. A server that does not answer gets no more hints from this task: hints may be lost, and no task
fails or waits long for one.

Threads: a sender belongs to one task. Extractors belong to the worker process, which runs one task at a time.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace

import numpy as np
import pyarrow as pa
from pyspark import TaskContext

from tailrace.env import clock
from tailrace.operators.ingest.hint_extractor import HintExtractor, Hints
from tailrace.operators.ingest.hint_spec import HintSpec
from tailrace.server.transport.client import connect
from tailrace.server.transport.hint_message import HintMessage
from tailrace.server.transport.server_config import Access, ServerAddress
from tailrace.state.cache.frequency_sketch import SketchSize

_EXTRACTORS_MAX = 16
_extractors: OrderedDict[tuple[str, str, str], HintExtractor] = OrderedDict()


@dataclass(frozen=True)
class HintInstruction:
    """For one operator: the point that sends hints, and whether all points report when rows pass."""

    operator: str
    point: str
    measured: bool


@dataclass(frozen=True)
class HintPoint:
    """What a task needs to know of a point. Small, since Spark ships it with every task."""

    name: str
    specs: tuple[str, ...]  # a HintSpec as JSON, for each operator whose key the rows have here
    sketch: SketchSize


@dataclass(frozen=True)
class HintInstructions:
    """What tasks are to do in one try of an epoch. ``servers``: each with its half-open range of shards."""

    epoch: int
    try_: int
    instructions: tuple[HintInstruction, ...]
    servers: tuple[tuple[ServerAddress, int, int], ...]

    def to_json(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> HintInstructions:
        raw = json.loads(text)
        raw["instructions"] = tuple(HintInstruction(**order) for order in raw["instructions"])
        raw["servers"] = tuple((ServerAddress(**address), low, high) for address, low, high in raw["servers"])
        return cls(**raw)


def hints_property(run: str) -> str:
    """The local property with the instructions for hints. Absent: there are none."""
    return f"tailrace.hints.{run}"


def sender_of(point: HintPoint, access: Access) -> HintSender | None:
    """In a task: its sender, or None where this point has nothing to do."""
    context = TaskContext.get()
    assert context is not None
    text = context.getLocalProperty(hints_property(access.run))
    sender = HintSender(point, access, HintInstructions.from_json(text)) if text else None
    return sender if sender is not None and sender.active else None


class HintSender:
    def __init__(self, point: HintPoint, access: Access, instructions: HintInstructions) -> None:
        self._point, self._access = point, access
        self._epoch, self._try = instructions.epoch, instructions.try_
        self._routes = instructions.servers
        self._ranges = [(low, high) for _, low, high in instructions.servers]
        self._silent: set[str] = set()
        self._passed: list[tuple[float, int]] = []
        asked = {order.operator: order for order in instructions.instructions}
        specs = [HintSpec.from_json(text) for text in point.specs]
        active = [(spec, asked[spec.operator]) for spec in specs if spec.operator in asked]
        self._sending = [spec for spec, order in active if order.point == point.name]
        self._measured = [spec.operator for spec, order in active if order.measured and order.point != point.name]

    @property
    def active(self) -> bool:
        return bool(self._sending or self._measured)

    def rows(self, batch: Mapping[str, pa.Array], count: int) -> None:
        """These rows pass; ``batch`` has the columns that the specs name."""
        if self._measured:
            self._passed.append((clock.monotonic(), count))
        if not count:
            return
        for spec in self._sending:
            extractor = _extractor(self._access.run, self._point, spec)
            for (address, _, _), hints in zip(
                self._routes, extractor.hints(batch, self._epoch, self._ranges, self._try)
            ):
                message = self._message(spec.operator, ((0.0, count),))
                if hints is None:
                    self._send(address, message)  # all keys are hot: the message only reports when rows passed
                else:
                    self._send_hints(address, replace(message, time=hints.time), hints, asks=spec.long_keys)

    def finish(self) -> None:
        """The task's rows have all passed: report when, where slack is measured."""
        if not self._passed:
            return
        now = clock.monotonic()
        passed = tuple((round((now - when) * 1e3, 3), rows) for when, rows in self._passed)
        for operator in self._measured:
            for address, _, _ in self._routes:
                self._send(address, self._message(operator, passed))

    def wait_received(self) -> None:
        """Wait until the servers have received all hints and reports: they must have them before the rows."""
        if self._sending or self._measured:
            for address, _, _ in self._routes:
                connect(address, self._access).wait_for_hints()

    def _message(self, operator: str, passed: tuple[tuple[float, int], ...]) -> HintMessage:
        return HintMessage(self._access.run, operator, self._epoch, self._try, self._point.name, passed)

    def _send_hints(self, address: ServerAddress, message: HintMessage, hints: Hints, *, asks: bool) -> None:
        """Where keys are long, the server is first asked by their hashes which it needs: most, it has."""
        if not asks:
            self._send(address, message, hints.batch)
            return
        answer = self._send(address, replace(message, asks=True), hints.hashes)
        needed = np.flatnonzero(np.unpackbits(np.frombuffer(answer or b"", np.uint8))[: len(hints)])
        if len(needed):
            self._send(address, replace(message, passed=(), again=True), hints.batch.take(pa.array(needed)))

    def _send(self, address: ServerAddress, message: HintMessage, batch: pa.RecordBatch | None = None) -> bytes | None:
        if address.server in self._silent:
            return None
        answer = connect(address, self._access).hint(message, batch)
        if answer is None:
            self._silent.add(address.server)
        return answer


def _extractor(run: str, point: HintPoint, spec: HintSpec) -> HintExtractor:
    """What this process has learned, at a point, of the keys of an operator."""
    key = (run, point.name, spec.operator)
    if key not in _extractors:
        _extractors[key] = HintExtractor(spec, point.sketch)
        while len(_extractors) > _EXTRACTORS_MAX:
            _extractors.popitem(last=False)
    _extractors.move_to_end(key)
    return _extractors[key]
