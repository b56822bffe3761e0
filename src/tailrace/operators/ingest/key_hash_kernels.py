"""XXH64 as Spark's ``xxhash64`` applies it: a column's hash is the seed of the next, a null leaves the seed as it is.

Integers of up to 32 bits are hashed as four bytes, 64 bits as eight; strings by their bytes; decimals above 18 digits
by the fewest bytes of their unscaled value in two's complement, most significant first, as Java writes them.
"""

from __future__ import annotations

import numpy as np

from tailrace.env.kernels.compile import inlined, kernel
from tailrace.state.layout import HASH, VALID
from tailrace.state.rows.value_kernels import bytes_length

H_INT, H_LONG, H_BYTES, H_INT128 = 0, 1, 2, 3

_P1 = np.uint64(0x9E3779B185EBCA87)
_P2 = np.uint64(0xC2B2AE3D27D4EB4F)
_P3 = np.uint64(0x165667B19E3779F9)
_P4 = np.uint64(0x85EBCA77C2B2AE63)
_P5 = np.uint64(0x27D4EB2F165667C5)
_SEED = np.uint64(42)


@inlined
def _rotate(x, bits):
    return (x << np.uint64(bits)) | (x >> np.uint64(64 - bits))


@inlined
def _finish(h):
    h = (h ^ (h >> np.uint64(33))) * _P2
    h = (h ^ (h >> np.uint64(29))) * _P3
    return h ^ (h >> np.uint64(32))


@inlined
def _mix_four(h, value):
    return _rotate(h ^ (value * _P1), 23) * _P2 + _P3


@inlined
def _mix_eight(h, value):
    return _rotate(h ^ (_rotate(value * _P2, 31) * _P1), 27) * _P1 + _P4


@inlined
def _round(v, value):
    return _rotate(v + value * _P2, 31) * _P1


@inlined
def _little(data, at, count):
    value = np.uint64(0)
    for b in range(count):
        value |= np.uint64(data[at + b]) << np.uint64(8 * b)
    return value


@inlined
def _merge_round(h, v):
    return (h ^ (_rotate(v * _P2, 31) * _P1)) * _P1 + _P4


@inlined
def _hash_bytes(data, at, length, seed):
    end = at + length
    if length >= 32:
        v1, v2, v3, v4 = seed + _P1 + _P2, seed + _P2, seed, seed - _P1
        while at <= end - 32:
            v1 = _round(v1, _little(data, at, 8))
            v2 = _round(v2, _little(data, at + 8, 8))
            v3 = _round(v3, _little(data, at + 16, 8))
            v4 = _round(v4, _little(data, at + 24, 8))
            at += 32
        h = _rotate(v1, 1) + _rotate(v2, 7) + _rotate(v3, 12) + _rotate(v4, 18)
        h = _merge_round(_merge_round(_merge_round(_merge_round(h, v1), v2), v3), v4)
    else:
        h = seed + _P5
    h += np.uint64(length)
    while at <= end - 8:
        h = _mix_eight(h, _little(data, at, 8))
        at += 8
    if at <= end - 4:
        h = _mix_four(h, _little(data, at, 4))
        at += 4
    while at < end:
        h = _rotate(h ^ (np.uint64(data[at]) * _P5), 11) * _P1
        at += 1
    return _finish(h)


@inlined
def _byte_of(low, high, place):
    """Byte ``place`` of a 128-bit number, the least significant first."""
    word = low if place < 8 else high
    return (np.uint64(word) >> np.uint64(8 * (place & 7))) & np.uint64(0xFF)


@inlined
def _bytes_down(low, high, top, width):
    """A number of ``width`` bytes of a 128-bit number, from byte ``top`` down, which becomes the least significant."""
    value = np.uint64(0)
    for b in range(width):
        value |= _byte_of(low, high, top - b) << np.uint64(8 * b)
    return value


@inlined
def _hash_int128(low, high, seed):
    """At most 16 bytes: the short form of ``_hash_bytes``, over bytes that lie in two words."""
    sign = np.uint64(0xFF) if high < 0 else np.uint64(0)
    count = 16
    while count > 1:
        next_top = _byte_of(low, high, count - 2) >> np.uint64(7)
        if _byte_of(low, high, count - 1) != sign or next_top != sign & np.uint64(1):
            break
        count -= 1
    h = seed + _P5 + np.uint64(count)
    at = 0
    while at + 8 <= count:
        h = _mix_eight(h, _bytes_down(low, high, count - 1 - at, 8))
        at += 8
    if at + 4 <= count:
        h = _mix_four(h, _bytes_down(low, high, count - 1 - at, 4))
        at += 4
    while at < count:
        h = _rotate(h ^ (_byte_of(low, high, count - 1 - at) * _P5), 11) * _P1
        at += 1
    return _finish(h)


@kernel
def hash_rows(words, heap, program):
    keys = program.shape[0]
    for i in range(words.shape[0]):
        h = _SEED
        for k in range(keys):
            if not (words[i, VALID] >> program[k, 1]) & 1:
                continue
            word, how = program[k, 0], program[k, 2]
            value = words[i, word]
            if how == H_INT:
                h = _finish(_mix_four(h + _P5 + np.uint64(4), np.uint64(value) & np.uint64(0xFFFFFFFF)))
            elif how == H_LONG:
                h = _finish(_mix_eight(h + _P5 + np.uint64(8), np.uint64(value)))
            elif how == H_BYTES:
                h = _hash_bytes(heap, value + 4, bytes_length(heap, value), h)
            else:
                h = _hash_int128(value, words[i, word + 1], h)
        words[i, HASH] = np.int64(h) if keys else 0
