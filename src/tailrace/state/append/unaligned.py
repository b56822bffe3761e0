"""The append store for unaligned windows (AUR): lists of rows by (key, pane), each read at a time of its own.

Invariants
- The store is split by hash into instances that share nothing (see ``list_instance``), so that a compaction stops only
  one of them. The order key of a list begins with its instance and its shard: an epoch's rows are sorted once, and a
  shard is a range in every run.
- What an epoch removes is marked with the epoch's slot, so that undoing brings it back and forgetting lets it go.
- ``delta`` is the newest epoch's tombstones, then its rows. No list has both a tombstone and removed rows there, so
  applying deltas in order gives the state.
- Which lists are due next, and so read ahead, either triggers say, which come with rows and are of their list alone, or
  the caller does (``read_ahead``), where it is known only together with other lists: those of one session.
- Memory: see ``list_instance``; of each list on disk, 5 bytes stay in memory, and of each segment, 4 kB.

Threads: one at a time; inside, instances work at once in a small pool. Rows handed out are copies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import pyarrow as pa

from tailrace.state import metrics
from tailrace.state.append import list_sections
from tailrace.state.append.list_instance import Found, ListInstance, Settings, Stats
from tailrace.state.append.list_runs import FIRST_SLOT, UNKNOWN, ListRun, Targets, list_order
from tailrace.state.append.list_sections import tombstones
from tailrace.state.append.row_store import RowStore, UndoableEpoch
from tailrace.state.layout import HASH, PANE, RecordLayout
from tailrace.state.metrics import Metrics
from tailrace.state.part_pool import PartPool
from tailrace.state.rows import arrange_kernels as rk
from tailrace.state.rows.arrange import Slices, bits_for, row_numbers, sorted_order, take
from tailrace.state.rows.gather import spread
from tailrace.state.rows.rows import Rows, plain
from tailrace.state.tuning import DEFAULT_TUNING, Tuning

_ROW_BYTES = 64  # about
_NO_KEYS, _NO_TIMES = np.empty(0, np.uint64), np.empty(0, np.int64)

_Result = TypeVar("_Result")


@dataclass
class _Epoch(UndoableEpoch):
    slot: int
    removed: list[Rows] = field(default_factory=list)  # tombstones

    @property
    def nbytes(self) -> int:
        return sum(rows.words.nbytes + rows.heap.nbytes for rows in self.removed)


class AppendUnalignedStore(RowStore[_Epoch]):
    def __init__(
        self,
        layout: RecordLayout,
        shards: Iterable[int],
        *,
        shard_count: int,
        memory_bytes: int,
        folder: str,
        threads: int = 2,
        undo_epochs: int = 2,
        tuning: Tuning = DEFAULT_TUNING,
        instances: int = 2,
    ) -> None:
        super().__init__(layout, shards, shard_count, undo_epochs)
        limits = (tuning.read_batch_ratio, tuning.max_space_amplification)
        settings = Settings(layout, folder, memory_bytes // instances, *limits)
        self._instances = [ListInstance(settings) for _ in range(instances)]
        self._pool = PartPool(min(threads, instances), "tailrace-lists")
        self._opened = 0

    @property
    def rows(self) -> int:
        """Rows that can be seen. Of very many panes, a few rows that the horizon has just passed are counted too."""
        return sum(instance.rows(self.horizon) for instance in self._instances)

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return sum(i.nbytes for i in self._instances) + sum(epoch.nbytes for epoch in self._epochs)

    @property
    def disk_bytes(self) -> int:
        return sum(instance.disk_bytes for instance in self._instances)

    def stats(self) -> Stats:
        return sum((instance.stats for instance in self._instances), Stats())

    @property
    def compaction_cpu_s(self) -> float:
        return sum(instance.stats.compaction_cpu_s for instance in self._instances)

    def metrics(self) -> Metrics:
        done = self.stats()
        segments = [segment for instance in self._instances for segment in instance.segments]
        return {
            metrics.HITS: done.hits,
            metrics.MISSES: done.misses,
            "indexScans": done.index_scans,
            "listsPrefetched": done.lists_prefetched,
            "listsEvicted": done.lists_evicted,
            metrics.BYTES_READ: done.bytes_read,
            metrics.BYTES_WRITTEN: done.bytes_written,
            metrics.COMPACTIONS: done.compactions,
            "writeCpuMs": done.write_cpu_s * 1e3,
            "readDeleteCpuMs": done.read_delete_cpu_s * 1e3,
            metrics.COMPACTION_CPU_MS: done.compaction_cpu_s * 1e3,
            metrics.SEGMENTS: len(segments),
            metrics.DISK_BYTES: self.disk_bytes,
            metrics.DISK_LIVE_BYTES: sum(instance.live_disk_bytes for instance in self._instances),
        }

    # Epochs ----------------------------------------------------------------------------------------------------------

    def append(
        self,
        epoch: int,
        frames: Sequence[tuple[Rows, np.ndarray]],
        triggers: Sequence[np.ndarray] | None = None,
        *,
        gone: Rows | None = None,
    ) -> None:
        """Open ``epoch`` and append rows sorted by shard: pairs of rows and ``bounds[shards + 1]``.

        ``triggers``: for each frame and row, when its list is expected to be read (microseconds); the latest counts.
        ``gone``: these lists lose the rows that they have before any comes, as part of the epoch.
        """
        self._check_frames(frames)
        self._check_fresh(epoch)
        parts = [(plain(rows), None if triggers is None else triggers[i]) for i, (rows, _) in enumerate(frames)]
        parts = [(rows, times) for rows, times in parts if len(rows)]
        keys = [list_order(rows, self._shard_count, len(self._instances)) for rows, _ in parts]

        def build(number: int) -> ListRun:
            sources, own_keys, own_triggers = [], [np.empty(0, np.uint64)], [np.empty(0, np.int64)]
            for (rows, times), frame_keys in zip(parts, keys):
                chosen = self._of_instance(frame_keys, number)
                sources.append(Slices(rows, chosen, chosen + 1))
                own_keys.append(frame_keys[chosen])
                own_triggers.append(np.full(len(chosen), UNKNOWN) if times is None else times[chosen])
            return self._instances[number].build(sources, np.concatenate(own_keys), np.concatenate(own_triggers))

        runs = self._each(build, sum(len(rows) for rows, _ in parts))
        self._open(epoch, runs, gone)

    def open_epoch(self, epoch: int) -> None:
        """Open it without rows. What is removed or expired from now on belongs to it."""
        self._check_fresh(epoch)
        self._open(epoch, [instance.build([], _NO_KEYS, _NO_TIMES) for instance in self._instances])

    def _open(self, epoch: int, runs: Sequence[ListRun], gone: Rows | None = None) -> None:
        self._make_room()
        self._opened += 1
        slot = FIRST_SLOT + self._opened % (self._undo_epochs + 1)  # of no other epoch that can be undone
        self._epochs.append(_Epoch(epoch, self.horizon, slot))
        if gone is not None and len(gone):
            self.remove(gone)
        for instance, run in zip(self._instances, runs):
            instance.open(run)

    def undo(self, epoch: int) -> None:
        """Back to before ``epoch`` was opened; nothing happens where it was not."""
        while self._epochs and self._epochs[-1].number >= epoch:
            undone = self._epochs.pop()
            for instance in self._instances:
                instance.undo(undone.slot)
            self.horizon = undone.horizon_before
            self._opened -= 1

    def _forget_oldest(self) -> None:
        forgotten = self._epochs.pop(0)
        for instance in self._instances:
            instance.forget(forgotten.slot)

    def _maintain(self) -> None:
        floor = self._floor

        def maintain(number: int) -> None:
            self._instances[number].floor = floor
            self._instances[number].maintain()

        self._each(maintain, self.nbytes // _ROW_BYTES)

    # Reading ---------------------------------------------------------------------------------------------------------

    def read(self, targets: Rows, *, remove: bool) -> tuple[Rows, np.ndarray]:
        """The rows of lists, list after list in the order of the targets, and ``offsets[targets + 1]``.

        ``targets``: rows whose hash, pane and key words name distinct lists. With ``remove`` the lists are gone, as
        part of the open epoch.
        """
        found = self._find(targets, remove=remove)
        counts = np.zeros(len(targets) + 1, np.int64)
        for part in found:
            counts[part.targets + 1] += part.slices.hi - part.slices.lo
        offsets = np.cumsum(counts)
        return self._gathered(found, offsets), offsets

    def read_slices(self, targets: Rows, *, remove: bool) -> list[Found]:
        """As ``read``, without a copy: slices of what the store holds, oldest first, and the target of each.

        They must be used before anything else is asked of the store.
        """
        return self._find(targets, remove=remove)

    def remove(self, targets: Rows) -> None:
        """The lists are gone, as part of the open epoch."""
        self._find(targets, remove=True)

    def wants_ahead(self) -> int:
        """How many lists the caller should read ahead now, with ``read_ahead``; 0: there is no need.

        Asked once an epoch: what was read since decides. For lists that came without triggers.
        """
        wanted = [instance.wants_ahead() for instance in self._instances]
        # Lists are spread by hash, so that one instance gets its number only where all get it.
        return max(wanted) * len(self._instances)

    def read_ahead(self, targets: Rows, at_most: int) -> None:
        """Copy lists from disk to memory, in place of what was read ahead before: of the targets (see ``read``), those
        that are due next first, at most so many.
        """
        keys = list_order(plain(targets), self._shard_count, len(self._instances))

        def fill(number: int) -> None:
            own = keys[self._of_instance(keys, number)]
            self._instances[number].read_ahead(own, -(-at_most // len(self._instances)))

        self._each(fill, len(keys))

    def _find(self, targets: Rows, *, remove: bool) -> list[Found]:
        epoch = self._open_epoch("to remove in") if remove else None
        targets = tombstones(plain(targets), self.layout)
        keys = list_order(targets, self._shard_count, len(self._instances))
        visible = targets.words[:, PANE] >= self.horizon
        instances = keys >> np.uint64(64 - bits_for(len(self._instances))) if len(self._instances) > 1 else 0 * keys

        def find(number: int) -> list[Found]:
            chosen = np.flatnonzero((instances == number) & visible)
            if not len(chosen):
                return []
            wanted = Targets.of(Rows(targets.words[chosen], targets.heap), keys[chosen])
            parts = self._instances[number].find(wanted, epoch.slot if epoch else 0)
            return [Found(chosen[part.targets], part.slices) for part in parts]

        found = [part for parts in self._each(find, len(targets)) for part in parts]
        if epoch and found:
            gone = np.zeros(len(targets), np.bool_)
            for part in found:
                gone[part.targets] = True
            epoch.removed.append(take(targets, np.flatnonzero(gone), self.layout))
        return found

    def _gathered(self, found: Sequence[Found], offsets: np.ndarray) -> Rows:
        """Each list's rows, source after source: as these are given oldest first, in order of arrival."""
        fill = offsets[:-1].copy()
        heap_end = 0
        places = []
        for part in found:
            lo, hi, rows = part.slices.lo, part.slices.hi, part.slices.rows
            at = fill[part.targets]
            fill[part.targets] += hi - lo
            heap_at = at
            if self.layout.has_bytes:
                sizes = np.empty(len(lo), np.int64)
                rk.slice_heap_bytes(rows.words, rows.heap, lo, hi, self.layout.bytes_words, sizes)
                heap_at = heap_end + np.cumsum(sizes) - sizes
                heap_end += int(sizes.sum())
            places.append((at, heap_at))
        out = Rows(np.empty((int(offsets[-1]), self.layout.words), np.int64), np.empty(heap_end, np.uint8))
        for part, (at, heap_at) in zip(found, places):
            lo, hi, rows = part.slices.lo, part.slices.hi, part.slices.rows
            rk.copy_slices(rows.words, rows.heap, lo, hi, at, heap_at, self.layout.bytes_words, out.words, out.heap)
        return out

    def delta(self) -> dict[int, pa.RecordBatch]:
        """By shard: tombstones of what the newest epoch removed, then the rows that it appended and left."""
        if not self._epochs:
            return {}
        removed = self._epochs[-1].removed
        sources = [Slices(rows, at, at + 1) for rows in removed for at in [_visible_rows(rows, self.horizon)]]
        triggers = [np.full(len(source.lo), UNKNOWN) for source in sources]
        dead = sum(map(len, triggers))
        for instance in self._instances:
            run = instance.newest
            lists = np.flatnonzero((run.gone == 0) & (run.index.panes >= self.horizon))
            sources.append(run.slices(lists))
            triggers.append(run.index.triggers[lists])
        every = np.concatenate(triggers)
        hashes = np.concatenate([source.rows.words[source.lo, HASH] for source in sources])
        gone = np.arange(len(every)) < dead
        shards = hashes % self._shard_count
        order, _ = sorted_order(shards.astype(np.uint64), high_bit=bits_for(self._shard_count))
        lengths = np.concatenate([source.hi - source.lo for source in sources])
        ends = np.cumsum(lengths)
        in_shards = row_numbers((ends - lengths)[order], ends[order])
        sizes = lengths[order]
        section = list_sections.spread_section(
            spread(sources, self.layout),
            in_shards,
            np.repeat(gone[order], sizes),
            np.repeat(every[order], sizes),
            self.layout,
        )
        edges = np.searchsorted(np.repeat(shards[order], sizes), np.arange(self._shard_count + 1))
        numbers = np.flatnonzero(np.diff(edges))
        return {int(s): section.slice(int(edges[s]), int(edges[s + 1] - edges[s])) for s in numbers}

    # Shards ----------------------------------------------------------------------------------------------------------

    def restore(self, shard: int, batches: Iterable[pa.RecordBatch], horizon: int) -> None:
        """Build a shard from its sections, oldest first."""
        if shard in self._shards:
            self.drop_shard(shard)
        left = list_sections.applied(self.layout, list(batches), horizon, keep_tombstones=False)
        keys = list_order(left.rows, self._shard_count, len(self._instances))
        for number, instance in enumerate(self._instances):
            chosen = self._of_instance(keys, number)
            instance.add(instance.build([Slices(left.rows, chosen, chosen + 1)], keys[chosen], left.triggers[chosen]))
        self._shards.add(shard)
        self.horizon = max(self.horizon, horizon)
        self._maintain()

    def drop_shard(self, shard: int) -> None:
        """Its rows are gone, for good and in every epoch. Their room is given back when their run is merged."""
        self._shards.remove(shard)
        for epoch in self._epochs:
            others = [np.flatnonzero(rows.words[:, HASH] % self._shard_count != shard) for rows in epoch.removed]
            epoch.removed = [take(rows, chosen, self.layout) for rows, chosen in zip(epoch.removed, others)]
        instance_bits, shard_bits = bits_for(len(self._instances)), bits_for(self._shard_count)
        for number, instance in enumerate(self._instances):
            low_bits = 64 - instance_bits - shard_bits
            first = (number << (64 - instance_bits)) + (shard << low_bits)
            instance.drop(first, first + (1 << low_bits) - 1)
        self._maintain()

    def close(self) -> None:
        """Nothing is left, on disk neither."""
        for instance in self._instances:
            instance.close()
        self._epochs = []
        self._pool.close()

    def _of_instance(self, keys: np.ndarray, number: int) -> np.ndarray:
        bits = bits_for(len(self._instances))
        if not bits:
            return np.arange(len(keys))
        return np.flatnonzero(keys >> np.uint64(64 - bits) == np.uint64(number))

    def _each(self, work: Callable[[int], _Result], rows: int) -> list[_Result]:
        """Of each instance."""
        return self._pool.each(work, range(len(self._instances)), rows)


def _visible_rows(rows: Rows, horizon: int) -> np.ndarray:
    return np.flatnonzero(rows.words[:, PANE] >= horizon)


def compact_sections(
    layout: RecordLayout, batches: Sequence[pa.RecordBatch], horizon: int, *, complete: bool = False
) -> pa.RecordBatch:
    """One section that stands for several, oldest first. ``complete``: none is older, so no tombstone is needed."""
    return list_sections.to_section(
        list_sections.applied(layout, batches, horizon, keep_tombstones=not complete), layout
    )
