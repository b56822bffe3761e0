"""A store whose library wants an object for each key and value: a micro-batch is combined, then read and written so."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tailrace.lab.gadget.stores.combine import kernels as ck
from tailrace.lab.gadget.stores.combine.combine import Combiner, columns_of, list_of
from tailrace.lab.gadget.stores.contract import Batch, Store, Values


class CombinedStore(Store):
    """For stores that cannot append without reading: what is merged is read with the rest and put back whole."""

    def merge(self, key: bytes, value: bytes) -> None:
        self.put(key, (self.get(key) or b"") + value)

    def get_many(self, keys: list[bytes]) -> list[bytes | None]:
        """One call a key, for stores whose library has nothing better."""
        return [self.get(key) for key in keys]

    def write_many(self, puts: Sequence[tuple[bytes, bytes]], deletes: Sequence[bytes]) -> None:
        """No key is named twice. One call a key, as above, in the order in which a tree has them."""
        for key, value in sorted(puts):
            self.put(key, value)
        for key in deletes:
            self.delete(key)

    def run(self, batch: Batch) -> Values:
        if not hasattr(self, "_combiner"):
            self._combiner = Combiner()
        plan = self._combiner.plan(batch)
        names = [batch.names[key] for key in plan.names.tolist()]
        read = plan.to_read(and_merged=True)
        found = self.get_many([names[number] for number in read.tolist()])
        answers = plan.answers(read, columns_of(found))
        puts, merges, deletes = (np.flatnonzero(plan.writes == kind) for kind in (ck.PUT, ck.MERGE, ck.DELETE))
        put = [(names[number], value) for number, value in zip(puts.tolist(), list_of(plan.written(puts)))]
        merge = [(names[number], value) for number, value in zip(merges.tolist(), list_of(plan.written(merges)))]
        if merge:
            held = dict(zip(read.tolist(), found))
            put += [(key, (held[n] or b"") + value) for n, (key, value) in zip(merges.tolist(), merge)]
        self.write_many(put, [names[number] for number in deletes.tolist()])
        return answers
