"""Loops of `hash_log`: a hash index into a log of records that lies in a ring of memory.

Invariants
- Addresses only grow; a record lies at its address modulo the ring, whole in one page. A record is two words, its key
  and its value: the address of the record before it in its chain (-1: none), and its size (low half; -1: removed) with
  the room that it has (high half). All keys have as many words (``keys.shape[1]``). Records before ``HEAD`` are in the
  file.
- A chain holds the records of all keys with one slot, newest first; of a key only the first record counts.
- What lies after ``MUTABLE`` is changed in place, what lies before it never: a change goes to the end of the log.
- An access that finds no room, or needs a record from the file, has changed nothing when the loop stops.

Threads: free functions; one at a time on one log.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
# Compiled by numba, which infers every type from the arrays it is given.

from __future__ import annotations

import numpy as np

from tailrace.testing.bench.compiled import copy_block, inlined, kernel

GET, PUT, MERGE, DELETE = 0, 1, 2, 3
"""`trace.Operation`, as kernels see it."""
TAIL, HEAD, MUTABLE, PAGE, WHY, ANSWERS, ANSWER_BYTES, LIMIT = 0, 1, 2, 3, 4, 5, 6, 7
"""Places in ``log``: end of the log, first address in memory, bytes before the end that are changed in place, bytes of
a page, why a loop stopped, gets answered, their bytes, first address that memory has no room for."""
DONE, NO_ROOM, IN_FILE, NO_ANSWER_ROOM = 0, 1, 2, 3
BEFORE_KEY = 2
"""Words."""
NONE, FILE = -1, -2


@kernel
def slot_of(key, keys, index):
    x = np.uint64(0)
    for w in range(keys.shape[1]):
        x = (x ^ np.uint64(keys[key, w])) * np.uint64(0x9E3779B97F4A7C15)
        x ^= x >> np.uint64(29)
    return np.int64(x >> np.uint64(20)) & (index.shape[0] - 1)


@inlined
def _is(key, keys, words, at):
    equal = True
    for w in range(keys.shape[1]):
        equal &= words[at + BEFORE_KEY + w] == keys[key, w]
    return equal


@inlined
def find(key, keys, slot, index, words, log):
    """The address of the newest record of the key, NONE, or FILE where only the file can say."""
    mask = words.shape[0] - 1
    address = index[slot]
    while address >= log[HEAD]:
        at = (address >> 3) & mask
        if _is(key, keys, words, at):
            return address
        address = words[at]
    return np.int64(NONE) if address < 0 else np.int64(FILE)


@kernel
def room(size, key_words, log):
    """Where a record of this size would go at the end of the log, or NONE."""
    whole = (8 * (BEFORE_KEY + key_words) + size + 7) & ~7
    at = log[TAIL]
    if (at & (log[PAGE] - 1)) + whole > log[PAGE]:
        at = (at | (log[PAGE] - 1)) + 1
    return np.int64(NONE) if at + whole > log[LIMIT] else at


@kernel
def append(address, key, keys, size, slot, index, words, log):
    """Begin a record there; the caller writes its bytes."""
    at = (address >> 3) & (words.shape[0] - 1)
    words[at] = index[slot]
    rounded = (max(size, 0) + 7) & ~7
    words[at + 1] = (rounded << 32) | (size & 0xFFFFFFFF)
    for w in range(keys.shape[1]):
        words[at + BEFORE_KEY + w] = keys[key, w]
    index[slot] = address
    log[TAIL] = address + 8 * (BEFORE_KEY + keys.shape[1]) + rounded


@kernel
def size_of(word):
    size = word & 0xFFFFFFFF
    return size - 0x100000000 if size & 0x80000000 else size


@inlined
def _step(operation, key, keys, size, start, data, index, words, memory, log, sizes, answers):
    slot = slot_of(key, keys, index)
    address = find(key, keys, slot, index, words, log)
    if address == FILE and operation != PUT:
        return IN_FILE
    mask = words.shape[0] - 1
    at = (address >> 3) & mask
    there = address >= 0
    held = size_of(words[at + 1]) if there else np.int64(-1)
    before_value = BEFORE_KEY + keys.shape[1]
    byte = (at + before_value) << 3
    if operation == GET:
        end = log[ANSWER_BYTES]
        if held > 0:
            if end + held > answers.shape[0]:
                return NO_ANSWER_ROOM
            copy_block(memory, byte, answers, end, held)
            log[ANSWER_BYTES] = end + held
        sizes[log[ANSWERS]] = held
        log[ANSWERS] += 1
        return DONE
    in_place = there and address >= log[TAIL] - log[MUTABLE]
    if operation == PUT:
        if in_place and words[at + 1] >> 32 >= size:
            words[at + 1] = (words[at + 1] >> 32 << 32) | size
            copy_block(data, start, memory, byte, size)
            return DONE
        fresh = room(size, keys.shape[1], log)
        if fresh < 0:
            return NO_ROOM
        append(fresh, key, keys, size, slot, index, words, log)
        copy_block(data, start, memory, (((fresh >> 3) & mask) + before_value) << 3, size)
        return DONE
    if operation == MERGE:
        # A value that grows is copied to the end of the log, as a read-modify-write that does not fit its record is.
        before = max(held, 0)
        fresh = room(before + size, keys.shape[1], log)
        if fresh < 0:
            return NO_ROOM
        append(fresh, key, keys, before + size, slot, index, words, log)
        new_byte = (((fresh >> 3) & mask) + before_value) << 3
        if before > 0:
            copy_block(memory, byte, memory, new_byte, before)
        copy_block(data, start, memory, new_byte + before, size)
        return DONE
    if held < 0:
        return DONE
    if in_place:
        if index[slot] == address and words[at] < 0:
            index[slot] = -1
        else:
            words[at + 1] |= 0xFFFFFFFF
        return DONE
    fresh = room(0, keys.shape[1], log)
    if fresh < 0:
        return NO_ROOM
    append(fresh, key, keys, -1, slot, index, words, log)
    return DONE


@kernel
def run(first, operations, numbers, keys, value_sizes, starts, data, index, words, memory, log, sizes, answers):
    """Accesses from ``first`` on, in order. Returns the first that was not done; ``log[WHY]`` says why.

    ``numbers``: of the key of each access in ``keys``.
    """
    for i in range(first, operations.shape[0]):
        why = _step(
            operations[i], numbers[i], keys, value_sizes[i], starts[i], data, index, words, memory, log, sizes, answers
        )
        if why != DONE:
            log[WHY] = why
            return i
    log[WHY] = DONE
    return operations.shape[0]


@kernel
def one(operation, keys, size, data, index, words, memory, log, sizes, answers):
    """A single access to the only key of ``keys``; why it was not done, or DONE."""
    return _step(operation, 0, keys, size, 0, data, index, words, memory, log, sizes, answers)
