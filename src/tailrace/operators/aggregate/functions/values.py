"""An accumulator of many records as a column: what an aggregate's ``finish`` sees."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tailrace.operators.aggregate.accumulators import Accumulator
from tailrace.operators.aggregate.decimal_kernels import divide_decimals
from tailrace.state.layout import AccumulatorWords, Merge
from tailrace.state.rows import columns
from tailrace.state.rows.rows import Rows
from tailrace.state.sections.sections import ValidBits, value_words
from tailrace.types import DOUBLE, DataType, Kind


@dataclass(frozen=True)
class Values:
    """The accumulator at ``place`` of all ``rows``."""

    rows: Rows
    valid: ValidBits
    place: AccumulatorWords
    accumulator: Accumulator
    ansi: bool = False  # whether sums that do not fit are an error

    @property
    def present(self) -> np.ndarray:
        """Which records hold a value that is not null, or of a sum one that has not overflowed."""
        there, place = self.valid.mask(self.place.bit), self.place
        if place.bit2 >= 0:
            second = self.valid.mask(place.bit2)
            there &= ~second if place.merge is Merge.ADD else second
        return there

    def array(self, type_: DataType) -> pa.Array:
        """The values as they are emitted; null where there is none."""
        present = self.present
        words = value_words(self.rows, self.place.value_word, self.place.kind)
        return columns.decode(words, None if present.all() else present, self.rows.heap, type_)

    def states(self) -> pa.Array:
        """A part of a state as it is kept, strings with 64-bit offsets."""
        place = self.place
        words = value_words(self.rows, place.word, place.kind)
        return columns.decode(words, self.valid.missing(place.bit2), self.rows.heap, place.type, large=True)

    def integers(self) -> np.ndarray:
        """Of whole numbers; 0 where there is none."""
        return np.ascontiguousarray(self.rows.words[:, self.place.value_word])

    def doubles(self, part: int = 0) -> np.ndarray:
        """Of doubles; 0 where there is none. ``part``: of moments, 0 is the count, 1 the mean, 2 the squares."""
        return np.ascontiguousarray(self.rows.words[:, self.place.word + part]).view(np.float64)

    def quotients(self, counts: np.ndarray, type_: DataType) -> pa.Array:
        """A sum of doubles or decimals by counts, null where these are 0; decimals are rounded half up, as in Spark."""
        present, place = self.present & (counts > 0), self.place
        if place.kind is Kind.FLOAT64:
            mean = np.divide(self.doubles(), counts, out=np.zeros(len(counts)), where=present)
            return doubles_where(mean, present)
        low = self.rows.words[:, place.word]
        high = self.rows.words[:, place.word + 1] if place.kind is Kind.INT128 else low >> 63
        quotients = np.zeros((len(counts), 2), np.int64)
        fits = np.zeros(len(counts), np.bool_)
        pairs = np.stack([low, high], axis=1)
        divide_decimals(pairs, counts, present, type_.scale - place.type.scale, quotients, fits)
        words = quotients if type_.kind is Kind.INT128 else quotients[:, 0]
        return columns.decode(words, present & fits, self.rows.heap, type_)


def doubles_where(numbers: np.ndarray, present: np.ndarray) -> pa.Array:
    """Doubles, null where none is present."""
    return columns.decode(np.ascontiguousarray(numbers).view(np.int64), present, np.empty(0, np.uint8), DOUBLE)
