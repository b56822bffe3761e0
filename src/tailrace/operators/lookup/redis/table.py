"""A lookup table in Redis. Threads: any; as many connections as ask at once, kept for the next."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.operators.lookup.backend import Answer, ConnectionLost, converted
from tailrace.operators.lookup.redis.connection import RedisAddress, RedisConnection
from tailrace.operators.lookup.spec import LookupSpec
from tailrace.types import DataType

_PIECE = 1024


class RedisTable:
    piece = _PIECE
    mapped = False

    def __init__(self, spec: LookupSpec, options: dict[str, Any], folder: str = "") -> None:
        self._spec = spec
        self._hash = options["layout"] == "hash" or (options["layout"] is None and len(spec.fields) > 1)
        # Where nothing is wanted, one field says whether there is a row.
        self._fields = [value.name for value in spec.values] or [spec.fields[0]]
        self._prefix, self._separator = options["prefix"].encode(), options["separator"].encode()
        names = ("host", "port", "database", "tls", "timeout_s", "user", "password")
        self._address = RedisAddress(**{name: options[name] for name in names})
        self._lock = threading.Lock()
        self._free: list[RedisConnection] = []

    def ask(self, keys: list[pa.Array]) -> Answer:
        text = self._texts(keys)
        connection = self._connection()
        try:
            if self._hash:
                columns = connection.hashes(text, self._prefix, self._fields)
            else:
                columns = [connection.strings(text, self._prefix)]
        except BaseException as error:
            connection.close()
            if isinstance(error, ConnectionLost):
                self.close()  # those that were kept are of the same server
            raise
        with self._lock:
            self._free.append(connection)
        there = np.any([np.asarray(pc.is_valid(column)) for column in columns], axis=0)
        wanted = zip(columns, self._spec.values)
        return Answer(
            there, [converted(column, value.type, value.name, self._spec.table.shown) for column, value in wanted]
        )

    def _texts(self, keys: list[pa.Array]) -> pa.Array:
        texts = [_text(key, field.type) for key, field in zip(keys, self._spec.keys, strict=True)]
        if len(texts) == 1:
            return texts[0]
        return pc.binary_join_element_wise(*texts, pa.scalar(self._separator, pa.large_binary()))

    def _connection(self) -> RedisConnection:
        with self._lock:
            if self._free:
                return self._free.pop()
        return RedisConnection(self._address)

    def close(self) -> None:
        with self._lock:
            free, self._free = self._free, []
        for connection in free:
            connection.close()


def _text(key: pa.Array, type_: DataType) -> pa.Array:
    if type_.name == "binary":
        return key.cast(pa.large_binary())
    return key.cast(pa.large_string()).cast(pa.large_binary())
