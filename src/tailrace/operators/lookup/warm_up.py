"""Run every kernel of lookup joins once (see ``warm_up``)."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tailrace.ids import MIN_MICROS, Micros
from tailrace.operators.ingest.rows import PassingIngest
from tailrace.operators.lookup.backend import Answer, Asker
from tailrace.operators.lookup.operator import LookupJoin
from tailrace.operators.lookup.redis import resp_kernels as rk
from tailrace.operators.lookup.redis.connection import request
from tailrace.operators.lookup.spec import LookupSpec, TableSpec
from tailrace.types import DataType, Field

_KEY, _VALUE = Field("k", DataType("string")), Field("v", DataType("string"))
_TABLE = TableSpec("dbapi", "warm-up", Micros(0), "{}")
_SPEC = LookupSpec("warm-up", (_KEY,), (), (_VALUE,), ("v",), _TABLE, True, None, shards=1)


class _Nothing:
    """A table in which every key has itself for a value."""

    piece = 1024
    mapped = False

    def ask(self, keys: list[pa.Array]) -> Answer:
        return Answer(np.ones(len(keys[0]), bool), [keys[0].cast(pa.large_string())])

    def close(self) -> None: ...


def warm_up_lookup() -> None:
    batch = pa.RecordBatch.from_pydict({"k": pa.array(["a", "b", None])})
    operator = LookupJoin(_SPEC, [0], Asker(_SPEC, _Nothing()), memory_bytes=1 << 16)
    for epoch in range(2):
        frame = PassingIngest(_SPEC).frame([batch])
        operator.hint_frame(frame, epoch)
        operator.apply(epoch, [frame])
        operator.advance(epoch, MIN_MICROS, MIN_MICROS)
    operator.close()
    sent = np.frombuffer(request(pa.array([b"a", b"b"], pa.large_binary()), b"p", b"", b""), np.uint8)
    reply = np.array(bytearray(b"*2\r\n$1\r\na\r\n$-1\r\n"), np.uint8)
    starts, lengths, offsets = np.zeros(2, np.int64), np.zeros(2, np.int64), np.zeros(3, np.int64)
    rk.read_replies(reply, len(reply), np.array([0, 1, 0, -1], np.int64), starts, lengths)
    rk.gather(reply, starts, lengths, 0, 1, offsets, np.empty(len(sent), np.uint8))
