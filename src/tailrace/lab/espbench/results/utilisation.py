"""What processes use while a run goes on: processor time, memory and disk of each by interval, the machine's network.

A process is counted with all that it has started, except what is named by itself. The sampler is a thread; a process
that ends between two looks is counted until the last look that saw it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass

import psutil

INTERVAL_S = 1.0


@dataclass(frozen=True)
class Sample:
    """``cpu``: cores in use since the sample before. Bytes of disk and network: since then, too."""

    at_s: float
    process: str
    cpu: float
    memory_bytes: int
    read_bytes: int
    written_bytes: int


@dataclass
class _Seen:
    cpu_s: float = 0.0
    read: int = 0
    written: int = 0


class Utilisation(AbstractContextManager["Utilisation"]):
    """``watched``: names and process ids, asked for at each look, since systems are killed and started anew."""

    def __init__(self, watched: Callable[[], Mapping[str, int]], interval_s: float = INTERVAL_S) -> None:
        self._watched = watched
        self._interval_s = interval_s
        self._ended = threading.Event()
        self._before: dict[int, _Seen] = {}
        self._network = psutil.net_io_counters(pernic=False)
        self._last_s = time.monotonic()
        self.samples: list[Sample] = []
        self._thread = threading.Thread(target=self._run, name="utilisation", daemon=True)

    def __enter__(self) -> Utilisation:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        self._look(keep=False)
        while not self._ended.wait(self._interval_s):
            self._look(keep=True)

    def _look(self, keep: bool) -> None:
        now = time.monotonic()
        passed, self._last_s = max(now - self._last_s, 1e-6), now
        at_s = round(time.time(), 3)
        watched = dict(self._watched())
        for name, pid in watched.items():
            cpu, memory, read, written = self._used(pid, set(watched.values()) - {pid})
            if keep:
                self.samples.append(Sample(at_s, name, round(cpu / passed, 3), memory, read, written))
        network = psutil.net_io_counters(pernic=False)
        if keep:
            received = network.bytes_recv - self._network.bytes_recv
            sent = network.bytes_sent - self._network.bytes_sent
            self.samples.append(Sample(at_s, "network", 0.0, 0, received, sent))
        self._network = network

    def _used(self, root: int, others: set[int]) -> tuple[float, int, int, int]:
        """Of a process and its offspring since the last look, and their memory now."""
        cpu, memory, read, written = 0.0, 0, 0, 0
        for process in _tree(root, others):
            try:
                with process.oneshot():
                    times, disk = process.cpu_times(), process.io_counters()
                    now = _Seen(times.user + times.system, disk.read_bytes, disk.write_bytes)
                    memory += process.memory_info().rss
            except psutil.Error:
                continue
            before = self._before.get(process.pid, _Seen() if self.samples else now)
            self._before[process.pid] = now
            cpu += max(now.cpu_s - before.cpu_s, 0.0)
            read += max(now.read - before.read, 0)
            written += max(now.written - before.written, 0)
        return cpu, memory, read, written


def _tree(root: int, others: set[int]) -> list[psutil.Process]:
    """Offspring by parents; a branch that is watched by itself is left out."""
    try:
        first = psutil.Process(root)
    except psutil.Error:
        return []
    found, todo = [], [first]
    while todo:
        process = todo.pop()
        found.append(process)
        try:
            todo += [child for child in process.children() if child.pid not in others]
        except psutil.Error:
            continue
    return found
