"""How a state record lies in 64-bit words.

A record, and a partial that is merged into one, is one row of an ``int64`` matrix:

    word 0      hash of the key columns (computed by Spark's ``xxhash64``)
    word 1      pane: start of the pane in microseconds, 0 without windows
    word 2      valid bits: keys from bit 0 on, then accumulators (see ``AccumulatorWords``)
    then        the key columns, then the accumulators, each one or more words

Row-major, so that finding and merging a key touches one or two cache lines however many columns it has. Byte strings
lie outside, length-prefixed, in the heap of a frame or the arena of a table; their word is the position there. The word
of a null key is 0, so that keys compare word by word.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

import numpy as np

from tailrace.types import DataType, Field, Kind

HASH, PANE, VALID, FIRST_KEY = 0, 1, 2, 3
MAX_BITS = 62


class Merge(StrEnum):
    """How two partial values of one accumulator become one. Written into checkpoints: never rename one."""

    ADD = "add"  # integers wrap around or raise (ANSI); doubles add; decimals are bounded at 38 digits
    MIN = "min"
    MAX = "max"
    MOMENTS = "moments"  # count, mean, sum of squared differences from the mean
    FIRST = "first"  # the value with the smallest (event time, value); a null value sorts first
    LAST = "last"  # the value with the largest (event time, value)
    BATCH = "batch"  # several values that one function of whole columns merges together (`BatchMerge`); null is a value
    ROW = "row"  # a raw value, never merged: records of append stores


# Opcodes of the merge kernel.
ADD_INT, ADD_INT_CHECKED, ADD_FLOAT, ADD_INT128 = 0, 1, 2, 3
MIN_MAX, MOMENTS, FIRST_LAST = 4, 5, 6
TAKE = 7  # the partial's value takes the place of the record's: of ROW never met, of BATCH merged before
# Kinds as the kernels see them.
K_INT64, K_FLOAT64, K_INT128, K_BYTES = 0, 1, 2, 3
_KERNEL_KIND = {Kind.INT64: K_INT64, Kind.FLOAT64: K_FLOAT64, Kind.INT128: K_INT128, Kind.BYTES: K_BYTES}
# Columns of the program matrix. SIGN is -1 for min and first, 1 for max, last, and sums that may not overflow.
OP, WORD, BIT, BIT2, VALUE_KIND, SIGN = 0, 1, 2, 3, 4, 5


def words_of(kind: Kind) -> int:
    return 2 if kind is Kind.INT128 else 1


def bits_of(merge: Merge, type_: DataType) -> int:
    """Valid bits that an accumulator takes: some know a null value, a wide decimal sum an overflow."""
    knows_null = merge in (Merge.FIRST, Merge.LAST, Merge.BATCH)
    return 2 if knows_null or (merge is Merge.ADD and type_.kind is Kind.INT128) else 1


@dataclass(frozen=True)
class KeyWords:
    type: DataType
    kind: Kind
    word: int
    bit: int


@dataclass(frozen=True)
class AccumulatorWords:
    """Where an accumulator lies.

    ``bit`` is set once it holds anything. ``bit2`` (-1 where unused): of FIRST, LAST and BATCH, the value is not null;
    of a decimal sum, it has overflowed. FIRST and LAST keep the event time in ``word`` and the value behind it; MOMENTS
    keeps count, mean and squared differences as three doubles.
    """

    merge: Merge
    type: DataType
    kind: Kind
    word: int
    bit: int
    bit2: int

    @property
    def value_word(self) -> int:
        return self.word + 1 if self.merge in (Merge.FIRST, Merge.LAST) else self.word


@dataclass(frozen=True)
class BatchMerge:
    """Accumulators ``first`` to ``end`` of a record, which one function merges for many records at once.

    ``merge(arrays, offsets)``: an Arrow array for each of them, with the values of several partials of the same key one
    after the other, oldest first; partials ``offsets[g]`` to ``offsets[g + 1]`` become one. It returns as many arrays,
    one value for each run. It may be called from several threads.
    """

    first: int
    end: int
    merge: Callable[[Sequence[Any], np.ndarray], Sequence[Any]]


@dataclass(frozen=True)
class RecordLayout:
    """Positions of every key and accumulator, and the same as arrays for the kernels."""

    keys: tuple[KeyWords, ...]
    accumulators: tuple[AccumulatorWords, ...]
    words: int
    program: np.ndarray = field(compare=False)  # int64[accumulators, 6]
    bytes_words: np.ndarray = field(compare=False)  # int64[b, 2]: word and the bit that says it is there
    key_words: np.ndarray = field(compare=False)  # int64[k, 2]: word, and for a byte string its valid bit, else -1
    key_mask: int
    batch_merges: tuple[BatchMerge, ...] = field(default=(), compare=False)

    @property
    def has_bytes(self) -> bool:
        return len(self.bytes_words) > 0

    @property
    def of_keys(self) -> RecordLayout:
        """Of the same keys, without accumulators: they come first, so their words and bits are the same."""
        words = self.accumulators[0].word if self.accumulators else self.words
        strings = self.bytes_words[self.bytes_words[:, 0] < words]
        return replace(
            self, accumulators=(), words=words, program=self.program[:0], bytes_words=strings, batch_merges=()
        )


def record_layout(keys: Sequence[Field], accumulators: Sequence[tuple[Merge, DataType]], ansi: bool) -> RecordLayout:
    """Lay out a record for these keys and accumulators."""
    word, bit = FIRST_KEY, 0
    key_places: list[KeyWords] = []
    for key in keys:
        kind = _kind(key.type)
        key_places.append(KeyWords(key.type, kind, word, bit))
        word += words_of(kind)
        bit += 1
    places: list[AccumulatorWords] = []
    program = np.zeros((len(accumulators), 6), np.int64)
    for number, (merge, type_) in enumerate(accumulators):
        kind = _kind(type_)
        timed = merge in (Merge.FIRST, Merge.LAST)
        bits = bits_of(merge, type_)
        place = AccumulatorWords(merge, type_, kind, word, bit, bit + 1 if bits == 2 else -1)
        places.append(place)
        sign = 1 if merge in (Merge.MAX, Merge.LAST) or (merge is Merge.ADD and ansi) else -1
        program[number] = (_opcode(merge, type_, kind, ansi), word, bit, place.bit2, _KERNEL_KIND[kind], sign)
        bit += bits
        word += 3 if merge is Merge.MOMENTS else words_of(kind) + timed
    if bit > MAX_BITS:
        raise ValueError(f"a record has {bit} valid bits, at most {MAX_BITS} fit")
    byte_places = [(k.word, k.bit) for k in key_places if k.kind is Kind.BYTES]
    byte_places += [(a.value_word, a.bit2 if a.bit2 >= 0 else a.bit) for a in places if a.kind is Kind.BYTES]
    key_words = [
        (k.word + i, k.bit if k.kind is Kind.BYTES else -1) for k in key_places for i in range(words_of(k.kind))
    ]
    return RecordLayout(
        keys=tuple(key_places),
        accumulators=tuple(places),
        words=word,
        program=program,
        bytes_words=np.array(byte_places, np.int64).reshape(-1, 2),
        key_words=np.array(key_words, np.int64).reshape(-1, 2),
        key_mask=(1 << len(key_places)) - 1,
    )


def _kind(type_: DataType) -> Kind:
    kind = type_.kind
    if kind is None:
        raise ValueError(f"no record can hold a value of type {type_}")
    return kind


def _opcode(merge: Merge, type_: DataType, kind: Kind, ansi: bool) -> int:
    if merge in (Merge.ROW, Merge.BATCH):
        return TAKE
    if merge is Merge.MOMENTS:
        return MOMENTS
    if merge in (Merge.FIRST, Merge.LAST):
        return FIRST_LAST
    if merge in (Merge.MIN, Merge.MAX):
        return MIN_MAX
    if kind is Kind.FLOAT64:
        return ADD_FLOAT
    if kind is Kind.INT128:
        return ADD_INT128
    if kind is Kind.INT64:
        return ADD_INT_CHECKED if ansi and not type_.is_decimal else ADD_INT
    raise ValueError(f"values of type {type_} cannot be added")
