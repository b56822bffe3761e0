"""Micro-batches as bytes for `spark_stores`, and answers back.

A request is the operation (1 byte), the length of the key (4, little-endian), the key, the length of the value and the
value. An answer is its length, -1 for none, and its bytes.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
# Compiled by numba, which infers every type from the arrays it is given.

from __future__ import annotations

import numpy as np

from tailrace.lab.gadget.stores.contract import Batch, Values
from tailrace.testing.bench.compiled import copy_block, inlined, kernel


def requests(batch: Batch, names: list[bytes]) -> memoryview:
    keys = np.frombuffer(b"".join(names), np.uint8)
    key_sizes = np.fromiter(map(len, names), np.int64, len(names))
    out = np.empty(9 * len(batch) + len(keys) + int(batch.sizes.sum()), np.uint8)
    _requests(batch.operations, keys, key_sizes, batch.sizes, batch.starts, batch.data, out)
    return out.data


def answers(said: bytes, gets: int) -> Values:
    given = np.frombuffer(said, np.uint8)
    sizes, data = np.empty(gets, np.int64), np.empty(len(given), np.uint8)
    end = _answers(given, sizes, data)
    return Values(sizes, data[:end])


@inlined
def _put(out, end, number):
    for b in range(4):
        out[end + b] = (number >> (8 * b)) & 255


@kernel
def _requests(operations, keys, key_sizes, sizes, starts, data, out):
    end, key = np.int64(0), np.int64(0)
    for i in range(operations.shape[0]):
        out[end] = operations[i]
        _put(out, end + 1, key_sizes[i])
        copy_block(keys, key, out, end + 5, key_sizes[i])
        end += 5 + key_sizes[i]
        key += key_sizes[i]
        _put(out, end, sizes[i])
        copy_block(data, starts[i], out, end + 4, sizes[i])
        end += 4 + sizes[i]


@kernel
def _answers(given, sizes, data):
    at, end = np.int64(0), np.int64(0)
    for g in range(sizes.shape[0]):
        size = np.int64(0)
        for b in range(4):
            size |= np.int64(given[at + b]) << (8 * b)
        at += 4
        if size == 0xFFFFFFFF:
            sizes[g] = -1
            continue
        sizes[g] = size
        copy_block(given, at, data, end, size)
        at += size
        end += size
    return end
