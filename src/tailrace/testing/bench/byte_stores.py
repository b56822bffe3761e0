"""The state stores as keepers of byte strings under byte strings: for benches that compare them with key-value stores.

No Spark, servers or checkpoints. Every batch is an epoch of its own, and none can be undone once the next one is
there. Keys and values come and go in columns: values as ``sizes`` and where each begins in ``data``; keys as ``names``,
numbers of rows of ``keys`` (int64: the bytes of the keys in words, which are the decimals of those numbers). A batch
names a key at most once.

Invariants: one shard, one thread; keys are hashed here, and compared exactly by the store. What is handed out is a
copy.
Threads: one at a time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tailrace.errors import TailraceError
from tailrace.state.append.aligned import AppendAlignedStore
from tailrace.state.append.list_runs import UNKNOWN, Index, ListRun, list_order
from tailrace.state.append.unaligned import AppendUnalignedStore
from tailrace.state.layout import FIRST_KEY, PANE, Merge, RecordLayout, record_layout
from tailrace.state.read_modify_write.store import ReadModifyWriteStore
from tailrace.state.rows import arrange_kernels as rk
from tailrace.state.rows.arrange import sorted_order
from tailrace.state.rows.groups import key_offsets
from tailrace.state.rows.rows import Rows, plain
from tailrace.testing.bench import byte_kernels as bk
from tailrace.types import BIGINT, DataType, Field

LENGTH_BYTES = bk.LENGTH_BYTES
_FOREVER = 2**63 - 1
_INLINE_WORDS_MAX = 56
_COLUMNS_MAX = 62
"""Of a record: a bit of one word says of each whether it is there."""
_NO_BYTES = np.empty(0, np.uint8)


@dataclass(frozen=True)
class Held:
    """Values by key, in the order asked for: ``sizes`` (-1: there is none) and where each begins in ``data``."""

    sizes: np.ndarray
    starts: np.ndarray
    data: np.ndarray
    rows: np.ndarray
    """Of `ByteRecords`: what ``remove`` wants, -1 where there is none."""


def _key(words: int) -> list[Field]:
    if words > _COLUMNS_MAX - 2:
        raise TailraceError(f"keys of {8 * words} bytes are too long for this store: {8 * (_COLUMNS_MAX - 2)} at most")
    return [Field(f"key{number}", BIGINT) for number in range(words)]


def _layout(key_words: int) -> RecordLayout:
    return record_layout(_key(key_words), [(Merge.ROW, DataType("binary"))], ansi=False)


def _rows(names: np.ndarray, keys: np.ndarray, panes: np.ndarray, sizes: np.ndarray, heap: np.ndarray) -> Rows:
    rows = Rows(np.empty((len(names), FIRST_KEY + keys.shape[1] + 1), np.int64), heap)
    bk.frame_rows(names, keys, panes, sizes, rows.words, heap)
    return rows


def _bounds(rows: Rows) -> np.ndarray:
    return np.array([0, len(rows)], np.int64)


class ByteRecords:
    """RMW: a value for each key, read and replaced.

    Values of up to ``inline_bytes`` lie in the records themselves, as an aggregate's do.
    """

    def __init__(self, folder: str, memory_bytes: int, inline_bytes: int = 16, key_words: int = 1) -> None:
        room = min(_INLINE_WORDS_MAX, _COLUMNS_MAX - key_words - 2)
        inline = [(Merge.ROW, BIGINT)] * min(room, -(-inline_bytes // 8))
        layout = record_layout(
            _key(key_words), [(Merge.ROW, BIGINT), *inline, (Merge.ROW, DataType("binary"))], ansi=False
        )
        self._words = layout.words
        self._inline_bytes = 8 * len(inline)
        self._store = ReadModifyWriteStore(
            layout, range(1), 1, 1, removes=True, memory_bytes=memory_bytes, folder=folder
        )
        self._table = self._store.tables()[0][1]
        self._epoch = -1

    def find(self, names: np.ndarray, keys: np.ndarray) -> Held:
        """Begins a batch."""
        self._epoch += 1
        self._store.open(self._epoch)
        wanted = Rows(np.empty((len(names), self._words), np.int64), _NO_BYTES)
        bk.name_rows(names, keys, wanted.words)
        if self._store.spilled:
            self._store.load([(wanted, _bounds(wanted))])
        at = self._table.locate(wanted)
        there = np.flatnonzero(at >= 0)
        found = self._table.copy(at[there])
        sizes, starts = np.full(len(names), -1, np.int64), np.zeros(len(names), np.int64)
        bk.places(found.words, there, keys.shape[1], len(found.heap), sizes, starts)
        octets = found.words.view(np.uint8).reshape(-1)
        data = np.concatenate([found.heap, octets]) if len(found.heap) else octets
        return Held(sizes, starts, data, at)

    def put(self, names: np.ndarray, keys: np.ndarray, sizes: np.ndarray, starts: np.ndarray, data: np.ndarray) -> None:
        if len(names):
            outside = sizes[sizes > self._inline_bytes]
            words = np.empty((len(names), self._words), np.int64)
            rows = Rows(words, np.empty(int(outside.sum()) + 4 * len(outside), np.uint8))
            bk.pack_records(names, keys, sizes, starts, data, words, words.view(np.uint8).reshape(-1), rows.heap)
            # What lies on disk was brought in by ``find``; without ``hold`` the rows it named stay where they are.
            self._store.merge_more([(rows, _bounds(rows))], replace=True, fresh=True, hold=False)

    def remove(self, rows: np.ndarray) -> None:
        """Row numbers of ``find``."""
        self._store.remove(0, rows)

    def end(self) -> None:
        """Ends a batch."""
        self._store.hold_budget()

    @property
    def disk_bytes(self) -> int:
        return self._store.disk_bytes

    def close(self) -> None:
        self._store.close()


class BytePanes:
    """AAR: bytes are appended to the values of keys in panes; all values of a pane are taken together."""

    def __init__(self, folder: str, memory_bytes: int, key_words: int = 1) -> None:
        self._store = AppendAlignedStore(
            _layout(key_words),
            range(1),
            shard_count=1,
            memory_bytes=memory_bytes,
            folder=folder,
            threads=1,
            undo_epochs=1,
        )
        self._epoch = -1

    def append(
        self, names: np.ndarray, keys: np.ndarray, panes: np.ndarray, sizes: np.ndarray, framed: np.ndarray
    ) -> None:
        """``framed``: the values one after the other, each behind ``LENGTH_BYTES`` of room. It is the store's then."""
        self._epoch += 1
        rows = _rows(names, keys, panes, sizes, framed)
        self._store.append(self._epoch, [(rows, _bounds(rows))])

    @property
    def first_pane(self) -> int:
        """Panes before it were taken."""
        return self._store.horizon

    def take(self, end_pane: int) -> tuple[np.ndarray, Held]:
        """Keys and values of all panes before ``end_pane``, which are gone then."""
        names, sizes, values = [np.empty(0, np.int64)], [np.empty(0, np.int64)], [np.empty(0, np.uint8)]
        if self._store.newest_epoch is not None:
            for piece in self._store.read(self._store.horizon, end_pane, piece_bytes=_FOREVER):
                rows = plain(piece)
                offsets = key_offsets(rows, self._store.layout)
                keys, joined = _joined(rows, offsets)
                names.append(keys)
                sizes.append(joined.sizes)
                values.append(joined.data)
            self._store.expire(end_pane)
        every, data = np.concatenate(sizes), np.concatenate(values)
        return np.concatenate(names), Held(every, np.cumsum(every) - every, data, np.empty(0, np.int64))

    @property
    def disk_bytes(self) -> int:
        return self._store.disk_bytes

    def close(self) -> None:
        self._store.close()


class _SortedLists(AppendUnalignedStore):
    """Of one shard and one instance: then rows that come in its order, a row a list, are a run as they are."""

    def append_sorted(self, epoch: int, rows: Rows, keys: np.ndarray) -> None:
        """As ``append``, without a copy. ``keys``: order keys of the rows, ascending, all different."""
        self._check_fresh(epoch)
        lists = len(rows)
        starts, heap = np.arange(lists + 1), np.empty(lists, np.int64)
        rk.slice_heap_bytes(rows.words, rows.heap, starts[:-1], starts[1:], self.layout.bytes_words, heap)
        index = Index(keys, starts, np.full(lists, UNKNOWN), rows.words[:, PANE].copy(), heap)
        self._open(epoch, [ListRun(rows, index, np.zeros(lists, np.uint8))])


class ByteLists:
    """AUR: bytes are appended to the values of keys; values are taken one by one."""

    def __init__(self, folder: str, memory_bytes: int, key_words: int = 1) -> None:
        self._store = _SortedLists(
            _layout(key_words), range(1), shard_count=1, memory_bytes=memory_bytes, folder=folder, threads=1,
            undo_epochs=1, instances=1,
        )  # fmt: skip
        self._epoch = -1

    @staticmethod
    def order(names: np.ndarray, keys: np.ndarray) -> np.ndarray:
        """Keys in the order in which the store keeps lists: what is appended so is not moved again."""
        return sorted_order(_order_keys(names, keys))[0]

    def append(self, names: np.ndarray, keys: np.ndarray, sizes: np.ndarray, framed: np.ndarray) -> None:
        """``framed``: as for `BytePanes.append`."""
        self._epoch += 1
        rows = _rows(names, keys, bk.NO_PANES, sizes, framed)
        order = list_order(rows, 1, 1)
        if (order[1:] > order[:-1]).all():
            self._store.append_sorted(self._epoch, rows, order)
        else:
            self._store.append(self._epoch, [(rows, _bounds(rows))])

    def take(self, names: np.ndarray, keys: np.ndarray) -> Held:
        """The values of these keys, which are gone then."""
        none_written = np.zeros(len(names), np.int64)
        if self._store.newest_epoch is None:
            return Held(none_written - 1, none_written, _NO_BYTES, none_written - 1)
        no_bytes = np.empty(LENGTH_BYTES * len(names), np.uint8)
        rows, offsets = self._store.read(_rows(names, keys, bk.NO_PANES, none_written, no_bytes), remove=True)
        _, joined = _joined(rows, offsets)
        sizes = np.where(np.diff(offsets) > 0, joined.sizes, -1)
        return Held(sizes, joined.starts, joined.data, np.empty(0, np.int64))

    @property
    def disk_bytes(self) -> int:
        return self._store.disk_bytes

    def close(self) -> None:
        self._store.close()


def _order_keys(names: np.ndarray, keys: np.ndarray) -> np.ndarray:
    rows = Rows(np.empty((len(names), FIRST_KEY + keys.shape[1]), np.int64), _NO_BYTES)
    bk.name_rows(names, keys, rows.words)
    return list_order(rows, 1, 1)


def _joined(rows: Rows, offsets: np.ndarray) -> tuple[np.ndarray, Held]:
    """Keys, and the values of groups of rows one after the other."""
    groups = len(offsets) - 1
    names, sizes = np.empty(groups, np.int64), np.empty(groups, np.int64)
    data = np.empty(len(rows.heap), np.uint8)  # with room for the lengths, which it does without
    end = bk.join(rows.words, rows.heap, offsets, names, sizes, data)
    return names, Held(sizes, np.cumsum(sizes) - sizes, data[:end], np.empty(0, np.int64))
