"""The spilled records of a read-modify-write store: segments on disk, found through their indexes in memory.

Records that are evicted from the tables become a segment in memory, the *write-back buffer*. They are found and taken
there as on disk, until a background thread has written it. There is at most one such segment: who makes another waits.

Invariants
- A record is in its shard's table or live in exactly one segment, never both. A batch *takes* what it touches: the
  record's dead bit is set and the record goes to the table as one that the open epoch has made. Undoing the epoch takes
  it out of the table there and clears the bit here, so bringing a record in is no change of the state.
- A record may also be removed where it lies, without coming into a table: its dead bit is set, and ``removed`` gives
  its key to the epoch's delta.
- A segment may hold records as an undoable epoch has left them (``_of_epoch``): only such records. Undoing the epoch
  drops the segment, and clears the dead bits of what the epoch had taken to make them; until the epoch is forgotten no
  compaction mixes it with others.
- Records that an undoable epoch has taken stay on disk through every compaction; ``_taken`` knows where they lie.
- Cells of panes below the floor (the horizon before the oldest undoable epoch) are dropped without being read.
- Segments are merged in tiers (see ``tiers``), so that few are searched, and where there is much on disk in compaction
  groups (see ``compaction_groups``), one at a time, so that no epoch compacts everything. Where bytes on disk exceed
  ``max_space_amplification`` times those of the records that are needed, the emptiest segment is compacted, one by one.

Memory: four bytes for a record and 40 for a cell (see ``segment``). The memory for reading and compacting does not grow
with the bytes on disk (see ``compaction``).

Threads: ``lookup`` and ``rows_of`` may run for different shards at once, all else alone. One thread of
its own writes the buffer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from tailrace.env import clock
from tailrace.state import metrics
from tailrace.state.layout import HASH, PANE, RecordLayout
from tailrace.state.metrics import Metrics
from tailrace.state.rows.rows import Rows, concat_rows, no_rows
from tailrace.state.segments import kernels as ck
from tailrace.state.segments.compaction import Moved, compact
from tailrace.state.segments.compaction_groups import EVERY, CompactionGroup, compaction_groups_for
from tailrace.state.segments.fingerprint_index import candidate_positions
from tailrace.state.segments.positions import RecordPositions, SegmentIndex, SegmentLookup
from tailrace.state.segments.reader import SegmentReader, ids_of, positions_in
from tailrace.state.segments.segment import Segment
from tailrace.state.segments.taken_records import TakenRecords
from tailrace.state.segments.write_back import WriteBackBuffer
from tailrace.state.segments.writer import DiskWriter, MemoryWriter
from tailrace.state.tiers import newest_to_merge
from tailrace.state.tuning import DEFAULT_TUNING, Tuning

_PIECE_BYTES = 8 << 20


@dataclass(frozen=True)
class FoundRecords:
    """Copies of live records of one segment, and where they lie there."""

    segment: Segment
    at: np.ndarray
    rows: Rows


class SpilledRecords:
    def __init__(
        self,
        layout: RecordLayout,
        folder: str,
        *,
        memory_bytes: int = 0,
        tuning: Tuning = DEFAULT_TUNING,
    ) -> None:
        """``memory_bytes``: of the store; cached records get a share of it."""
        if tuning.max_space_amplification <= 1:
            raise ValueError(f"max_space_amplification is {tuning.max_space_amplification}: it must be more than 1")
        self._layout = layout
        self._folder = folder
        self._amplification_max = tuning.max_space_amplification
        self._segments: list[Segment] = []
        self._taken = TakenRecords()
        self._of_epoch: dict[int, list[Segment]] = {}
        self.reads = SegmentReader(layout, memory_bytes, tuning.spilled)
        self._direct = tuning.spilled.reads == "direct"
        self._pause = tuning.spilled.pause
        self._buffer = WriteBackBuffer(folder, direct=self._direct)
        self.compactions = 0
        self.compaction_cpu_s = 0.0

    def __bool__(self) -> bool:
        return bool(self._segments)

    def rows(self, horizon: int) -> int:
        return sum(int(segment.live[segment.panes >= horizon].sum()) for segment in self._segments)

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return self.index_bytes + self.buffered_bytes + self.reads.nbytes

    @property
    def index_bytes(self) -> int:
        """Bytes of memory of the indexes."""
        return self._taken.nbytes + sum(segment.index_bytes for segment in self._segments)

    @property
    def buffered_bytes(self) -> int:
        """Bytes of the write-back buffer."""
        return sum(segment.buffered_bytes for segment in self._segments)

    @property
    def disk_bytes(self) -> int:
        return sum(segment.disk_bytes for segment in self._segments)

    def metrics(self, horizon: int) -> Metrics:
        return {
            "spilledRecords": self.rows(horizon),
            metrics.SEGMENTS: len(self._segments),
            metrics.COMPACTIONS: self.compactions,
            metrics.COMPACTION_CPU_MS: self.compaction_cpu_s * 1e3,
            metrics.DISK_BYTES: self.disk_bytes,
            metrics.DISK_LIVE_BYTES: sum(float(segment.live.sum()) * segment.row_bytes for segment in self._segments),
            "writeBackBufferBytes": self.buffered_bytes,
            **self.reads.metrics(),
        }

    # Epochs ----------------------------------------------------------------------------------------------------------

    def take_all(self, epoch: int, rows: Rows, bounds: np.ndarray, horizon: int) -> tuple[Rows, np.ndarray]:
        """Records with the key and pane of rows of all shards, sorted by shard: from now on owned by the caller.

        They are sorted by shard too, and come with their bounds.
        """
        found = self.lookup_all(rows, bounds, horizon, keep=False)
        self.take_positions(epoch, found.positions)
        firsts = found.positions.firsts()
        shards = found.positions.where(firsts).shards()
        order = np.argsort(shards, kind="stable")
        records = Rows(found.rows.words[firsts[order]], found.rows.heap)
        return records, np.searchsorted(shards[order], np.arange(len(bounds)))

    def take_positions(self, epoch: int, places: RecordPositions) -> None:
        """Records that were looked up are owned by the caller from now on."""
        for segment, at in places.by_segment():
            self._taken.take(epoch, segment, at)
        self.reads.drop(places.ids(places.firsts()))

    def cache_copies(self, found: SegmentLookup, chosen: np.ndarray) -> None:
        """Cache records that were looked up, none of them twice, and that stay on disk."""
        if self.reads.slow:
            on_disk = np.array([not segment.in_memory for segment in found.positions.segments], bool)
            stays = np.flatnonzero(chosen & on_disk[found.positions.owners])
            self.reads.keep(found.positions.ids(stays), Rows(found.rows.words[stays], found.rows.heap))

    def lookup_all(self, wanted: Rows, bounds: np.ndarray, horizon: int, *, keep: bool) -> SegmentLookup:
        """As ``lookup``, for rows of all shards, sorted by shard. ``keep``: they may be looked for again."""
        index = SegmentIndex(self._segments, self.reads, self._layout)
        return index.look_up(wanted, bounds, horizon, keep=keep)

    def hint(self, rows: Rows, bounds: np.ndarray, horizon: int, time: int) -> None:
        """Rows, sorted by shard, that an epoch will look up: begin to read the records that they may match.

        Not all of them, where records share a fingerprint.
        """
        largest_first = sorted(self._segments, key=lambda segment: -len(segment.fingerprints))
        found = candidate_positions(largest_first, rows, bounds, horizon, once=True)
        places = RecordPositions(largest_first, found.which, found.at)
        once = places.where(places.firsts())
        self.reads.hint(largest_first, once.owners, once.at, time)

    def may_hold(self, rows: Rows, bounds: np.ndarray, horizon: int) -> np.ndarray:
        """Which of these rows, sorted by shard, may have a record here, according to the indexes."""
        return candidate_positions(self._segments, rows, bounds, horizon).any

    def take_found(self, epoch: int, found: FoundRecords, chosen: np.ndarray) -> Rows:
        """Some of the records that ``with_hashes`` has found, from now on owned by the caller."""
        self._taken.take(epoch, found.segment, found.at[chosen])
        return Rows(found.rows.words[chosen], found.rows.heap)

    def remove_found(self, epoch: int, found: FoundRecords, chosen: np.ndarray) -> None:
        """Remove some of the found records, as part of the epoch; ``removed`` lists them."""
        self._taken.take(epoch, found.segment, found.at[chosen], removed=True)

    def removed(self, epoch: int) -> tuple[Rows, np.ndarray]:
        """Copies of the records that the epoch has removed here, and their shards."""
        rows, shards = [], [np.empty(0, np.int64)]
        for segment, at in self._taken.removed(epoch):
            own = segment.shards_of(at)
            rows.append(segment.copied(at[own >= 0]))
            shards.append(own[own >= 0])
        return concat_rows(rows, self._layout), np.concatenate(shards)

    def undo(self, epoch: int) -> None:
        for segment in self._of_epoch.pop(epoch, ()):
            self._segments.remove(segment)
            segment.close()
        self._taken.undo(epoch)

    def forget(self, epoch: int) -> None:
        self._taken.forget(epoch)
        self._of_epoch.pop(epoch, None)

    def changed_count(self, epoch: int) -> int:
        """How many records lie here as an undoable epoch has left them."""
        return sum(int(segment.live.sum()) for segment in self._of_epoch.get(epoch, ()))

    def changed(self, epoch: int, horizon: int) -> Iterator[tuple[int, Rows]]:
        """Copies of these records, but for those of panes before the horizon: by shard, in pieces of bounded memory."""
        for segment in self._of_epoch.get(epoch, ()):
            for shard in np.unique(segment.shards).tolist():
                cells = segment.cells_of(shard)
                numbers = cells.start + np.flatnonzero(segment.panes[cells] >= horizon)
                at = segment.live_in(numbers, 0, ck.DEAD)
                step = max(1, int(_PIECE_BYTES / segment.row_bytes))
                for low in range(0, len(at), step):
                    yield shard, segment.copied(at[low : low + step])

    # Reading ---------------------------------------------------------------------------------------------------------

    def lookup(self, shard: int, wanted: Rows, chosen: np.ndarray, horizon: int) -> tuple[Rows, np.ndarray]:
        """Copies of the records with the key and pane of the chosen rows, and the row that matches each."""
        parts, numbers = [], []
        for segment in self._segments:
            pairs = segment.find(self.reads, shard, wanted, chosen, horizon)
            if len(pairs):
                parts.append(pairs.paired())
                numbers.append(pairs.rows)
        return concat_rows(parts, self._layout), np.concatenate(numbers) if numbers else np.empty(0, np.int64)

    def with_hashes(
        self, shard: int, hashes: np.ndarray, horizon: int, panes: np.ndarray | None = None
    ) -> Iterator[FoundRecords]:
        """Copies of the records that have one of these hashes in the pane beside it (0 where none is given).

        Each hash and pane is named once; keys do not matter.
        """
        wanted = np.zeros((len(hashes), self._layout.words), np.int64)
        wanted[:, HASH] = hashes
        if panes is not None:
            wanted[:, PANE] = panes
        everyone = np.arange(len(hashes), dtype=np.int64)
        for segment in self._segments:
            rows = Rows(wanted, np.empty(0, np.uint8))
            pairs = segment.find(self.reads, shard, rows, everyone, horizon, by_hash=True)
            if len(pairs):
                yield FoundRecords(segment, *pairs.distinct())

    def find(self, shard: int, wanted: Rows, chosen: np.ndarray, horizon: int) -> Iterator[FoundRecords]:
        """As ``lookup``, but each record once, however many rows match it, and with its position."""
        for segment in self._segments:
            pairs = segment.find(self.reads, shard, wanted, chosen, horizon)
            if len(pairs):
                yield FoundRecords(segment, *pairs.distinct())

    def panes(self, shard: int, first: int, end: int) -> np.ndarray:
        """Starts of the panes in ``[first, end)`` that have records, ascending."""
        found = [np.empty(0, np.int64)]
        for segment in self._segments:
            cells = segment.cells_of(shard)
            panes = segment.panes[cells][segment.live[cells] > 0]
            found.append(panes[(panes >= first) & (panes < end)])
        return np.unique(np.concatenate(found))

    def bytes_of(self, shard: int, panes: np.ndarray) -> int:
        """About what the records of these panes take."""
        total = 0.0
        for segment in self._segments:
            cells = segment.cells_of(shard)
            total += segment.row_bytes * segment.live[cells][np.isin(segment.panes[cells], panes)].sum()
        return int(total)

    def rows_of(
        self, shard: int, panes: np.ndarray, first_fingerprint: int = 0, end_fingerprint: int = ck.DEAD
    ) -> Rows:
        """Copies of the records of these panes whose fingerprints lie in a range."""
        parts = []
        for segment in self._segments:
            cells = segment.cells_of(shard)
            numbers = cells.start + np.flatnonzero(np.isin(segment.panes[cells], panes))
            at = segment.live_in(numbers, first_fingerprint, end_fingerprint)
            if len(at):
                parts.append(segment.copied(at))
        return concat_rows(parts, self._layout) if parts else no_rows(self._layout)

    # Records that come -----------------------------------------------------------------------------------------------

    def put(self, parts: Iterable[tuple[int, Rows]], count: int, epoch: int | None = None) -> None:
        """Records of some shards, ascending, as a new segment, the write-back buffer. ``count``: of all of them.

        ``epoch``: an undoable one that has made them what they are.
        """
        self._buffer.finish(self._segments)
        writer = MemoryWriter(self._layout, count)
        for shard, rows in parts:
            at = np.arange(len(rows), dtype=np.int64)
            writer.add(shard, [(rows, at, np.zeros(len(rows), bool))])
        segment = writer.finish()
        if segment is not None:
            self._segments.append(segment)
            if epoch is not None:
                self._of_epoch.setdefault(epoch, []).append(segment)

    def write_buffer(self) -> None:
        """Begin to write the write-back buffer in the background."""
        if self._segments and self._segments[-1].buffered_bytes:
            self._buffer.write(self._segments[-1])

    def wait_for_writes(self) -> None:
        """Until the buffer is written, or cannot be."""
        self._buffer.wait()

    def raise_failed_write(self) -> None:
        """Try once more to write a buffer that could not be written, and raise the error of the disk."""
        if self._buffer.tried:
            self._buffer.finish(self._segments)

    def take_back(self, shards: Sequence[int]) -> None:
        """The records that the newest segment got of these shards stay in their tables."""
        newest = self._segments[-1]
        newest.drop(np.isin(newest.shards, shards))

    # Upkeep ----------------------------------------------------------------------------------------------------------

    def drop_shard(self, shard: int) -> None:
        for segment in self._segments:
            segment.drop(segment.shards == shard)

    def compact(self, floor: int) -> None:
        """Drop cells below the floor, merge segments that have become many, compact those that are mostly dead."""
        if not self._segments:
            return
        for segment in self._segments:
            segment.drop(segment.panes < floor)
        self._close_empty()
        started = clock.thread_cpu()
        with suppress(OSError):  # a full disk stops the compaction, which is all or nothing, and nothing else
            self._compact_groups()
        self.compaction_cpu_s += clock.thread_cpu() - started
        self.reads.keep_only([segment.uid for segment in self._segments])

    def _compact_groups(self) -> None:
        compaction_groups = compaction_groups_for(self.disk_bytes)
        by_compaction_group: dict[CompactionGroup, list[Segment]] = {}
        for segment in self._lasting():
            by_compaction_group.setdefault(segment.compaction_group.within(compaction_groups), []).append(segment)
        for compaction_group, own in by_compaction_group.items():
            count = newest_to_merge([segment.disk_bytes for segment in own])
            if count:
                self._replace(own[-count:], compaction_group, compaction_groups)
                break  # the next group next time: no epoch pays for all
        while lasting := self._lasting():
            needed = [self._needed_bytes(segment) for segment in lasting]
            if sum(segment.disk_bytes for segment in lasting) <= self._amplification_max * sum(needed):
                return
            shares = [bytes_ / segment.disk_bytes for bytes_, segment in zip(needed, lasting, strict=True)]
            emptiest = lasting[int(np.argmin(shares))]
            self._replace([emptiest], emptiest.compaction_group, compaction_groups)

    def _lasting(self) -> list[Segment]:
        """The segments that no undoing will drop."""
        undoable = {id(segment) for segments in self._of_epoch.values() for segment in segments}
        return [segment for segment in self._segments if id(segment) not in undoable]

    def close(self) -> None:
        """Nothing is left, on disk neither."""
        self.reads.close()
        for segment in self._segments:
            segment.close()
        self._buffer.close()
        self._taken.clear()
        self._segments, self._of_epoch = [], {}

    def _needed_bytes(self, segment: Segment) -> float:
        return (int(segment.live.sum()) + len(self._taken.of_segment(segment))) * segment.row_bytes

    def _close_empty(self) -> None:
        stay = []
        for segment in self._segments:
            if segment.live.any() or (len(segment.panes) and len(self._taken.of_segment(segment))):
                stay.append(segment)
            else:
                segment.close()
        self._segments = stay
        for epoch, segments in self._of_epoch.items():
            self._of_epoch[epoch] = [segment for segment in segments if segment in stay]

    def _replace(self, old: Sequence[Segment], within: CompactionGroup = EVERY, compaction_groups: int = 1) -> None:
        """Replace segments by one, or by one for each compaction group where there are so many groups.

        It holds the records that are live or can become live again. ``within``: the group that all segments are in.
        """
        place = self._segments.index(old[0])
        self.compactions += 1
        undoable = [np.sort(self._taken.of_segment(segment)) for segment in old]
        new: list[tuple[Segment, list[Moved]]] = []
        try:
            for compaction_group in within.parted(compaction_groups, sum(segment.disk_bytes for segment in old)):
                writer = DiskWriter(self._layout, self._folder, compaction_group=compaction_group, direct=self._direct)
                made, moved = compact(old, undoable, writer, self._pause)
                if made is not None:
                    new.append((made, moved))
            self._follow(old, [made for made, _ in new])
        except BaseException:
            for made, _ in new:
                made.close()
            raise
        stay = [segment for segment in self._segments if segment not in old]
        self._segments = [*stay[:place], *(made for made, _ in new), *stay[place:]]
        self._taken.follow(old, new)
        for segment in old:
            segment.close()
        for made, _ in new:
            made.load_fingerprints()

    def _follow(self, old: Sequence[Segment], new: Sequence[Segment]) -> None:
        """Cached records that lie elsewhere now stay cached, and so do hints that name them."""
        known = self.reads.known()
        for segment in old:
            at = positions_in(segment, known)
            for made in new if len(at) else ():
                which, places = made.places_of(segment, at)
                self.reads.moved(ids_of(segment, at[which]), made, places)
