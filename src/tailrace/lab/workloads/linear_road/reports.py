"""Position reports: every vehicle sends one each 30 seconds, from its entry to its exit.

Thirty groups of vehicles, one for each second of the half minute. When a group's second comes, its vehicles move on,
those at their exits leave, and as many others enter, or leave early, as the traffic of that second asks for. So the
traffic is exactly what was drawn, and a vehicle's reports are exactly 30 seconds apart. Single-threaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tailrace.lab.workloads.traffic.records import Ints, Layout

LAYOUT = Layout(
    {"t": 10, "vehicle": 8, "speed": 3, "highway": 2, "lane": 1, "direction": 1, "position": 6},
)
SEGMENT_FEET, SEGMENTS = 5_280, 100
REPORT_S = 30

_FEET_A_MILE_AN_HOUR = SEGMENT_FEET * REPORT_S // 3_600  # that a vehicle moves between two reports
_ENTRY, _EXIT = 0, 4
_LANES = np.array([1, 2, 3])
_LANE_SHARES = (0.26, 0.55, 0.19)
_LANE_SPEEDS = np.array([0.0, 50.6, 45.4, 47.9])


@dataclass
class _Group:
    """Vehicles that report in the same second of the half minute."""

    vehicle: Ints
    highway: Ints
    direction: Ints  # 0: to the east, where positions grow
    position: Ints
    speed: Ints
    lane: Ints
    exit: Ints  # the position where it leaves

    def take(self, places: Ints) -> _Group:
        return _Group(**{name: values[places] for name, values in vars(self).items()})

    def joined(self, other: _Group) -> _Group:
        return _Group(**{name: np.concatenate([values, vars(other)[name]]) for name, values in vars(self).items()})


class Reports:
    """A ``traffic.Source``. ``highways``: how many there are, each with two directions."""

    def __init__(self, highways: int, seed: int) -> None:
        self._highways = highways
        self._rng = np.random.default_rng((seed, 1))
        self._groups: list[_Group | None] = [None] * REPORT_S
        self._entered = 0

    def second(self, at: int, count: int) -> Mapping[str, Ints]:
        group = self._groups[at % REPORT_S]
        if group is None:
            group = self._enter(count)
            self._spread(group)  # as if the road had been in use for long
        else:
            group = self._move(group)
            stay = np.arange(len(group.vehicle) - min(count, len(group.vehicle)), len(group.vehicle))
            group = group.take(stay).joined(self._enter(count - len(stay)))
        self._groups[at % REPORT_S] = group
        return {name: values for name, values in vars(group).items() if name != "exit"}

    def _enter(self, count: int) -> _Group:
        rng = self._rng
        entry = rng.integers(0, SEGMENTS, count)
        direction = rng.integers(0, 2, count)
        ahead = np.where(direction == 0, SEGMENTS - entry, entry + 1)
        way = (rng.integers(0, 1 << 30, count) % ahead + 1) * SEGMENT_FEET
        position = entry * SEGMENT_FEET + rng.integers(0, SEGMENT_FEET, count)
        first = self._entered
        self._entered += count
        return _Group(
            vehicle=np.arange(first, first + count),
            highway=rng.integers(0, self._highways, count),
            direction=direction,
            position=position,
            speed=np.clip(np.rint(rng.normal(26.3, 3.9, count)), 14, 34).astype(np.int64),
            lane=np.full(count, _ENTRY),
            exit=np.clip(position + np.where(direction == 0, way, -way), 0, SEGMENTS * SEGMENT_FEET - 1),
        )

    def _spread(self, group: _Group) -> None:
        """Moves the vehicles to somewhere on their way."""
        way = group.exit - group.position
        group.position += (way * self._rng.random(len(way))).astype(np.int64)
        self._drive(group)

    def _move(self, group: _Group) -> _Group:
        group = group.take(np.flatnonzero(group.lane != _EXIT))
        before = group.speed
        self._drive(group)
        feet = (before + group.speed) * _FEET_A_MILE_AN_HOUR // 2
        group.position = group.position + np.where(group.direction == 0, feet, -feet)
        arrived = np.where(group.direction == 0, group.position >= group.exit, group.position <= group.exit)
        group.position = np.where(arrived, group.exit, group.position)
        group.lane = np.where(arrived, _EXIT, group.lane)
        return group

    def _drive(self, group: _Group) -> None:
        count = len(group.vehicle)
        group.lane = self._rng.choice(_LANES, count, p=_LANE_SHARES)
        drawn = np.rint(self._rng.normal(_LANE_SPEEDS[group.lane], 9.0))
        group.speed = np.clip(drawn, 0, 100).astype(np.int64)
