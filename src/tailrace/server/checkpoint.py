"""A server's side of the checkpoint: writes its deltas, reads its shards, folds in the background.

Threading: called by one thread at a time (the engine's commit lock). Folding has a thread of its own, which touches
only the store.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import pyarrow as pa

from tailrace.commit import ranges
from tailrace.commit.fold import Folder, FoldSections
from tailrace.commit.manifest import Fold
from tailrace.commit.objects import ObjectRef, read_sections, write_object
from tailrace.env.store import ObjectStore
from tailrace.ids import Attempt


class StoreCheckpoint:
    def __init__(self, store: ObjectStore, run: str, server: str, fold_sections: FoldSections) -> None:
        self._store = store
        self._run = run
        self._server = server
        self._folder = Folder(store, fold_sections, run=run, server=server)

    def write(
        self,
        at: Attempt,
        shards: Iterable[int],
        sections: Mapping[str, Mapping[int, pa.RecordBatch]],
        horizons: Mapping[str, int],
    ) -> ObjectRef:
        return write_object(
            self._store,
            run=self._run,
            try_=at.try_,
            server=self._server,
            first_epoch=at.epoch,
            last_epoch=at.epoch,
            shards=ranges.of_shards(shards),
            sections=sections,
            horizons=horizons,
        )

    def read(
        self, refs: Sequence[ObjectRef], operator: str, shards: Iterable[int], horizons: Mapping[str, int]
    ) -> Iterator[tuple[int, list[pa.RecordBatch], int]]:
        return read_sections(self._store, refs, operator, shards, horizons)

    def fold(self, refs: Sequence[ObjectRef], shards: Iterable[int], epoch: int, horizons: Mapping[str, int]) -> None:
        self._folder.submit(refs, shards, epoch, horizons)

    def folds(self) -> list[Fold]:
        return self._folder.finished()

    def close(self) -> None:
        self._folder.close()
