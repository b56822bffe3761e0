"""Session windows: a machine for each session, and one for each event key that knows its sessions. Compiled by numba.

An event at ``t`` is a session from ``t`` to ``t + gap``; sessions that touch become one, which keeps the state of the
earliest. The list of an event key's sessions is state, too ("metadata"): it is read for every event, and written anew,
one merge for each session, when a session's bounds change, and twice when one ends. An event too late for a session of
its own counts if it touches one that is still open; if not, it costs a look at the metadata. All as Flink does it,
which the published numbers of deletes confirm.
"""

from __future__ import annotations

from typing import NamedTuple

from tailrace.lab.gadget.operators.machines import (
    NEVER,
    NOTHING,
    assign,
    compiled,
    delete,
    drop,
    get,
    last_until,
    machine_at,
    merge,
    new_machine,
    put,
    watermark,
)

METADATA = -NEVER
"""Its slot: it is the first of the list."""
METADATA_BYTES = 20
"""Of one session in the metadata."""


@compiled
def write_metadata(task, metadata):
    delete(task, metadata)
    one = task.after[metadata]
    while one != NOTHING:
        merge(task, metadata, METADATA_BYTES)
        one = task.after[one]


@compiled
def add_event(self, task, event, metadata):
    """The event goes to its session, which first absorbs those after it that it now touches."""
    get(task, metadata)
    own, absorbed, changed = find_session(self, task, event, metadata)
    if own == NOTHING:
        return
    for left in range(absorbed, 0, -1):
        other = task.after[own]
        get(task, other)
        delete(task, other)
        if self.holistic:
            merge(task, own, task.size[other])
            task.size[own] += task.size[other]
        elif left == 1:
            update(task, own, event)
        drop(task, other)
    if self.holistic:
        merge(task, own, event.size)
        task.size[own] += event.size
    else:
        update(task, own, event)
    if changed:
        write_metadata(task, metadata)


@compiled
def update(task, own, event):
    get(task, own)
    put(task, own, event.size)


@compiled
def find_session(self, task, event, metadata):
    """The session that gets the event, with its new bounds (NOTHING: too late); how many of those after it become part
    of it; whether the metadata change."""
    start, end = event.time, event.time + self.gap
    newest = last_until(task, event.key, end)
    if newest == metadata or task.end[newest] - self.lateness < start:
        if end + self.lateness <= watermark(task):
            return NOTHING, 0, False
        return new_machine(task, event.key, newest, start, end + self.lateness), 0, True
    end = max(end, task.end[newest] - self.lateness)
    own, absorbed = newest, 0
    while task.before[own] != metadata and task.end[task.before[own]] - self.lateness >= start:
        own = task.before[own]
        absorbed += 1
    changed = absorbed > 0 or start < task.slot[own] or end + self.lateness > task.end[own]
    task.slot[own] = min(start, task.slot[own])
    task.end[own] = max(end + self.lateness, task.end[own])
    return own, absorbed, changed


@compiled
def close_session(task, own):
    metadata = task.first[task.list_of[own]]
    get(task, metadata)
    get(task, own)
    delete(task, own)
    drop(task, own)
    write_metadata(task, metadata)  # when the session is retired
    write_metadata(task, metadata)  # when its timer is done


class Sessions(NamedTuple):
    gap: int
    holistic: bool
    lateness: int = 0

    def assign_state_machines(self, task, event):
        assign(task, machine_at(task, event.key, METADATA, NEVER))

    def run(self, task, event, metadata):
        add_event(self, task, event, metadata)

    def terminate(self, task, own):
        close_session(task, own)
