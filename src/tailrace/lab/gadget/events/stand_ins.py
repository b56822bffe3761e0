"""Synthetic stand-ins for the three streams of the Gadget paper, for those who have not got the files.

They are not the data. They have the numbers that were published, or that follow from published ones by arithmetic
(docs/explanation/gadget.md shows how): how many events, keys, (key, 5 s window) pairs, sessions of 2 minutes and
(key, millisecond)
pairs there are, and what share of Borg's task events belongs to jobs that run since before the trace begins. All else,
such as who talks when, is drawn. With fewer events than published all counts and the time shrink alike.

Streams are trees: keys have sessions, which have windows, which have moments, which have events. Each level's total is
exact; what a node gets beyond its first child is drawn with weights.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tailrace.lab.gadget.events.source import Kind, Stream
from tailrace.lab.gadget.traces.trace import Events

SECOND = 1_000_000
MS = 1_000
WINDOW = 5 * SECOND
NAMES = ("borg", "taxi", "azure")
LABEL = "synthetic stand-in"


def _shared(random: np.random.Generator, total: int, weights: np.ndarray) -> np.ndarray:
    """One for each, and the rest by weight."""
    rest = max(total - len(weights), 0)
    if weights.sum() == 0:
        weights = np.ones(len(weights))
    drawn: np.ndarray = 1 + random.multinomial(rest, weights / weights.sum())
    return drawn


def _heavy(random: np.random.Generator, rows: int, sigma: float) -> np.ndarray:
    return random.lognormal(0, sigma, rows)


def _numbered(counts: np.ndarray) -> np.ndarray:
    """0, 1, ... within each node."""
    ends = np.cumsum(counts)
    numbers: np.ndarray = np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - counts, counts)
    return numbers


def _running(values: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """The sum of the values so far within each node, its own included."""
    total = np.cumsum(values)
    first = np.cumsum(counts) - counts
    running: np.ndarray = total - np.repeat(total[first] - values[first], counts)
    return running


def stand_in(name: str, seed: int, events: int | None = None, two_inputs: bool = False) -> tuple[Stream, Stream | None]:
    """The stream (of two: the right one), and the left one if that is asked for."""
    random = np.random.default_rng(np.random.SeedSequence([seed, NAMES.index(name)]))
    if name == "borg":
        borg = _Borg(random, (events or BORG_TASKS) / BORG_TASKS)
        return borg.tasks(), borg.jobs() if two_inputs else None
    if name == "taxi":
        return _taxi(random, (events or TAXI_EVENTS) / TAXI_EVENTS, two_inputs)
    return _azure(random, (events or AZURE_EVENTS) / AZURE_EVENTS), None


BORG_TASKS = 841_135
BORG_SECONDS = 30_066
BORG_START = 150_935 * SECOND
BORG_MOMENTS = 184_146
BORG_WINDOWS = 75_370
BORG_SESSIONS = 20_300
BORG_TASK_JOBS = 7_000
"""With task events; of them BORG_OLD run since before the trace."""
BORG_OLD = 420
BORG_OLD_EVENTS = 0.43
BORG_BURST_EVENTS = 0.044
"""Of all events, at the very beginning: Table 2's distances of windows, sliding windows and buckets show it."""
BORG_LIVE = 279_245
"""Task events whose job was submitted and has not finished."""
BORG_JOBS = {"SUBMIT": 8_709, "SCHEDULE": 8_705, "FINISH": 4_738, "KILL": 3_935, "FAIL": 160, "EVICT": 3}
BORG_ALL_JOBS = 9_365


@dataclass
class _Borg:
    random: np.random.Generator
    scale: float

    def __post_init__(self) -> None:
        self.seconds = BORG_SECONDS * self.scale
        self.task_jobs = self._n(BORG_TASK_JOBS)
        self.old = min(self._n(BORG_OLD), self.task_jobs)

    def _n(self, published: int) -> int:
        return max(1, round(published * self.scale))

    def tasks(self) -> Stream:
        random, jobs, old = self.random, self.task_jobs, self.old
        is_old = np.arange(jobs) < old
        small = ~is_old & (random.random(jobs) < 0.55)  # of one event: half of all jobs, by the published times to live
        weight = _heavy(random, jobs, 0.3)
        sessions = _shared(random, self._n(BORG_SESSIONS), np.where(small, 0, np.where(is_old, weight, weight * 0.05)))
        job = np.repeat(np.arange(jobs), sessions)  # of each session
        weight = np.where(small[job], 0, _heavy(random, len(job), 0.8))
        windows = _shared(random, self._n(BORG_WINDOWS), weight)
        window_job = np.repeat(job, windows)
        weight = np.where(small[window_job], 0, _heavy(random, len(window_job), 1.0))
        moments = _shared(random, self._n(BORG_MOMENTS), weight)
        moments = np.minimum(moments, 900)
        times = self._times(sessions, windows, moments)
        moment_job = np.repeat(window_job, moments)
        weight = np.where(small[moment_job], 0, _heavy(random, len(moment_job), 1.5))
        self._ingest_batch(weight, is_old[moment_job], BORG_OLD_EVENTS)
        self._ingest_batch(weight, is_old[moment_job] & (times <= times.min() + WINDOW), BORG_BURST_EVENTS)
        events = _shared(random, self._n(BORG_TASKS), weight)
        keys, times = np.repeat(moment_job, events), np.repeat(times, events)
        order = np.argsort(times, kind="stable")
        self.keys, self.times = keys[order], times[order]
        return Stream(Events(self.keys, self.times))

    def _ingest_batch(self, weight: np.ndarray, chosen: np.ndarray, share: float) -> None:
        """Makes the chosen ones have this share of the weights, about."""
        others = weight[~chosen].sum()
        if chosen.any() and others:
            weight[chosen] *= share / (1 - share) * others / weight[chosen].sum()

    def _times(self, sessions: np.ndarray, windows: np.ndarray, moments: np.ndarray) -> np.ndarray:
        """Of moments, in microseconds. Sessions lie more than 2 minutes apart, windows 10 to 60 seconds."""
        random = self.random
        step = np.minimum(random.integers(2, 12, len(np.repeat(windows, windows))), 23)
        step[np.cumsum(windows) - windows] = 0
        offset = _running(step, windows)
        length = offset[np.cumsum(windows) - 1] * 5.0
        job_of = np.repeat(np.arange(len(sessions)), sessions)
        busy = np.bincount(job_of, weights=length + 130, minlength=len(sessions))
        is_old = np.arange(len(sessions)) < self.old
        room = np.maximum(self.seconds - busy, 0)
        begin = np.where(is_old, 0, random.random(len(sessions)) * room)
        spread = np.where(is_old, room, np.minimum(room - begin, random.exponential(1_500, len(sessions))))
        share = random.exponential(1, len(job_of))
        first = np.cumsum(sessions) - sessions
        share[first] = np.where(is_old, share[first] * 0.02, 0)
        total = np.bincount(job_of, weights=share, minlength=len(sessions))
        idle = share / np.maximum(total, 1e-9)[job_of] * spread[job_of]
        before = _running(length + 130, sessions) - length - 130
        start = begin[job_of] + before + np.minimum(_running(idle, sessions), spread[job_of])
        pane = np.repeat((start // 5).astype(np.int64), windows) + offset
        second = random.integers(0, 5, len(pane))
        base = pane * WINDOW + second * SECOND
        at = _numbered(moments)
        gap = np.repeat(np.maximum(999 // np.maximum(moments, 1), 1), moments)
        jitter = (random.random(len(at)) * gap).astype(np.int64)
        found: np.ndarray = BORG_START + np.repeat(base, moments) + np.minimum(at * gap + jitter, 999) * MS
        return found

    def jobs(self) -> Stream:
        """Old jobs have no SUBMIT. Some new ones have it after their tasks only, so that no more tasks are live."""
        random = self.random
        submitted = self._n(BORG_JOBS["SUBMIT"])
        everyone = max(self._n(BORG_ALL_JOBS), self.task_jobs)
        first = np.full(everyone, -1, np.int64)
        last = np.full(everyone, -1, np.int64)
        first[self.keys[::-1]] = self.times[::-1]
        last[self.keys] = self.times
        alone = first < 0
        anywhen = BORG_START + (random.random(everyone) * self.seconds * SECOND / MS).astype(np.int64) * MS
        first = np.where(alone, anywhen, first)
        last = np.where(alone, anywhen, last)
        events_of = np.bincount(self.keys, minlength=everyone)
        new = self.old + random.permutation(everyone - self.old)[: min(submitted, everyone - self.old)]
        live = np.cumsum(events_of[new]) <= self._n(BORG_LIVE)
        submit = np.where(live, first[new] - 5 * MS, last[new] + 7 * MS)
        schedule = submit + random.integers(1, 400, len(new)) * MS
        ended = random.permutation(len(new))[: self._n(BORG_JOBS["FINISH"])]
        finish = np.maximum(last[new], schedule)[ended] + random.integers(1, 60_000, len(ended)) * MS
        others = self._n(BORG_JOBS["KILL"] + BORG_JOBS["FAIL"] + BORG_JOBS["EVICT"])
        killed = random.integers(0, everyone, others)
        parts = [
            (new, submit, Kind.ADD),
            (new[: self._n(BORG_JOBS["SCHEDULE"])], schedule[: self._n(BORG_JOBS["SCHEDULE"])], Kind.DATA),
            (new[ended], finish, Kind.END),
            (killed, last[killed] + random.integers(1, 60_000, others) * MS, Kind.DATA),
        ]
        keys = np.concatenate([one for one, _, _ in parts])
        times = np.concatenate([one for _, one, _ in parts])
        kinds = np.concatenate([np.full(len(one), kind, np.uint8) for one, _, kind in parts])
        order = np.argsort(times, kind="stable")
        return Stream(Events(keys[order], times[order], kinds=kinds[order]))


TAXI_EVENTS = 1_000_000
TAXI_WINDOWS = 0.621
"""(Taxi, 5 s window) pairs for each event."""
TAXIS = 13_000


def _taxi(random: np.random.Generator, scale: float, two_inputs: bool) -> tuple[Stream, Stream | None]:
    """Pick-ups and drop-offs. A drop-off and the next pick-up are often within seconds. Fares: one for two events."""
    events = max(1, round(TAXI_EVENTS * scale))
    moments = max(1, round(events * TAXI_WINDOWS))
    taxis = min(max(1, round(TAXIS * scale)), moments)
    of_taxi = _shared(random, moments, _heavy(random, taxis, 0.5))
    taxi = np.repeat(np.arange(taxis), of_taxi)
    first = np.repeat(random.integers(0, 600, taxis), of_taxi)
    start = first + _running(130 + random.exponential(470, moments), of_taxi)
    in_moment = 1 + np.bincount(random.permutation(moments)[: events - moments], minlength=moments)
    times = np.repeat(start.astype(np.int64) * SECOND, in_moment) + _numbered(in_moment) * 400 * MS
    keys = np.repeat(taxi, in_moment)
    order = np.argsort(times, kind="stable")
    trips = Stream(Events(keys[order], times[order]))
    if not two_inputs:
        return trips, None
    chosen = np.sort(random.permutation(events)[: events // 2])
    fares = Stream(Events(keys[order][chosen], times[order][chosen]))
    kinds = np.where(random.random(events) < 0.5, Kind.ADD, Kind.END).astype(np.uint8)
    return fares, Stream(Events(keys[order], times[order], kinds=kinds))


AZURE_EVENTS = 4_000_000
AZURE_MOMENTS = 0.2346
"""(Subscription, time) pairs for each event that is in time; times are multiples of 5 minutes."""
AZURE_LATE = 0.18
"""Of events, those that come too late for any window: the session windows' gets show them."""
AZURE_SUBSCRIPTIONS = 5_958
AZURE_DAYS = 30


def _azure(random: np.random.Generator, scale: float) -> Stream:
    """Virtual machines that are made: whole deployments at once, for a few busy subscriptions; not quite in order."""
    events = max(1, round(AZURE_EVENTS * scale))
    late = round(events * AZURE_LATE)
    ticks = max(1, round(AZURE_DAYS * 288))
    moments = max(1, round((events - late) * AZURE_MOMENTS))
    subscriptions = min(max(1, round(AZURE_SUBSCRIPTIONS * min(1.0, 20 * scale))), moments)
    weights = _heavy(random, subscriptions, 2.0)
    keys = random.choice(subscriptions, 3 * moments, p=weights / weights.sum())
    pairs = np.unique(keys.astype(np.int64) * ticks + random.integers(0, ticks, len(keys)))
    pairs = pairs[np.sort(random.permutation(len(pairs))[:moments])]
    counts = _shared(random, events - late, _heavy(random, len(pairs), 1.5))
    in_time = np.repeat(pairs, counts)
    behind = in_time[random.integers(0, len(in_time), late)]
    ticks_behind = random.integers(2, 40, late)
    arrivals = np.concatenate([in_time % ticks, behind % ticks + ticks_behind])
    order = np.argsort(arrivals, kind="stable")
    found = np.concatenate([in_time, behind])[order]
    return Stream(Events(found // ticks, found % ticks * 300 * SECOND))
