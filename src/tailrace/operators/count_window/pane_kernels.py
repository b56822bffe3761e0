"""Kernels of overlapping windows by count: which partials are merged, in which order, and the merging. Free functions.

A step is (target, source), row numbers of one matrix; a source that is ``~row`` is copied and not merged. What the
records are is said in ``sliding``. Steps first, then merging: so that merging can stop for room and go on.

Threads: kernels write only to the arrays that they are given for it.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
# Compiled by numba, which infers every type from the arrays it is given.

from __future__ import annotations

from tailrace.env.kernels.compile import inlined, kernel
from tailrace.state.hash_table.kernels import ARENA_END, merge_record
from tailrace.state.rows.value_kernels import bytes_needed

# Columns of ``places``: rows of the matrix for each key. RING: panes lie at SLOTS by their slot; else those before
# BORDER at their number + OLD, the others at their number + NEW.
HEAD, FORMER, WINDOWS, RING, SLOTS, BORDER, OLD, NEW = range(8)
PLACES = 8


@inlined
def _slot(places, key, number, panes):
    if places[key, RING]:
        return places[key, SLOTS] + (number % panes - number // panes) % panes
    return number + (places[key, NEW] if number >= places[key, BORDER] else places[key, OLD])


@inlined
def _put(steps, at, target, source):
    steps[at, 0], steps[at, 1] = target, source
    return at + 1


@kernel
def plan_steps(before, offsets, first, size, slide, unfinished, places, steps):
    """The steps for rows ``offsets[k]`` to ``offsets[k + 1]`` of each key; return how many there are.

    ``before``: how many rows of each key came in earlier epochs. ``first``: the number of the first window that was not
    full then, whose row is at WINDOWS. ``unfinished``: windows that are still not full are wanted too.
    """
    panes = size // slide
    block, rest = panes * slide, size - panes * slide
    at = 0
    for key in range(before.shape[0]):
        count = before[key]
        head, former = places[key, HEAD], places[key, FORMER]
        shift = places[key, WINDOWS] - first[key]
        for row in range(offsets[key], offsets[key + 1]):
            inside = count % block
            at = _put(steps, at, head, row if inside else ~row)
            if inside < rest and count >= block:
                at = _put(steps, at, former, row)
            if inside >= slide:
                at = _put(steps, at, _slot(places, key, count // slide, panes), row if count % slide else ~row)
            count += 1
            if count >= size and (count - size) % slide == 0:
                number = (count - size) // slide
                if number % panes:
                    at = _put(steps, at, shift + number, ~_slot(places, key, number, panes))
                    at = _put(steps, at, shift + number, head)
                else:
                    at = _put(steps, at, shift + number, ~(former if rest else head))
            if count % block == 0:
                if rest:
                    at = _put(steps, at, former, ~head)
                begin = count // slide - panes
                for number in range(begin + panes - 2, begin, -1):
                    older, newer = _slot(places, key, number, panes), _slot(places, key, number + 1, panes)
                    at = _put(steps, at, older, newer)
        if not unfinished:
            continue
        begin, end = count // block * panes, (count - 1) // slide + 1
        full = max(0, (count - size) // slide + 1)
        for number in range(end - 1, full - 1, -1):
            window = shift + number
            if number == begin:
                at = _put(steps, at, window, ~head)
            elif number % panes == 0:
                at = _put(steps, at, window, ~former)
            else:
                at = _put(steps, at, window, ~_slot(places, key, number, panes))
                if number > begin and number + 1 < end:
                    at = _put(steps, at, window, window + 1)
                elif number < begin and count % block:
                    at = _put(steps, at, window, head)
    return at


@kernel
def merge_steps(steps, at, end, words, heap, program, bytes_words, counters):
    """Do steps from ``at`` on; return the first that is not done: ``end``, or one that the heap has no room for.

    Strings that a merge takes over go to ``counters[ARENA_END]`` of the heap. -1: a sum overflowed, and
    ``counters[STATUS_AT]`` says which.
    """
    for step in range(at, end):
        target, source = steps[step, 0], steps[step, 1]
        if source < 0:
            for word in range(words.shape[1]):
                words[target, word] = words[~source, word]
            continue
        if counters[ARENA_END] + bytes_needed(words, source, heap, bytes_words) > heap.shape[0]:
            return step
        if not merge_record(words, target, heap, words, source, heap, program, counters):
            return -1
    return end
