"""Loops of `combine`: one pass over the accesses of a micro-batch, then over its keys and gets.

``slots`` is an open-addressing table, longer than there are accesses, of numbers of keys; it is empty (-1) before and
after. Threads: free functions; nothing but what is named as output is written to.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
# Compiled by numba, which infers every type from the arrays it is given.

from __future__ import annotations

import numpy as np

from tailrace.testing.bench.compiled import copy_block, inlined, kernel

GET, PUT, MERGE, DELETE = 0, 1, 2, 3
"""`trace.Operation`, as kernels see it."""
NOTHING = 0
"""Of a key that is only read; else PUT, MERGE or DELETE."""
NAME, LAST, WRITTEN, WRITE, READ = 0, 1, 2, 3, 4
"""Columns of ``keys``, see `combine.Plan`."""
KEY, SEEN, SIZE, BASED = 0, 1, 2, 3
"""Columns of ``asked``."""


@inlined
def hashed(key_words, name):
    """Of the bytes of a key."""
    x = np.uint64(0)
    for w in range(key_words.shape[1]):
        x = (x ^ np.uint64(key_words[name, w])) * np.uint64(0x9E3779B97F4A7C15)
        x ^= x >> np.uint64(32)
    return x


@inlined
def same(key_words, a, b):
    """Whether two keys have the same bytes: numbers of keys are the harness's, no store could go by them."""
    equal = True
    for w in range(key_words.shape[1]):
        equal &= key_words[a, w] == key_words[b, w]
    return equal


@kernel
def combine(operations, names, key_words, sizes, slots, keys, places, links, asked):
    """Returns how many keys and gets there are, and how many bytes the gets find in the batch itself."""
    mask = slots.shape[0] - 1
    count, gets, found = np.int64(0), np.int64(0), np.int64(0)
    # Operators go to and fro between two keys, such as a session and the list of sessions: those need no look-up.
    before, number = np.int64(-1), np.int64(-1)
    other, other_number = np.int64(-1), np.int64(-1)
    for i in range(operations.shape[0]):
        name = names[i]
        if before >= 0 and same(key_words, name, before):
            pass
        elif other >= 0 and same(key_words, name, other):
            before, other = other, before
            number, other_number = other_number, number
        else:
            other, other_number = before, number
            before = name
            at = np.int64(hashed(key_words, name)) & mask
            number = np.int64(slots[at])
            while number >= 0 and not same(key_words, keys[number, NAME], name):
                at = (at + 1) & mask
                number = np.int64(slots[at])
            if number < 0:
                number = count
                count += 1
                slots[at] = number
                places[number] = at
                keys[number, NAME] = name
                keys[number, LAST] = -1
                keys[number, WRITTEN] = 0
                keys[number, WRITE] = NOTHING
                keys[number, READ] = 0
        operation = operations[i]
        write = keys[number, WRITE]
        if operation == GET:
            based = write in (NOTHING, MERGE)
            if based:
                keys[number, READ] += 1
            asked[gets, KEY] = number
            asked[gets, SEEN] = keys[number, LAST]
            asked[gets, SIZE] = keys[number, WRITTEN]
            asked[gets, BASED] = based
            found += keys[number, WRITTEN]
            gets += 1
        elif operation == PUT:
            links[i] = -1
            keys[number, LAST] = i
            keys[number, WRITTEN] = sizes[i]
            keys[number, WRITE] = PUT
        elif operation == MERGE:
            links[i] = keys[number, LAST]
            keys[number, LAST] = i
            keys[number, WRITTEN] += sizes[i]
            if write == NOTHING:
                keys[number, WRITE] = MERGE
            elif write == DELETE:
                keys[number, WRITE] = PUT
        else:
            keys[number, LAST] = -1
            keys[number, WRITTEN] = 0
            keys[number, WRITE] = DELETE
    for number in range(count):
        slots[places[number]] = -1
    return count, gets, found


@inlined
def put_chain(last, end, links, sizes, starts, data, out):
    """Write the bytes of an access, and of those linked before it, so that they end at ``end``."""
    while last >= 0:
        end -= sizes[last]
        copy_block(data, starts[last], out, end, sizes[last])
        last = np.int64(links[last])


@kernel
def write_values(numbers, keys, links, sizes, starts, data, room, out):
    """``room``: bytes that are left free before each value."""
    end = np.int64(0)
    for n in range(numbers.shape[0]):
        number = numbers[n]
        end += room + keys[number, WRITTEN]
        put_chain(keys[number, LAST], end, links, sizes, starts, data, out)


@kernel
def answer(asked, held, held_starts, held_data, links, sizes, starts, data, out_sizes, out):
    """Write the size of each get's answer, -1 for none, and the answers. ``held``: by key, -1 for none."""
    end = np.int64(0)
    for g in range(asked.shape[0]):
        seen = np.int64(asked[g, SEEN])
        size = np.int64(asked[g, SIZE]) if seen >= 0 else np.int64(-1)
        if asked[g, BASED]:
            number = asked[g, KEY]
            before = held[number]
            if before >= 0:
                copy_block(held_data, held_starts[number], out, end, before)
                size = max(size, 0) + before
        out_sizes[g] = size
        end += max(size, 0)
        put_chain(seen, end, links, sizes, starts, data, out)


@kernel
def whole_values(numbers, keys, held, held_starts, held_data, links, sizes, starts, data, out_sizes, out):
    """Write what these keys hold after the batch: what the store held, unless it was put over, and what was written."""
    end = 0
    for n in range(numbers.shape[0]):
        number = numbers[n]
        if keys[number, WRITE] != PUT and held[number] > 0:
            copy_block(held_data, held_starts[number], out, end, held[number])
            end += held[number]
        end += keys[number, WRITTEN]
        out_sizes[n] = keys[number, WRITTEN]
        if keys[number, WRITE] != PUT:
            out_sizes[n] += max(held[number], 0)
        put_chain(keys[number, LAST], end, links, sizes, starts, data, out)


@kernel
def match(names, wanted, slots, out):
    """For each of ``wanted`` its place among ``names`` (all different), or -1. ``slots`` as for `combine`."""
    mask = slots.shape[0] - 1
    for i in range(names.shape[0]):
        at = np.int64((np.uint64(names[i]) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(32)) & mask
        while slots[at] >= 0:
            at = (at + 1) & mask
        slots[at] = i
    for w in range(wanted.shape[0]):
        at = np.int64((np.uint64(wanted[w]) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(32)) & mask
        while slots[at] >= 0 and names[slots[at]] != wanted[w]:
            at = (at + 1) & mask
        out[w] = slots[at]
