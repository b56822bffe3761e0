"""Tumbling and sliding windows: a machine for each event key and window. Compiled by numba.

A tumbling window is a sliding one whose slide is its length. Incremental: the state is a value that is read and
written. Holistic: the state is a list that is added to, and read when the window closes; a window join is the same with
the events of both inputs in one list. An event adds nothing to a window whose end and lateness the watermark has
reached.
"""

from __future__ import annotations

from typing import NamedTuple

from tailrace.lab.gadget.operators.machines import assign, compiled, delete, get, machine_at, merge, put, watermark


@compiled
def assign_windows(self, task, event):
    """Windows that begin at a multiple of the slide and hold the event, the earliest first; none begins before 0."""
    last = event.time // self.slide * self.slide
    start = last - (self.length - 1 - (event.time - last)) // self.slide * self.slide
    while start <= last:
        end = start + self.length + self.lateness
        if start >= 0 and end > watermark(task):
            assign(task, machine_at(task, event.key, start, end))
        start += self.slide


class Windows(NamedTuple):
    length: int
    slide: int
    holistic: bool
    lateness: int = 0

    def assign_state_machines(self, task, event):
        assign_windows(self, task, event)

    def run(self, task, event, machine):
        if self.holistic:
            merge(task, machine, event.size)
        else:
            get(task, machine)
            put(task, machine, event.size)

    def terminate(self, task, machine):
        get(task, machine)
        delete(task, machine)
