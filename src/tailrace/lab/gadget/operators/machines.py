"""What state machines are made of: their table, the two indices over it and the queue of requests. Compiled by numba.

A machine is a row of the table: one state key, with a slot (where its window begins, or whatever distinguishes the
machines of an event key), the time at which it ends, and some numbers that are its operator's business. An
operator's methods change all of it through the functions below and never directly.

- hIndex: the machines of an event key as a list in order of their slots, searched from its end, where the news is.
  There are two lists for each event key, for operators that keep their two inputs apart.
- vIndex: machines that end, as a heap by (end, order of birth). An end may be put off at any time; the heap learns of
  it when it meets the machine. A machine that was dropped keeps its row until then.
- Queue: requests in order. A machine gets the number of its state key with its first request, so numbers are dense and
  in order of first appearance.

A task belongs to one thread. Arrays never grow while compiled code runs: `driver` leaves a margin for one event.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numba
import numpy as np

njit: Any = numba.njit
compiled: Any = partial(njit, nogil=True, error_model="numpy", forceinline=True, _nrt=False)
"""For what `_drive` is made of. Inlined there, and without counting references: both would cost more than the work."""

GET, PUT, MERGE, DELETE = 0, 1, 2, 3
NEVER = 1 << 62
"""The end of a machine that does not end by itself."""
NOTHING = -1

QUEUED, FREE, HEAP, NEXT_KEY, NEXT_BIRTH, NOW, WATERMARK, ASSIGNED, TOO_MANY, ROWS_USED, ROWS_FREE = range(11)
"""Places in `Task.numbers`. FREE: the first of the list of free rows, which are linked by `after`."""

MARGIN_QUEUE = 1 << 18
MARGIN_MACHINES = 1 << 16
"""Requests and new machines that one event may cause at most."""


class Event(NamedTuple):
    """One event as an operator sees it. Times are microseconds."""

    key: int
    time: int
    side: int
    kind: int
    size: int
    """Bytes of its value."""


class Task(NamedTuple):
    """The state of one operator task. Arrays of one name space have the same length."""

    numbers: Any
    first: Any  # of each list
    last: Any
    list_of: Any  # of each machine, from here on; NOTHING: dropped
    before: Any
    after: Any
    slot: Any
    end: Any
    count: Any  # free for operators, as are the next two; all begin with 0
    size: Any
    state: Any
    birth: Any
    key: Any
    heap_end: Any
    heap_machine: Any
    operations: Any  # the queue, from here on
    keys: Any
    sizes: Any
    times: Any
    assigned: Any


_OF_MACHINES = Task._fields[Task._fields.index("list_of") : Task._fields.index("operations")]


def new_task(event_keys: int, queue: int) -> Task:
    numbers = np.zeros(11, np.int64)
    numbers[FREE] = NOTHING
    numbers[WATERMARK] = -NEVER
    rows = 2 * MARGIN_MACHINES
    lists = max(1, 2 * event_keys)
    columns: dict[str, Any] = {name: np.zeros(rows, np.int64) for name in _OF_MACHINES}
    columns |= {name: np.zeros(queue + MARGIN_QUEUE, np.int64) for name in ("keys", "sizes", "times")}
    return Task(
        numbers=numbers,
        first=np.full(lists, NOTHING, np.int64),
        last=np.full(lists, NOTHING, np.int64),
        operations=np.zeros(queue + MARGIN_QUEUE, np.uint8),
        assigned=np.zeros(MARGIN_MACHINES, np.int64),
        **columns,
    )


def grown(task: Task) -> Task:
    """The same task with twice the room for machines."""
    columns = task._asdict()
    for name in _OF_MACHINES:
        columns[name] = np.concatenate([columns[name], np.zeros(len(columns[name]), np.int64)])
    return Task(**columns)


# Requests.


@compiled
def request(task, operation, machine, size):
    numbers = task.numbers
    at = numbers[QUEUED]
    if at >= len(task.operations):
        numbers[TOO_MANY] = 1
        return
    if task.key[machine] == NOTHING:
        task.key[machine] = numbers[NEXT_KEY]
        numbers[NEXT_KEY] += 1
    task.operations[at] = operation
    task.keys[at] = task.key[machine]
    task.sizes[at] = size
    task.times[at] = numbers[NOW]
    numbers[QUEUED] = at + 1


@compiled
def get(task, machine):
    request(task, GET, machine, 0)


@compiled
def put(task, machine, size):
    request(task, PUT, machine, size)


@compiled
def merge(task, machine, size):
    request(task, MERGE, machine, size)


@compiled
def delete(task, machine):
    request(task, DELETE, machine, 0)


# Machines.


@compiled
def watermark(task):
    return task.numbers[WATERMARK]


@compiled
def assign(task, machine):
    """The event goes to this machine, too; they are run in the order in which they were assigned."""
    numbers = task.numbers
    if numbers[ASSIGNED] < len(task.assigned):
        task.assigned[numbers[ASSIGNED]] = machine
        numbers[ASSIGNED] += 1
    else:
        numbers[TOO_MANY] = 1


@compiled
def last_until(task, in_list, slot):
    """The last machine of a list whose slot is not beyond ``slot``, or NOTHING."""
    machine = task.last[in_list]
    while machine != NOTHING and task.slot[machine] > slot:
        machine = task.before[machine]
    return machine


@compiled
def machine_at(task, in_list, slot, end):
    """The machine of a list at this slot. It is made if it is not there, to end at ``end``."""
    previous = last_until(task, in_list, slot)
    if previous != NOTHING and task.slot[previous] == slot:
        return previous
    return new_machine(task, in_list, previous, slot, end)


@compiled
def new_machine(task, in_list, previous, slot, end):
    """A new machine behind ``previous`` (NOTHING: at the front)."""
    numbers = task.numbers
    machine = numbers[FREE]
    if machine != NOTHING:
        numbers[FREE] = task.after[machine]
        numbers[ROWS_FREE] -= 1
    elif numbers[ROWS_USED] < len(task.slot):
        machine = numbers[ROWS_USED]
        numbers[ROWS_USED] += 1
    else:
        numbers[TOO_MANY] = 1
        return 0
    following = task.first[in_list] if previous == NOTHING else task.after[previous]
    task.list_of[machine] = in_list
    task.before[machine] = previous
    task.after[machine] = following
    _link(task, in_list, previous, machine)
    _link(task, in_list, machine, following)
    task.slot[machine] = slot
    task.end[machine] = end
    task.count[machine] = 0
    task.size[machine] = 0
    task.state[machine] = 0
    task.key[machine] = NOTHING
    task.birth[machine] = numbers[NEXT_BIRTH]
    numbers[NEXT_BIRTH] += 1
    if end != NEVER:
        _push(task, end, machine)
    return machine


@compiled
def _link(task, in_list, one, next_one):
    """Makes two machines neighbours. NOTHING stands for the list's end on that side."""
    if one == NOTHING:
        task.first[in_list] = next_one
    else:
        task.after[one] = next_one
    if next_one == NOTHING:
        task.last[in_list] = one
    else:
        task.before[next_one] = one


@compiled
def drop(task, machine):
    """Takes a machine out of its list: it gets no more events, and does not end any more."""
    in_list = task.list_of[machine]
    _link(task, in_list, task.before[machine], task.after[machine])
    task.list_of[machine] = NOTHING
    if task.end[machine] == NEVER:
        _free(task, machine)  # the vIndex does not know it


@compiled
def few_machines(task):
    """Whether there may not be room for those of one more event."""
    return len(task.slot) - task.numbers[ROWS_USED] + task.numbers[ROWS_FREE] < MARGIN_MACHINES


@compiled
def _free(task, machine):
    task.after[machine] = task.numbers[FREE]
    task.numbers[FREE] = machine
    task.numbers[ROWS_FREE] += 1


@compiled
def next_ending(task):
    """The next machine that the watermark has reached, or NOTHING. It is out of the vIndex, but not yet dropped."""
    numbers = task.numbers
    while numbers[HEAP] > 0 and task.heap_end[0] <= numbers[WATERMARK]:
        known, machine = task.heap_end[0], task.heap_machine[0]
        _pop(task)
        if task.list_of[machine] == NOTHING:
            _free(task, machine)
        elif task.end[machine] > known:
            _push(task, task.end[machine], machine)
        else:
            return machine
    return NOTHING


@compiled
def end_machine(task, machine):
    """After the last request of a machine that came from `next_ending`."""
    if task.list_of[machine] != NOTHING:
        task.end[machine] = NEVER
        drop(task, machine)
    else:
        _free(task, machine)


@compiled
def _earlier(task, end, machine, other):
    return end < task.heap_end[other] or (
        end == task.heap_end[other] and task.birth[machine] < task.birth[task.heap_machine[other]]
    )


@compiled
def _put_at(task, at, end, machine):
    task.heap_end[at] = end
    task.heap_machine[at] = machine


@compiled
def _push(task, end, machine):
    at = task.numbers[HEAP]
    task.numbers[HEAP] += 1
    while at > 0:
        parent = (at - 1) >> 1
        if not _earlier(task, end, machine, parent):
            break
        _put_at(task, at, task.heap_end[parent], task.heap_machine[parent])
        at = parent
    _put_at(task, at, end, machine)


@compiled
def _pop(task):
    task.numbers[HEAP] -= 1
    size = task.numbers[HEAP]
    end, machine = task.heap_end[size], task.heap_machine[size]
    at = 0
    while 2 * at + 1 < size:
        child = 2 * at + 1
        right = child + 1
        if right < size and _earlier(task, task.heap_end[right], task.heap_machine[right], child):
            child = right
        if _earlier(task, end, machine, child):
            break
        _put_at(task, at, task.heap_end[child], task.heap_machine[child])
        at = child
    _put_at(task, at, end, machine)
