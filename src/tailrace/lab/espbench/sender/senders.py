"""All senders of a run: one process for each stream and instance, which begin at one moment and are ended together."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tailrace.errors import TailraceError
from tailrace.lab.espbench.config import Config
from tailrace.lab.espbench.names import PRODUCTION, Query, Topics
from tailrace.lab.espbench.sender.process import Assignment, Sent

_LEAD_S = 0.5
"""From the word to start until the first message: all processes have read it by then."""
_END_S = 20
_LOOK_S = 0.1


@dataclass(frozen=True)
class StreamSent:
    """What the instances of one stream did together."""

    stream: int
    parts: tuple[Sent, ...]

    @property
    def sent(self) -> int:
        return sum(part.sent for part in self.parts)

    @property
    def failed(self) -> int:
        return sum(part.failed for part in self.parts)

    def lateness_ms(self, name: str) -> float:
        return max(part.lateness_ms[name] for part in self.parts)

    @property
    def name(self) -> str:
        return f"stream {self.stream}"

    def figures(self) -> dict[str, float]:
        late = {f"late by {name}, ms": round(self.lateness_ms(name), 1) for name in ("p50", "p99", "max")}
        return {"sent": self.sent, "failed": self.failed, **late}

    def fault(self, bound_ms: int) -> str | None:
        """Why what was measured says nothing of the system, if it does not."""
        if self.failed:
            error = next(part.first_error for part in self.parts if part.failed)
            return f"{self.name}: {self.failed:,} messages were not taken by the broker; {error}"
        if (late := self.lateness_ms("p99")) > bound_ms:
            return (
                f"{self.name}: one message in a hundred was {late:,.0f} ms or more behind its schedule, and "
                f"{bound_ms:,} are allowed (lateness-bound-ms): send at a lower rate, or from more instances"
            )
        return None


def assignments(
    config: Config, query: Query, topics: Topics, folder: Path, bootstrap: str
) -> dict[int, list[Assignment]]:
    """For each of the query's streams what its senders are to do."""
    given = config.sender.kafka_producer_config
    producer = {
        "bootstrap.servers": bootstrap,
        "acks": given.acks,
        "batch.size": given.batch_size,
        "linger.ms": given.linger_time,
        "queue.buffering.max.kbytes": max(given.buffer_memory_size // 1024, 1),
        "max.in.flight.requests.per.connection": 5,
        "retries": 0,  # a message that was sent twice would be counted against the system under test
    }
    messages = config.duration_ns // config.interval_ns
    return {
        stream: [
            Assignment(
                topics.input(stream),
                str(config.input_path(stream, folder)),
                stream != PRODUCTION,
                config.sender.data_reader_config.read_in_ram,
                producer,
                config.interval_ns,
                messages,
                instance,
                config.sender.instances,
            )
            for instance in range(config.sender.instances)
        ]
        for stream in query.inputs
    }


class Senders(AbstractContextManager["Senders"]):
    """``with Senders(assignments) as senders: senders.start(); senders.wait()``. Leaving ends whatever still sends."""

    def __init__(self, assignments: dict[int, list[Assignment]]) -> None:
        self._started: list[tuple[int, subprocess.Popen[str]]] = []
        self._seconds = (
            max(each.messages * each.interval_ns for several in assignments.values() for each in several) / 1e9
        )
        try:
            for stream, several in assignments.items():
                for assignment in several:
                    child = subprocess.Popen(
                        [sys.executable, "-m", "tailrace.lab.espbench.sender.process"],
                        stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE,
                        text=True,
                        start_new_session=True,  # Ctrl-C reaches the parent alone, which ends its children in order
                    )
                    self._started.append((stream, child))
                    _tell(child, json.dumps(asdict(assignment)))
            for stream, child in self._started:
                _answer(stream, child)
        except BaseException:
            self.close()
            raise

    @property
    def pids(self) -> dict[str, int]:
        return {f"sender {stream}.{n}": child.pid for n, (stream, child) in enumerate(self._started)}

    def start(self) -> float:
        """Says when the first messages are due, in seconds since 1970."""
        start_s = time.time() + _LEAD_S
        for _, child in self._started:
            _tell(child, str(start_s))
        return start_s

    def wait(self, progress: Callable[[str, int, int], None]) -> list[StreamSent]:
        """What each stream's senders did, when all of them are done. ``progress``: seconds sent, of how many."""
        begun = time.monotonic()
        while any(child.poll() is None for _, child in self._started):
            progress("sending", int(min(time.monotonic() - begun, self._seconds)), int(self._seconds))
            time.sleep(_LOOK_S)
        done: dict[int, list[Sent]] = {}
        for stream, child in self._started:
            done.setdefault(stream, []).append(Sent(**_answer(stream, child)))
        return [StreamSent(stream, tuple(parts)) for stream, parts in done.items()]

    def close(self) -> None:
        for _, child in self._started:
            if child.stdin is not None:
                try:
                    child.stdin.close()
                except BrokenPipeError:
                    pass
        deadline = time.monotonic() + _END_S
        for _, child in self._started:
            try:
                child.wait(max(deadline - time.monotonic(), 0))
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
            if child.stdout is not None:
                child.stdout.close()

    def __exit__(self, *exception: object) -> None:
        self.close()


def _tell(child: subprocess.Popen[str], line: str) -> None:
    assert child.stdin is not None
    child.stdin.write(line + "\n")
    child.stdin.flush()


def _answer(stream: int, child: subprocess.Popen[str]) -> dict[str, Any]:
    assert child.stdout is not None
    line = child.stdout.readline()
    if not line:
        raise TailraceError(f"the sender of stream {stream} ended by itself, with exit code {child.wait()}")
    answer: dict[str, Any] = json.loads(line)
    if "error" in answer:
        raise TailraceError(f"the sender of stream {stream}: {answer['error']}")
    return answer
