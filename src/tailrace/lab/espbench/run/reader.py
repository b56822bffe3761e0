"""Who reads the results while a query runs, as its user would: whole transactions only.

The broker's append time of a result does not say when anybody may have it: a transaction ends later. This reader notes
the moment at which it has each of them, and knows how many there are and which was the last.
"""

from __future__ import annotations

import threading
import time
from contextlib import AbstractContextManager

import numpy as np
import pyarrow as pa
from confluent_kafka import KafkaException

from tailrace.errors import TailraceError
from tailrace.lab.espbench.broker import Broker

_AT_ONCE = 5_000
_WAIT_S = 0.02


class ResultReader(AbstractContextManager["ResultReader"]):
    """A thread of the runner's. ``count`` and ``last`` may be looked at while it reads."""

    def __init__(self, broker: Broker, topic: str) -> None:
        self._consumer = broker.follow(topic)
        self._topic = topic
        self._ended = threading.Event()
        self._error: KafkaException | None = None
        self._offsets: list[int] = []
        self._seen_ms: list[float] = []
        self.last: bytes | None = None
        self._thread = threading.Thread(target=self._run, name="results", daemon=True)

    @property
    def count(self) -> int:
        return len(self._offsets)

    def __enter__(self) -> ResultReader:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._ended.set()
        self._thread.join()
        self._consumer.close()

    def check(self) -> None:
        if self._error is not None:
            raise TailraceError(f"topic {self._topic} cannot be read: {self._error}") from self._error

    def noted(self, results: pa.Table) -> pa.Table:
        """``results``, as `Broker.read` gives them, with ``seen_ms``. What came after the end has none."""
        offsets, seen_ms = np.array(self._offsets, np.int64), np.array(self._seen_ms)
        wanted = results["offset"].to_numpy()
        places = np.searchsorted(offsets, wanted)
        known = (places < len(offsets)) & (offsets[np.minimum(places, max(len(offsets) - 1, 0))] == wanted)
        values = np.full(len(wanted), np.nan)
        values[known] = seen_ms[places[known]]
        return results.append_column("seen_ms", pa.array(values))

    def _run(self) -> None:
        while not self._ended.is_set():
            try:
                messages = self._consumer.consume(_AT_ONCE, timeout=_WAIT_S)
            except KafkaException as error:
                self._error = error
                return
            now_ms = time.time() * 1e3
            for message in messages:
                if (fault := message.error()) is None:
                    self._offsets.append(message.offset())
                    self._seen_ms.append(now_ms)
                    self.last = message.value()
                elif not fault.retriable():
                    self._error = KafkaException(fault)
                    return
