"""A trace made ready for replay: keys as bytes, values with a content, and what every get must find.

The value of an access is made of its number in the trace, so that one value can hardly be taken for another, and the
right answers are worked out from the trace alone, apart from any store. All of it is done before time is taken.

Threads: immutable once made.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tailrace.errors import TailraceError
from tailrace.lab.gadget.generate import key_sizes
from tailrace.lab.gadget.replay import prepared_kernels as pk
from tailrace.lab.gadget.stores.combine.combine import columns_of
from tailrace.lab.gadget.stores.contract import Answers, Batch, Store, Values, words_of
from tailrace.lab.gadget.traces.trace import KEY_BYTES, Operation, Trace, joined

_LOADED_BYTES = 100
_COPIES = 4


class WrongAnswerError(TailraceError):
    """A store has not answered what was written to it: its numbers count for nothing."""


@dataclass(frozen=True)
class Prepared:
    trace: Trace
    sizes: np.ndarray
    starts: np.ndarray
    data: np.ndarray
    first_key: int = 0
    """Added to every state key, so that operators on one store do not share keys."""
    preloaded: int = 0
    """The first accesses put what is in the store from the start; they are no part of a measurement."""

    def __len__(self) -> int:
        return len(self.trace)

    @cached_property
    def keys(self) -> np.ndarray:
        return self.trace.keys + self.first_key

    @cached_property
    def names(self) -> list[bytes]:
        """State key to its bytes: decimals, with zeros before them up to the size that the trace says.

        Where all are of one size, their order is that in which keys appeared. A number that needs more has more.
        """
        own = key_sizes(self.trace)
        _check_room(int(own.sum(dtype=np.int64)), "state keys")
        sizes = [1] * self.first_key + own.tolist()
        return [b"%0*d" % (size, number) for number, size in enumerate(sizes)]

    @cached_property
    def key_words(self) -> np.ndarray:
        return words_of(self.names)

    @property
    def key_bytes(self) -> int:
        """Of the longest key; of a trace that is yet to be made, as much as most keys have."""
        return max(map(len, self.names), default=KEY_BYTES)

    @cached_property
    def values(self) -> list[bytes]:
        data = self.data.tobytes()
        ends = (self.starts + self.sizes).tolist()
        return [data[start:end] for start, end in zip(self.starts.tolist(), ends)]

    @cached_property
    def panes(self) -> np.ndarray | None:
        """By state key, the rank of the time at which it is deleted last: when its window ends. Never: the last."""
        deletes = self.trace.operations == Operation.DELETE
        if not deletes.any():
            return None
        ends = np.full(self.first_key + self.trace.distinct_keys, np.iinfo(np.int64).max)
        ends[self.keys[deletes]] = self.trace.times[deletes]  # the last one counts, as numpy assigns in order
        ranks: np.ndarray = np.unique(ends, return_inverse=True)[1]
        return ranks.astype(np.int64)

    @cached_property
    def expected(self) -> Values:
        """What the gets must find, in their order."""
        operations = self.trace.operations
        gets = int((operations == Operation.GET).sum())
        newest = np.full(self.trace.distinct_keys, -1, np.int64)
        links, sizes = np.empty(len(self), np.int64), np.empty(gets, np.int64)
        seen = np.empty(gets, np.int64)
        total = pk.expected_sizes(operations, self.trace.keys, self.sizes, newest, links, sizes, seen)
        data = np.empty(total, np.uint8)
        pk.expected_bytes(seen, sizes, links, self.sizes, self.starts, self.data, data)
        return Values(sizes, data)

    def left(self, accesses: int) -> tuple[np.ndarray, Values]:
        """State keys that the first ``accesses`` named, and what each of them holds then."""
        part = slice(0, accesses)
        touched = np.unique(self.trace.keys[part])
        operations = np.append(self.trace.operations[part], np.full(len(touched), Operation.GET, np.uint8))
        keys, sizes = np.append(self.trace.keys[part], touched), np.append(self.sizes[part], np.zeros_like(touched))
        gets = int((operations == Operation.GET).sum())
        newest, links = np.full(self.trace.distinct_keys, -1, np.int64), np.empty(len(operations), np.int64)
        found, seen = np.empty(gets, np.int64), np.empty(gets, np.int64)
        pk.expected_sizes(operations, keys, sizes, newest, links, found, seen)
        found, seen = found[gets - len(touched) :], seen[gets - len(touched) :]
        data = np.empty(int(np.maximum(found, 0).sum()), np.uint8)
        pk.expected_bytes(seen, found, links, sizes, self.starts, self.data, data)
        return touched, Values(found, data)

    def reading(self, keys: np.ndarray) -> Batch:
        """Gets of these state keys."""
        zeros = np.zeros(len(keys), np.int64)
        operations = np.full(len(keys), Operation.GET, np.uint8)
        names = keys + self.first_key
        return Batch(operations, names, zeros, zeros, self.data, self.names, [b""] * len(keys), self.key_words)

    def batches(self, accesses: int) -> list[Batch]:
        """All accesses but those that load the store."""
        starts = range(self.preloaded, len(self), accesses)
        return [self.batch(first, min(first + accesses, len(self))) for first in starts]

    def load(self, store: Store) -> None:
        if self.preloaded:
            store.run(self.batch(0, self.preloaded))

    def batch(self, first: int, end: int) -> Batch:
        part = slice(first, end)
        return Batch(
            self.trace.operations[part], self.keys[part], self.sizes[part], self.starts[part], self.data, self.names,
            self.values[part], self.key_words,
        )  # fmt: skip

    def check(self, store: str, answers: list[Answers], accesses: int | None = None) -> None:
        """The gets of the first ``accesses`` must have been answered so."""
        operations = self.trace.operations[:accesses]
        gets = np.flatnonzero(operations == Operation.GET)
        columns = [columns_of(one) if isinstance(one, list) else one for one in answers]
        sizes = np.concatenate([one.sizes for one in columns]) if columns else np.empty(0, np.int64)
        if len(sizes) != len(gets):
            raise WrongAnswerError(f"{store} answered {len(sizes)} gets, but {len(gets)} were asked")
        right = self.expected.sizes[: len(gets)]
        wrong = np.flatnonzero(sizes != right)
        if not len(wrong):
            data = np.concatenate([one.data for one in columns]) if columns else np.empty(0, np.uint8)
            differ = np.flatnonzero(data != self.expected.data[: len(data)])
            if not len(differ):
                return
            ends = np.cumsum(np.maximum(right, 0))
            wrong = np.searchsorted(ends, differ[:1], side="right")
        at = int(gets[wrong[0]])
        raise WrongAnswerError(
            f"{store} is wrong: access {at}, a get of state key {self.trace.keys[at]}, found "
            + _told(int(sizes[wrong[0]]), int(right[wrong[0]]))
        )

    def check_left(self, store: str, keys: np.ndarray, right: Values, answer: Answers) -> None:
        """Of state keys, what was found after all accesses must be what they hold."""
        found = columns_of(answer) if isinstance(answer, list) else answer
        if len(found.sizes) != len(keys):
            raise WrongAnswerError(f"{store} answered {len(found.sizes)} gets at the end, but {len(keys)} were asked")
        wrong = np.flatnonzero(found.sizes != right.sizes)
        if not len(wrong) and len(differ := np.flatnonzero(found.data != right.data)):
            wrong = np.searchsorted(np.cumsum(np.maximum(right.sizes, 0)), differ[:1], side="right")
        if len(wrong):
            at = int(wrong[0])
            raise WrongAnswerError(
                f"{store} is wrong: at the end, a get of state key {keys[at]} found "
                + _told(int(found.sizes[at]), int(right.sizes[at]))
            )


def _told(found: int, wanted: int) -> str:
    """Sizes as words."""
    words = ["nothing" if size < 0 else f"{size} bytes" for size in (found, wanted)]
    return f"{words[0]} instead of {words[1]}" if found != wanted else f"{words[0]}, but not those that were written"


def prepare(trace: Trace, first_key: int = 0, first_access: int = 0) -> Prepared:
    """``first_access``: of a piece of a trace, how many accesses come before it.

    Where the trace's records are in the store from the start (YCSB), puts of them come first.
    """
    preloaded = 0
    if trace.metadata.get("preloaded") == "true" and len(trace):
        loading = _loading(trace)
        preloaded, trace = len(loading), joined([loading, trace])
    sizes = trace.value_sizes.astype(np.int64)
    starts = np.cumsum(sizes) - sizes
    _check_room(int(sizes.sum()), "values")
    data = np.empty(int(sizes.sum()), np.uint8)
    pk.fill(first_access, sizes, starts, data)
    return Prepared(trace, sizes, starts, data, first_key, preloaded)


def _check_room(needed: int, what: str) -> None:
    """They are made before time is taken, and kept with what is expected of the gets and what is found."""
    there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if needed > there // _COPIES:
        raise TailraceError(
            f"the {what} of this trace have {needed / 2**30:,.1f} GB, and a replay needs {_COPIES} times as much "
            f"memory ({there / 2**30:,.1f} GB are there): take fewer accesses, or smaller sizes"
        )


def _loading(trace: Trace) -> Trace:
    """Puts of all state keys, as large as values of this trace are."""
    keys = trace.distinct_keys
    written = trace.value_sizes[trace.value_sizes > 0]
    size = int(np.median(written)) if len(written) else _LOADED_BYTES
    return Trace(
        np.full(keys, Operation.PUT, np.uint8),
        np.arange(keys, dtype=np.int64),
        np.full(keys, size, np.int32),
        np.full(keys, trace.times[0]),
        trace.events,
    )
