"""Kernels of Redis' protocol: requests written for whole columns of keys, replies taken apart for whole batches.

Threads: kernels write only to the arrays that they are given for it.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
# Compiled by numba, which infers every type from the arrays it is given.

from __future__ import annotations

import numpy as np

from tailrace.env.kernels.compile import inlined, kernel

AT, LEFT, FOUND, ERROR_AT = 0, 1, 2, 3
NIL = -1
_CR, _LF = 13, 10
_MINUS, _PLUS, _COLON, _DOLLAR, _STAR = 45, 43, 58, 36, 42


@inlined
def _put(source, out, end):
    for b in range(source.shape[0]):
        out[end + b] = source[b]
    return end + source.shape[0]


@kernel
def write_keys(offsets, data, prefix, head, tail, out):
    """For each key: ``head``, the key behind ``prefix`` as a bulk string, ``tail``. Returns the bytes written."""
    end = np.int64(0)
    for i in range(offsets.shape[0] - 1):
        end = _put(head, out, end)
        length = prefix.shape[0] + offsets[i + 1] - offsets[i]
        out[end] = _DOLLAR
        end += 1
        digits, rest = np.int64(1), length // 10
        while rest > 0:
            digits += 1
            rest //= 10
        rest = length
        for d in range(digits - 1, -1, -1):
            out[end + d] = 48 + rest % 10
            rest //= 10
        end += digits
        out[end], out[end + 1] = _CR, _LF
        end = _put(prefix, out, end + 2)
        for b in range(offsets[i], offsets[i + 1]):
            out[end] = data[b]
            end += 1
        out[end], out[end + 1] = _CR, _LF
        end = _put(tail, out, end + 2)
    return end


@kernel
def read_replies(buffer, end, state, starts, lengths):
    """Go on taking replies apart: up to ``buffer[:end]``, or until none is left to come.

    ``state``: how far it has come, replies (and items of arrays) left to come, strings found, and where an error reply
    begins, or -1. ``starts``, ``lengths``: of each string in order, nil with length -1; of an integer or a status, its
    text. Returns whether all have come.
    """
    while state[LEFT] > 0:
        at = state[AT]
        line = at
        while line + 1 < end and not (buffer[line] == _CR and buffer[line + 1] == _LF):
            line += 1
        if line + 1 >= end:
            return False
        kind = buffer[at]
        if state[FOUND] >= starts.shape[0] and kind != _MINUS and kind != _STAR:
            state[FOUND] += 1  # more than was asked for: who called sees that
            return True
        if kind == _MINUS:
            if state[ERROR_AT] < 0:
                state[ERROR_AT] = at
            state[AT] = line + 2
            state[LEFT] -= 1
            continue
        if kind in (_PLUS, _COLON):
            starts[state[FOUND]] = at + 1
            lengths[state[FOUND]] = line - at - 1
            state[FOUND] += 1
            state[AT] = line + 2
            state[LEFT] -= 1
            continue
        number, negative = np.int64(0), False
        for b in range(at + 1, line):
            if buffer[b] == _MINUS:
                negative = True
            else:
                number = number * 10 + (buffer[b] - 48)
        if negative:
            number = -number
        if kind == _STAR:
            state[AT] = line + 2
            state[LEFT] += number - 1 if number > 0 else -1
            continue
        if number < 0:
            starts[state[FOUND]] = 0
            lengths[state[FOUND]] = NIL
            state[AT] = line + 2
        else:
            if line + 2 + number + 2 > end:
                return False
            starts[state[FOUND]] = line + 2
            lengths[state[FOUND]] = number
            state[AT] = line + 2 + number + 2
        state[FOUND] += 1
        state[LEFT] -= 1
    return True


@kernel
def gather(buffer, starts, lengths, first, step, offsets, out):
    """Strings ``first``, ``first + step``, ... one after the other; ``offsets`` are those of the result."""
    end = np.int64(0)
    for i in range(offsets.shape[0] - 1):
        n = first + i * step
        for b in range(lengths[n]):
            out[end + b] = buffer[starts[n] + b]
        end += max(lengths[n], 0)
        offsets[i + 1] = end
