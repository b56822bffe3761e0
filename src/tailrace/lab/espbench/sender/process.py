"""One instance of the sender, in a process of its own: ``python -m tailrace.lab.espbench.sender.process``.

It reads its assignment, a JSON object, from standard input; answers ``ready``, and waits for the line with the moment
of its start. Its last line is what it did. A standard input that closes before ends it, and nothing is left behind.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from tailrace.errors import TailraceError
from tailrace.lab.espbench.envelope import message
from tailrace.lab.espbench.sender.rows import rows_of
from tailrace.lab.espbench.sender.schedule import Lateness, Schedule

_POLL_S = 0.001
_FLUSH_S = 60
_RETRY_S = 0.01
STATISTICS_MS = 1_000
PERCENTILES = (50.0, 90.0, 99.0, 100.0)


@dataclass(frozen=True)
class Assignment:
    """``producer``: librdkafka's configuration. Paths and sizes as in ``config``."""

    topic: str
    path: str
    looped: bool
    in_memory: bool
    producer: dict[str, Any]
    interval_ns: int
    messages: int
    instance: int = 0
    instances: int = 1


@dataclass(frozen=True)
class Sent:
    """What an instance did. ``expected``: what it was to send, fewer where a file that is not looped ended before."""

    expected: int
    sent: int
    failed: int
    first_error: str
    seconds: float
    lateness_ms: dict[str, float]
    producer: dict[str, float]
    """Of librdkafka's own statistics, the last ones."""


class Instance:
    """Sends one stream's messages, or its share of them. The client's callbacks run in ``poll``, on our thread."""

    def __init__(self, assignment: Assignment) -> None:
        self._assignment = assignment
        self._failed = 0
        self._error = ""
        self._statistics: dict[str, Any] = {}
        share = (assignment.instance, assignment.instances)
        self._rows = rows_of(Path(assignment.path), assignment.looped, assignment.in_memory, *share)
        settings = {**assignment.producer, "statistics.interval.ms": STATISTICS_MS, "stats_cb": self._keep_statistics}
        self._producer = Producer(settings)

    def connect(self) -> None:
        """Asks for the topic, so that the first message need not wait for it."""
        try:
            found = self._producer.list_topics(self._assignment.topic, timeout=30).topics[self._assignment.topic]
        except KafkaException as error:
            raise TailraceError(f"the broker does not answer: {error}") from error
        if found.error is not None:
            raise TailraceError(f"topic {self._assignment.topic}: {found.error}")

    def run(self, start_s: float, gone: threading.Event) -> Sent:
        """``start_s``: wall clock. Ends when all is sent, or when the parent is gone."""
        given = self._assignment
        begun = time.monotonic_ns() + int((start_s - time.time()) * 1e9)
        schedule = Schedule(begun, given.interval_ns, given.messages, given.instance, given.instances)
        lateness = Lateness(schedule)
        sent, ended = 0, False
        while sent < schedule.mine and not ended and not gone.is_set():
            now = time.monotonic_ns()
            due = schedule.due(now) - sent
            if due <= 0:
                self._producer.poll(0)
                time.sleep(min(max((schedule.due_ns(sent) - time.monotonic_ns()) / 1e9, 0), _POLL_S))
                continue
            count = self._send(schedule, sent, due)
            lateness.add(count, now)
            sent += count
            ended = count < due
            self._producer.poll(0)
        seconds = (time.monotonic_ns() - begun) / 1e9
        self._failed += self._producer.flush(_FLUSH_S)
        late = dict(zip(("p50", "p90", "p99", "max"), lateness.ms(*PERCENTILES), strict=True))
        return Sent(schedule.mine, sent, self._failed, self._error, seconds, late, _figures(self._statistics))

    def _send(self, schedule: Schedule, sent: int, count: int) -> int:
        """At most so many messages; fewer where the file has ended."""
        topic, delivered = self._assignment.topic, self._delivered
        now_ms = time.time_ns() // 1_000_000
        for done in range(count):
            row = next(self._rows, None)
            if row is None:
                return done
            value = message(schedule.number(sent + done), now_ms, row)
            while True:
                try:
                    self._producer.produce(topic, value, on_delivery=delivered)
                    break
                except BufferError:  # more than the client may hold: the schedule runs on, and we are late
                    self._producer.poll(_RETRY_S)
        return count

    def _delivered(self, error: KafkaError | None, message: object) -> None:
        if error is not None:
            self._failed += 1
            self._error = self._error or str(error)

    def _keep_statistics(self, text: str) -> None:
        self._statistics = json.loads(text)


def _figures(statistics: dict[str, Any]) -> dict[str, float]:
    """Named as the original's columns, as far as librdkafka knows them."""
    if not statistics:
        return {}
    brokers = [broker for broker in statistics["brokers"].values() if broker.get("tx")]
    topics = list(statistics["topics"].values())
    batches = [topic["batchsize"]["avg"] for topic in topics if topic["batchsize"]["cnt"]]
    counts = [topic["batchcnt"]["avg"] for topic in topics if topic["batchcnt"]["cnt"]]
    return {
        "batch-size-avg": max(batches, default=0),
        "record-queue-time-avg": max((broker["int_latency"]["avg"] / 1e3 for broker in brokers), default=0),
        "records-per-request-avg": max(counts, default=0),
        "request-latency-max": max((broker["rtt"]["max"] / 1e3 for broker in brokers), default=0),
    }


def _watch_parent(gone: threading.Event) -> None:
    sys.stdin.read()
    gone.set()


def main() -> int:
    assignment = Assignment(**json.loads(sys.stdin.readline()))
    gone = threading.Event()
    try:
        instance = Instance(assignment)
        instance.connect()
        print(json.dumps({"ready": True}), flush=True)
        start = sys.stdin.readline()
        if not start:
            return 1
        threading.Thread(target=_watch_parent, args=(gone,), daemon=True).start()
        print(json.dumps(asdict(instance.run(float(start), gone))), flush=True)
    except TailraceError as error:
        print(json.dumps({"error": str(error)}), flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
