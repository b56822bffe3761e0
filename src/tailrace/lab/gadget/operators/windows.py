"""Tumbling and sliding windows: a machine for each event key and window. Compiled by numba.

Incremental: the state is a value that is read and written. Holistic: the state is a list that is added to, and read
when the window closes; the window joins are the same with the events of both inputs in one list. An event adds nothing
to a window whose end and lateness the watermark has reached.
"""

from __future__ import annotations

from typing import NamedTuple

from tailrace.lab.gadget.operators.machines import assign, compiled, delete, get, machine_at, merge, put, watermark


@compiled
def tumbling(self, task, event):
    start = event.time // self.length * self.length
    end = start + self.length + self.lateness
    if end > watermark(task):
        assign(task, machine_at(task, event.key, start, end))


@compiled
def sliding(self, task, event):
    """Windows that begin at a multiple of the slide and hold the event, the earliest first; none begins before 0."""
    last = event.time // self.slide * self.slide
    start = last - (self.length - 1 - (event.time - last)) // self.slide * self.slide
    while start <= last:
        end = start + self.length + self.lateness
        if start >= 0 and end > watermark(task):
            assign(task, machine_at(task, event.key, start, end))
        start += self.slide


class TumblingIncremental(NamedTuple):
    length: int
    lateness: int = 0

    def assign_state_machines(self, task, event):
        tumbling(self, task, event)

    def run(self, task, event, machine):
        get(task, machine)
        put(task, machine, event.size)

    def terminate(self, task, machine):
        get(task, machine)
        delete(task, machine)


class TumblingHolistic(NamedTuple):
    length: int
    lateness: int = 0

    def assign_state_machines(self, task, event):
        tumbling(self, task, event)

    def run(self, task, event, machine):
        merge(task, machine, event.size)

    def terminate(self, task, machine):
        get(task, machine)
        delete(task, machine)


class SlidingIncremental(NamedTuple):
    length: int
    slide: int
    lateness: int = 0

    def assign_state_machines(self, task, event):
        sliding(self, task, event)

    def run(self, task, event, machine):
        get(task, machine)
        put(task, machine, event.size)

    def terminate(self, task, machine):
        get(task, machine)
        delete(task, machine)


class SlidingHolistic(NamedTuple):
    length: int
    slide: int
    lateness: int = 0

    def assign_state_machines(self, task, event):
        sliding(self, task, event)

    def run(self, task, event, machine):
        merge(task, machine, event.size)

    def terminate(self, task, machine):
        get(task, machine)
        delete(task, machine)


class TumblingJoin(NamedTuple):
    length: int
    lateness: int = 0

    def assign_state_machines(self, task, event):
        tumbling(self, task, event)

    def run(self, task, event, machine):
        merge(task, machine, event.size)

    def terminate(self, task, machine):
        get(task, machine)
        delete(task, machine)


class SlidingJoin(NamedTuple):
    length: int
    slide: int
    lateness: int = 0

    def assign_state_machines(self, task, event):
        sliding(self, task, event)

    def run(self, task, event, machine):
        merge(task, machine, event.size)

    def terminate(self, task, machine):
        get(task, machine)
        delete(task, machine)
