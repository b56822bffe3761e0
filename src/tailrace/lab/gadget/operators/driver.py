"""The driver: takes events and watermarks through an operator's state machines and gathers their requests.

An operator is a named tuple of whole numbers, its parameters, with three methods in the subset of Python that numba
compiles (see `Operator`). `_drive` is compiled once for each operator, with its methods inlined; compiled code of the
operators of this package is kept on disk. One loop serves offline and online use: `pieces` hands out the trace as it
comes. A driver belongs to one thread; compiled code runs without the interpreter lock.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Any, Protocol

import numpy as np

from tailrace.errors import TailraceError
from tailrace.lab.gadget.events.watermarks import Watermarks
from tailrace.lab.gadget.operators.machines import (
    ASSIGNED,
    MARGIN_MACHINES,
    MARGIN_QUEUE,
    NEVER,
    NOTHING,
    NOW,
    QUEUED,
    TOO_MANY,
    WATERMARK,
    Event,
    compiled,
    end_machine,
    few_machines,
    grown,
    new_task,
    next_ending,
    njit,
)
from tailrace.lab.gadget.traces.trace import Events, Trace

PIECE = 1 << 18
"""Accesses of a piece, about."""
LAST = NEVER - 1
"""The watermark after the last event."""
_LARGEST = np.iinfo(np.int32).max


class Operator(Protocol):
    """What an operator has. Its first argument is the named tuple itself, whose fields are whole numbers."""

    assign_state_machines: Callable[..., None]
    """(self, task, event): finds or makes the machines that get the event, and names them with `assign`."""
    run: Callable[..., None]
    """(self, task, event, machine): the requests of one event to one machine."""
    terminate: Callable[..., None]
    """(self, task, machine): the last requests of a machine whose end the watermark has reached; then it is gone."""


def assign_state_machines(operator, task, event):
    """Stands for the operator's own in `_drive`."""


def run(operator, task, event, machine):
    """Stands for the operator's own in `_drive`."""


def terminate(operator, task, machine):
    """Stands for the operator's own in `_drive`."""


def _drive(operator, task, keys, times, sides, kinds, sizes, marks_at, marks, place, stop_at):
    """Goes on from ``place`` until all is done, or the queue or the machines are full.

    ``place``: next event, next watermark, and whether machines are being closed: that only a watermark begins, so that
    one which is born after its end lives until the next.
    """
    numbers = task.numbers
    queue_full = min(len(task.operations) - MARGIN_QUEUE, stop_at)
    while True:
        while True:
            if numbers[QUEUED] >= queue_full or numbers[TOO_MANY]:
                return False
            ending = next_ending(task) if place[2] else NOTHING
            if ending == NOTHING:
                place[2] = 0
                break
            numbers[NOW] = numbers[WATERMARK] if numbers[WATERMARK] < LAST else max(numbers[NOW], task.end[ending])
            terminate(operator, task, ending)
            end_machine(task, ending)
        at = place[0]
        if place[1] < len(marks) and marks_at[place[1]] <= at:
            numbers[WATERMARK] = max(numbers[WATERMARK], marks[place[1]])
            place[1] += 1
            place[2] = 1
            continue
        if at == len(keys):
            return True
        if few_machines(task):
            return False
        event = Event(keys[at], times[at], sides[at], kinds[at], sizes[at])
        numbers[NOW] = times[at]
        numbers[ASSIGNED] = 0
        assign_state_machines(operator, task, event)
        for number in range(numbers[ASSIGNED]):
            run(operator, task, event, task.assigned[number])
        place[0] = at + 1


_METHODS = ("assign_state_machines", "run", "terminate")
_drives: dict[type, Any] = {}


def _compiled_drive(operator: Any) -> Any:
    """`_drive` for an operator. Its name holds a digest of all inlined code: numba looks at its own file only."""
    kind = type(operator)
    if kind in _drives:
        return _drives[kind]
    methods = {}
    for label in _METHODS:
        method = getattr(kind, label, None)
        if method is None:
            raise TailraceError(
                f"the operator {kind.__name__} has no method {label}: docs/explanation/gadget.md has an example"
            )
        methods[label] = compiled(method) if isinstance(method, FunctionType) else method
    if not all(isinstance(value, int) for value in operator):
        raise TailraceError(f"the parameters of the operator {kind.__name__} are not all whole numbers: {operator}")
    own = kind.__module__.startswith(f"{__package__}.")
    name = f"_drive_{kind.__name__}_{_digest() if own else 'user'}"
    function = FunctionType(_drive.__code__, {**globals(), **methods}, name)
    function.__qualname__ = name
    _drives[kind] = njit(cache=own, nogil=True, error_model="numpy", _nrt=False)(function)
    return _drives[kind]


@cache
def _digest() -> str:
    folder = Path(__file__).parent
    paths = sorted(folder.glob("*.py"))
    return hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()[:12]


def _writeable(column: np.ndarray, kind: type) -> np.ndarray:
    """Of one type for the compiler, to which arrays that are read-only or have gaps are others."""
    return np.require(column, kind, ["C", "W"])


def dense(keys: np.ndarray) -> tuple[np.ndarray, int]:
    """Keys numbered from 0 in the order in which they appear first, and how many there are."""
    different, first, place = np.unique(keys, return_index=True, return_inverse=True)
    rank = np.empty(len(different), np.int64)
    rank[np.argsort(first)] = np.arange(len(different))
    return rank[place], len(different)


def pieces(
    operator: Any,
    events: Events,
    watermarks: Watermarks,
    value_sizes: np.ndarray | int = 10,
    limit: int | None = None,
    finish: bool = True,
    piece: int = PIECE,
    keyed: bool = True,
) -> Iterator[Trace]:
    """The trace of an operator over events, piece by piece, made while it is read.

    ``value_sizes``: of each event, or of all. ``limit``: stop after so many accesses. ``finish``: after the last event
    the watermark passes everything, as an engine does when its source ends. ``keyed``: otherwise the operator takes all
    events for those of one key. A piece has the events that it was made from; their keys are numbered by first
    appearance.
    """
    own, distinct = dense(events.keys)
    keys, distinct = (own, distinct) if keyed else (np.zeros_like(own), min(distinct, 1))
    nothing = np.zeros(len(keys), np.uint8)
    marks = watermarks.followed_by(len(keys), LAST) if finish else watermarks
    columns = (
        keys,
        _writeable(events.times, np.int64),
        _writeable(nothing if events.sides is None else events.sides, np.uint8),
        _writeable(nothing if events.kinds is None else events.kinds, np.uint8),
        np.broadcast_to(np.asarray(value_sizes, np.int64), len(keys)).copy(),
        _writeable(marks.at, np.int64),
        _writeable(marks.values, np.int64),
    )
    numbered = Events(own, events.times, events.sides, events.kinds)
    drive = _compiled_drive(operator)
    task = new_task(distinct, piece)
    place = np.zeros(3, np.int64)
    left = NEVER if limit is None else limit
    done = False
    while not done and left > 0:
        first = int(place[0])
        done = drive(operator, task, *columns, place, min(left, piece))
        if task.numbers[TOO_MANY]:
            raise TailraceError(
                f"event {int(place[0])} makes more than {MARGIN_MACHINES:,} state machines or {MARGIN_QUEUE:,} "
                "requests: take fewer windows for an event (a longer slide), or fewer sessions for a key"
            )
        made = min(int(task.numbers[QUEUED]), left)
        left -= made
        if made or place[0] > first:
            yield Trace(
                task.operations[:made].copy(),
                task.keys[:made].copy(),
                np.minimum(task.sizes[:made], _LARGEST).astype(np.int32),
                task.times[:made].copy(),
                numbered.slice(first, int(place[0])),
            )
        task.numbers[QUEUED] = 0
        if few_machines.py_func(task):  # not worth compiling by itself
            task = grown(task)
