"""States of aggregates that a function of whole columns makes and merges: sets, sketches, a user's own.

A state is a few values of a record (``Merge.BATCH``). ``update`` makes the states of groups of rows, in tasks;
``merge`` makes one state of several, in tasks, in servers and when windows are put together. Whole columns at a time:
no group and no row costs a call.

Invariants
- ``merge`` does not depend on how rows were cut into groups before, but for what a sketch states as its error; with the
  same partials in the same order it gives the same bytes, so that a replay does.
- A state whose first value is null is one that no row contributed to, or the function of it says what null means.
- Names are written into checkpoints: never rename one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np
import pyarrow as pa

from tailrace.operators.aggregate.accumulators import Accumulator, AccumulatorInput, Inputs, StateSpec
from tailrace.state.layout import BatchMerge, Merge
from tailrace.state.rows.columns import valid_mask
from tailrace.types import DataType


class State(Protocol):
    """Runs ``offsets[g]`` to ``offsets[g + 1]`` of the given rows or states become state ``g``. Any thread."""

    def update(self, columns: Sequence[pa.Array], offsets: np.ndarray) -> Sequence[pa.Array]:
        """The state of each run of rows; none is empty."""

    def merge(self, states: Sequence[pa.Array], offsets: np.ndarray) -> Sequence[pa.Array]:
        """The state that each run of states amounts to."""


@dataclass(frozen=True)
class StateKind:
    """``types``: of the values that a record keeps. ``text``: what they are, for explain, with ``{}`` for columns."""

    name: str
    types: Callable[[StateSpec], Sequence[DataType]]
    make: Callable[[StateSpec], State]
    text: str

    def __post_init__(self) -> None:
        assert self.name not in KINDS, f"two states are called {self.name}"
        KINDS[self.name] = self

    def accumulators(self, inputs: Inputs) -> tuple[Accumulator, ...]:
        spec = StateSpec(self.name, inputs.columns, inputs.types, inputs.arguments, inputs.code)
        return tuple(
            Accumulator(Merge.BATCH, AccumulatorInput.STATE, None, type_, spec, part)
            for part, type_ in enumerate(self.types(spec))
        )


KINDS: dict[str, StateKind] = {}


@lru_cache(maxsize=256)
def state_of(spec: StateSpec) -> State:
    return KINDS[spec.name].make(spec)


@dataclass(frozen=True)
class PlacedState:
    """A state and its accumulators, by their indexes."""

    spec: StateSpec
    first: int
    end: int

    def merge(self, states: Sequence[pa.Array], offsets: np.ndarray) -> Sequence[pa.Array]:
        return state_of(self.spec).merge(states, offsets)

    @property
    def batch_merge(self) -> BatchMerge:
        return BatchMerge(self.first, self.end, self.merge)


def states_among(accumulators: Sequence[Accumulator]) -> list[PlacedState]:
    found: list[PlacedState] = []
    for index, accumulator in enumerate(accumulators):
        if accumulator.state is None:
            continue
        if accumulator.part == 0:
            found.append(PlacedState(accumulator.state, index, index + 1))
        else:
            found[-1] = PlacedState(accumulator.state, found[-1].first, index + 1)
    return found


def present_rows(columns: Sequence[pa.Array], offsets: np.ndarray) -> tuple[list[pa.Array], np.ndarray]:
    """The rows in which no value is null, and the number of its run for each."""
    numbers = run_numbers(offsets)
    masks = [mask for column in columns if (mask := valid_mask(column)) is not None]
    if not masks:
        return list(columns), numbers
    there = np.logical_and.reduce(masks)
    return [column.filter(pa.array(there)) for column in columns], numbers[there]


def run_numbers(offsets: np.ndarray) -> np.ndarray:
    """The number of its run for each row."""
    return np.repeat(np.arange(len(offsets) - 1, dtype=np.int64), np.diff(offsets))
