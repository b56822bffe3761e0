"""Events of tasks: the fields of Google's cluster trace in the order of SABER's stream, values drawn as in its sample.

A few jobs have most of the events. Requests for processor, memory and disk are whole numbers of ``CPU_UNIT``, a power
of two: sums of them are exact in floating point, in whatever order an engine adds. Single-threaded.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tailrace.lab.workloads.traffic.records import Ints, Layout

LAYOUT = Layout(
    {
        "t": 10,
        "job": 10,
        "task": 5,
        "machine": 10,  # 0: none yet
        "type": 1,
        "user": 3,
        "category": 1,
        "priority": 2,
        "cpu": 5,
        "ram": 5,
        "disk": 5,
        "constraints": 1,
    }
)
CPU_UNIT = 2.0**-14
"""Of the largest machine's."""
SCHEDULE = 1
"""The type of event that CM2 asks for."""

_FIRST_JOB, _FIRST_MACHINE = 3_418_309, 4_155_527
_TYPES = {0: 0.326, 1: 0.324, 4: 0.273, 5: 0.06, 2: 0.012, 3: 0.005}
_CATEGORIES = {0: 0.813, 2: 0.149, 1: 0.036, 3: 0.002}
_PRIORITIES = {2: 0.728, 0: 0.24, 9: 0.015, 1: 0.013, 8: 0.004}
_TOP_JOBS = {1: 0.189, 5: 0.690, 10: 0.856, 20: 0.915, 50: 0.968}
"""So many jobs have this share of all events."""
_USUAL_CPU, _USUAL_SHARE = 410, 0.63
_CPUS = np.array([0, 102, 205, 512, 614, 819, 1_024, 1_638, 2_048, 6_652])
_NO_MACHINE_SHARE = 0.369
_MACHINES, _TASKS, _USERS = 12_500, 10_000, 74


class Tasks:
    """A ``traffic.Source``. ``jobs``: how many there are."""

    def __init__(self, jobs: int, seed: int) -> None:
        self._rng = np.random.default_rng((seed, 2))
        self._ends = _job_ends(jobs)

    def second(self, at: int, count: int) -> Mapping[str, Ints]:
        rng = self._rng
        job = np.searchsorted(self._ends, rng.random(count), side="right")
        machine = _FIRST_MACHINE + rng.integers(0, _MACHINES, count)
        cpu = np.where(rng.random(count) < _USUAL_SHARE, _USUAL_CPU, rng.choice(_CPUS, count))
        return {
            "job": _FIRST_JOB + job,
            "task": rng.integers(0, _TASKS, count),
            "machine": np.where(rng.random(count) < _NO_MACHINE_SHARE, 0, machine),
            "type": self._one_of(_TYPES, count),
            "user": job % _USERS,
            "category": self._one_of(_CATEGORIES, count),
            "priority": self._one_of(_PRIORITIES, count),
            "cpu": cpu,
            "ram": rng.choice(_CPUS, count),
            "disk": np.where(rng.random(count) < 0.02, 1, 0),
            "constraints": np.zeros(count, np.int64),
        }

    def _one_of(self, shares: Mapping[int, float], count: int) -> Ints:
        return self._rng.choice(np.array(list(shares), np.int64), count, p=list(shares.values()))


def _job_ends(jobs: int) -> np.ndarray:
    """Where each job's part of the events ends, between 0 and 1."""
    places = [0, *(place for place in _TOP_JOBS if place < jobs), jobs]
    shares = [0.0, *(share for place, share in _TOP_JOBS.items() if place < jobs), 1.0]
    return np.interp(np.arange(1, jobs + 1), places, shares)
