"""Loops of `byte_stores`: rows of a key and a byte string, and back. Free functions over arrays; threads: any number.

Keys are bytes, too: of each, as many words (``keys``: int64[numbers, words], filled up with zeros). A record has them,
its value's size and, where that fits, its bytes in words of its own; else they lie in the heap. A row of an append
store has them in the heap. In the heap a value comes after its length, which is four bytes.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
# Compiled by numba, which infers every type from the arrays it is given.

from __future__ import annotations

import numpy as np

from tailrace.state.layout import FIRST_KEY, HASH, PANE, VALID
from tailrace.testing.bench.compiled import copy_block, inlined, kernel

LENGTH_BYTES = 4
NO_PANES = np.empty(0, np.int64)


@inlined
def _name(words, i, number, keys, pane, valid):
    x = np.uint64(0)
    for w in range(keys.shape[1]):
        x = (x ^ np.uint64(keys[number, w])) * np.uint64(0x9E3779B97F4A7C15)
        x ^= x >> np.uint64(32)
        words[i, FIRST_KEY + w] = keys[number, w]
    words[i, HASH] = np.int64(x * np.uint64(0xD6E8FEB86659FD93))
    words[i, PANE] = pane
    words[i, VALID] = valid


@inlined
def _number(words, i, end):
    """The number that a key's bytes are the decimals of."""
    number = np.int64(0)
    for w in range(FIRST_KEY, end):
        word = np.uint64(words[i, w])
        while word:
            number = 10 * number + np.int64(word & np.uint64(255)) - 48
            word >>= np.uint64(8)
    return number


@inlined
def _put_length(size, heap, end):
    for b in range(LENGTH_BYTES):
        heap[end + b] = (size >> (8 * b)) & 255


@inlined
def _length(heap, at):
    return (
        np.int64(heap[at]) | np.int64(heap[at + 1]) << 8 | np.int64(heap[at + 2]) << 16 | np.int64(heap[at + 3]) << 24
    )


@kernel
def name_rows(names, keys, words):
    """Rows that name a key, without a value."""
    valid = (np.int64(1) << keys.shape[1]) - 1
    for i in range(names.shape[0]):
        _name(words, i, names[i], keys, 0, valid)


@kernel
def pack_records(names, keys, sizes, starts, data, words, octets, heap):
    """``octets``: the bytes of ``words``. After the key: the size, words for the value, its place in the heap."""
    width = words.shape[1]
    size_word = FIRST_KEY + keys.shape[1]
    inline_word = size_word + 1
    inline = width - 1 - inline_word
    heap_bit = keys.shape[1] + 1 + inline
    every = (np.int64(1) << heap_bit) - 1  # the key, the size and the words are there
    end = np.int64(0)
    for i in range(names.shape[0]):
        size = sizes[i]
        _name(words, i, names[i], keys, 0, every)
        words[i, size_word] = size
        words[i, width - 1] = 0
        if size <= 8 * inline:
            if size & 7:
                words[i, inline_word + (size >> 3)] = 0
            copy_block(data, starts[i], octets, 8 * (i * width + inline_word), size)
        else:
            words[i, VALID] = every | np.int64(1) << heap_bit
            words[i, width - 1] = end
            _put_length(size, heap, end)
            copy_block(data, starts[i], heap, end + LENGTH_BYTES, size)
            end += LENGTH_BYTES + size


@kernel
def places(words, numbers, key_words, inline_start, sizes, starts):
    """Write for records, numbered by ``numbers``, how long their values are and where they begin.

    Values in words begin where they lie in the bytes of ``words``, after ``inline_start`` bytes of the heap.
    """
    width = words.shape[1]
    inline_word = FIRST_KEY + key_words + 1
    for i in range(words.shape[0]):
        size = words[i, inline_word - 1]
        sizes[numbers[i]] = size
        if size <= 8 * (width - 1 - inline_word):
            starts[numbers[i]] = inline_start + 8 * (i * width + inline_word)
        else:
            starts[numbers[i]] = words[i, width - 1] + LENGTH_BYTES


@kernel
def frame_rows(names, keys, panes, sizes, words, heap):
    """Rows of an append store; the values lie in the heap already, each after room for its length."""
    end = np.int64(0)
    value_word = FIRST_KEY + keys.shape[1]
    every = (np.int64(1) << (keys.shape[1] + 1)) - 1
    for i in range(names.shape[0]):
        _name(words, i, names[i], keys, panes[i] if panes.shape[0] > 0 else 0, every)
        words[i, value_word] = end
        _put_length(sizes[i], heap, end)
        end += LENGTH_BYTES + sizes[i]


@kernel
def join(words, heap, offsets, names, sizes, data):
    """Write the key of each group of rows, how long its values are together, and these; return where they end."""
    end = np.int64(0)
    value_word = words.shape[1] - 1
    for g in range(names.shape[0]):
        first = end
        for i in range(offsets[g], offsets[g + 1]):
            at = words[i, value_word]
            size = _length(heap, at)
            copy_block(heap, at + LENGTH_BYTES, data, end, size)
            end += size
        if offsets[g] < offsets[g + 1]:
            names[g] = _number(words, offsets[g], value_word)
        sizes[g] = end - first
    return end
