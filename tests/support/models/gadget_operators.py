"""The eleven operators once more, slow and plain: every rule spelt out over lists and dictionaries. Knows no arrays.

``naive(...)`` takes events as (key, time, side, kind, size) and watermarks as {place: [values]}, and gives requests as
(letter, name of the state key, size). Windows that a watermark closes are closed in order of their end, then of birth.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

Request = tuple[str, Any, int]
NEVER = 1 << 62


class Windows:
    def __init__(self, length: int, slide: int, lateness: int, holistic: bool) -> None:
        self.length, self.slide, self.lateness, self.holistic = length, slide, lateness, holistic
        self.open: list[tuple[int, int, int]] = []  # (key, start, birth)
        self.births = 0

    def event(self, key: int, time: int, side: int, kind: int, size: int, mark: int) -> Iterator[Request]:
        for start in range(0, time + 1, self.slide):
            if not start <= time < start + self.length:
                continue
            if start + self.length + self.lateness <= mark:
                continue
            if not any((key, start) == one[:2] for one in self.open):
                self.open.append((key, start, self.births))
                self.births += 1
            if self.holistic:
                yield "M", (key, start), size
            else:
                yield "G", (key, start), 0
                yield "P", (key, start), size

    def close(self, mark: int) -> Iterator[Request]:
        for key, start, birth in sorted(self.open, key=lambda one: (one[1] + self.length, one[2])):
            if start + self.length + self.lateness <= mark:
                yield "G", (key, start), 0
                yield "D", (key, start), 0
                self.open.remove((key, start, birth))


class Sessions:
    def __init__(self, gap: int, lateness: int, holistic: bool) -> None:
        self.gap, self.lateness, self.holistic = gap, lateness, holistic
        self.open: dict[int, list[dict[str, int]]] = {}
        self.births = 0

    def event(self, key: int, time: int, side: int, kind: int, size: int, mark: int) -> Iterator[Request]:
        yield "G", ("meta", key), 0
        sessions = self.open.setdefault(key, [])
        before = sorted((one["start"], one["end"]) for one in sessions)
        touching = [one for one in sessions if one["start"] <= time + self.gap and one["end"] >= time]
        touching.sort(key=lambda one: one["start"])
        if not touching:
            if time + self.gap + self.lateness <= mark:
                return
            own = {"start": time, "end": time + self.gap, "birth": self.births, "size": 0}
            self.births += 1
            sessions.append(own)
        else:
            own = touching[0]
            own["start"] = min(own["start"], time)
            own["end"] = max(time + self.gap, *(one["end"] for one in touching), 0)
            for other in touching[1:]:
                yield "G", ("session", other["birth"]), 0
                yield "D", ("session", other["birth"]), 0
                if self.holistic:
                    yield "M", ("session", own["birth"]), other["size"]
                own["size"] += other["size"]
                sessions.remove(other)
            if len(touching) > 1 and not self.holistic:
                yield "G", ("session", own["birth"]), 0
                yield "P", ("session", own["birth"]), size
        if self.holistic:
            yield "M", ("session", own["birth"]), size
        else:
            yield "G", ("session", own["birth"]), 0
            yield "P", ("session", own["birth"]), size
        own["size"] += size
        if sorted((one["start"], one["end"]) for one in sessions) != before:
            yield from self._write(key)

    def _write(self, key: int) -> Iterator[Request]:
        yield "D", ("meta", key), 0
        for _ in self.open[key]:
            yield "M", ("meta", key), 20

    def close(self, mark: int) -> Iterator[Request]:
        every = [(one["end"], one["birth"], key, one) for key, sessions in self.open.items() for one in sessions]
        for end, birth, key, one in sorted(every, key=lambda item: item[:2]):
            if end + self.lateness <= mark:
                yield "G", ("meta", key), 0
                yield "G", ("session", birth), 0
                yield "D", ("session", birth), 0
                self.open[key].remove(one)
                yield from self._write(key)
                yield from self._write(key)


class Interval:
    def __init__(self, lower: int, upper: int, bucket: int) -> None:
        self.lower, self.upper, self.bucket = lower, upper, bucket
        self.buckets: dict[tuple[int, int, int], tuple[int, int]] = {}  # (side, key, time) -> (end, birth)
        self.births = 0

    def event(self, key: int, time: int, side: int, kind: int, size: int, mark: int) -> Iterator[Request]:
        if time < mark:
            return
        rounded = time - time % self.bucket
        name = (side, key, rounded)
        if name not in self.buckets:
            more = self.upper if side == 0 else -self.lower
            # An event that is not late is at or after the watermark: it finds its bucket, if there was one.
            self.buckets[name] = (rounded + self.bucket + max(more, 0), self.births)
            self.births += 1
        yield "G", name, 0
        yield "P", name, size

    def close(self, mark: int) -> Iterator[Request]:
        for name, (end, _) in sorted(self.buckets.items(), key=lambda item: item[1]):
            if end <= mark:
                yield "D", name, 0
                del self.buckets[name]


class Continuous:
    def __init__(self) -> None:
        self.live: set[int] = set()

    def event(self, key: int, time: int, side: int, kind: int, size: int, mark: int) -> Iterator[Request]:
        if side == 1:
            yield "G", ("left", key), 0
            if key not in self.live:
                yield "M", ("waiting", key), size
        elif kind == 1:
            self.live.add(key)
            yield "G", ("waiting", key), 0
            yield "D", ("waiting", key), 0
            yield "P", ("left", key), size
        elif kind == 2:
            self.live.discard(key)
            yield "D", ("left", key), 0
            yield "D", ("waiting", key), 0

    def close(self, mark: int) -> Iterator[Request]:
        return iter(())


class Aggregation:
    def event(self, key: int, time: int, side: int, kind: int, size: int, mark: int) -> Iterator[Request]:
        yield "G", key, 0
        yield "P", key, size

    def close(self, mark: int) -> Iterator[Request]:
        return iter(())


OPERATORS: dict[str, Callable[..., Any]] = {
    "tumbling-incremental": lambda p: Windows(p.window, p.window, p.lateness, False),
    "tumbling-holistic": lambda p: Windows(p.window, p.window, p.lateness, True),
    "tumbling-join": lambda p: Windows(p.window, p.window, p.lateness, True),
    "sliding-incremental": lambda p: Windows(p.window, p.slide, p.lateness, False),
    "sliding-holistic": lambda p: Windows(p.window, p.slide, p.lateness, True),
    "sliding-join": lambda p: Windows(p.window, p.slide, p.lateness, True),
    "session-incremental": lambda p: Sessions(p.gap, p.lateness, False),
    "session-holistic": lambda p: Sessions(p.gap, p.lateness, True),
    "interval-join": lambda p: Interval(p.lower, p.upper, p.bucket),
    "continuous-join": lambda p: Continuous(),
    "aggregation": lambda p: Aggregation(),
}


def naive(
    workload: str, parameters: Any, events: list[tuple[int, int, int, int, int]], marks: dict[int, list[int]]
) -> list[Request]:
    """All requests, with everything closed at the end."""
    operator = OPERATORS[workload](parameters)
    found: list[Request] = []
    mark = -NEVER
    for place in range(len(events) + 1):
        for value in marks.get(place, []):
            mark = max(mark, value)
            found.extend(operator.close(mark))
        if place < len(events):
            found.extend(operator.event(*events[place], mark))
    found.extend(operator.close(NEVER))
    return found


def numbered(requests: list[Request]) -> list[tuple[str, int, int]]:
    """State keys as numbers in order of first appearance."""
    numbers: dict[Any, int] = {}
    return [(letter, numbers.setdefault(name, len(numbers)), size) for letter, name, size in requests]
