"""Operators without windows: aggregation by key, and the joins by time and by the life of a key. Compiled by numba."""

from __future__ import annotations

from typing import NamedTuple

from tailrace.lab.gadget.operators.machines import NEVER, assign, delete, get, machine_at, merge, put, watermark

LEFT, RIGHT = 0, 1
ADD, END = 1, 2
"""Kinds of left events of the continuous join."""


class Aggregation(NamedTuple):
    """One value for each key, for ever."""

    def assign_state_machines(self, task, event):
        assign(task, machine_at(task, event.key, 0, NEVER))

    def run(self, task, event, machine):
        get(task, machine)
        put(task, machine, event.size)

    def terminate(self, task, machine):
        pass


class IntervalJoin(NamedTuple):
    """Left and right events whose times differ (right minus left) by ``lower`` to ``upper``.

    Events of one input, key and bucket of time share a state key, until no event can join them any more. The operator
    also scans the other input's buckets, which the published tables do not count, nor does a trace.
    """

    lower: int
    upper: int
    bucket: int

    def assign_state_machines(self, task, event):
        if event.time >= watermark(task):
            time = event.time // self.bucket * self.bucket
            last = time + self.bucket  # of the bucket's events: one that still comes must find it
            if event.side == LEFT:
                end = last + max(self.upper, 0)
            else:
                end = last - min(self.lower, 0)
            assign(task, machine_at(task, 2 * event.key + event.side, time, end))

    def run(self, task, event, machine):
        get(task, machine)
        put(task, machine, event.size)

    def terminate(self, task, machine):
        delete(task, machine)


class ContinuousJoin(NamedTuple):
    """Right events with what the left input has added for their key, until it ends; those that come before wait.

    A key has two states: what its left input added last (slot 0), and the right events that wait for it (slot 1).
    """

    def assign_state_machines(self, task, event):
        assign(task, machine_at(task, event.key, 0, NEVER))

    def run(self, task, event, left):
        waiting = machine_at(task, event.key, 1, NEVER)
        if event.side == RIGHT:
            get(task, left)
            if task.state[left] != ADD:
                merge(task, waiting, event.size)
        elif event.kind == ADD:
            get(task, waiting)
            delete(task, waiting)
            put(task, left, event.size)
            task.state[left] = ADD
        elif event.kind == END:
            delete(task, left)
            delete(task, waiting)
            task.state[left] = END

    def terminate(self, task, machine):
        pass
