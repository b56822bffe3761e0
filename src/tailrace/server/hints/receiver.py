"""Takes hints off the wire to the operators that they are for, and measures how early they came.

A hint of another run is refused. One of an epoch that its operator has already begun, or of an older try, is dropped:
it would fetch what nobody asks for any more.

Threads: any; the meter has a lock, and the engine takes hints from any thread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa

from tailrace.errors import FencedError
from tailrace.ids import Attempt
from tailrace.operators.base import HintedKeys
from tailrace.operators.ingest.hint_extractor import hinted_keys
from tailrace.server.hints.slack import STAGING_POINT, Sample, SlackMeter
from tailrace.server.transport.hint_message import HintMessage
from tailrace.server.transport.stage_messages import StageKey
from tailrace.types import Field


class Operators(Protocol):
    """What is needed of a ``HintDispatcher``."""

    def hint_keys(self, operator: str, epoch: int, keys: HintedKeys) -> None: ...
    def lacking(self, operator: str, hashes: np.ndarray, times: np.ndarray) -> np.ndarray: ...


class HintReceiver:
    """``keys``: the keys of each operator, by its name."""

    def __init__(self, run: str, keys: Mapping[str, Sequence[Field]], meter: SlackMeter | None = None) -> None:
        self._run = run
        self._keys = keys
        self._meter = meter or SlackMeter()

    def take(self, operators: Operators, data: pa.Buffer) -> bytes:
        """One message, and what is answered: where it asks, which keys are needed."""
        message, batch = HintMessage.from_buffer(data)
        if message.run != self._run:
            raise FencedError(f"this server belongs to run {self._run}, not to {message.run}")
        at = Attempt(message.epoch, message.try_)
        if not self._meter.passed(message.operator, at, message.point, message.passed):
            return b""
        answer = b""
        if batch is not None and message.operator in self._keys:
            keys = hinted_keys(batch, message.time, self._keys[message.operator])
            if message.asks:
                answer = np.packbits(operators.lacking(message.operator, keys.hashes, keys.times)).tobytes()
            else:
                operators.hint_keys(message.operator, message.epoch, keys)
        hints = 0 if batch is None or message.again else len(batch)
        self._meter.hinted(message.operator, at, hints, data.size + len(answer))
        return answer

    def staged(self, key: StageKey, rows: int) -> None:
        """A frame has arrived."""
        if rows:
            self._meter.passed(key.operator, Attempt(key.epoch, key.try_), STAGING_POINT, [(0.0, rows)])

    def begins(self, operator: str, epoch: int, try_: int) -> tuple[dict[str, tuple[Sample, ...]], int, int]:
        """The operator begins to work on an epoch: slack by point, and how many hints came, in how many bytes."""
        return self._meter.begins(operator, Attempt(epoch, try_))
