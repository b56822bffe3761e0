"""Redis: a server of its own on this machine, started for the store and ended with it (`lab.redis_server`).

A scalar call is a round trip. A micro-batch is one pipeline of its accesses as they come: the server does them in
order, so nothing needs to be combined.
"""

from __future__ import annotations

from typing import Any, ClassVar

from tailrace.lab.gadget.stores.contract import Batch, Settings, Store, package
from tailrace.lab.gadget.traces.trace import Operation
from tailrace.lab.servers.redis import RedisServer


class RedisStore(Store):
    name: ClassVar[str] = "redis"
    batch_note: ClassVar[str] = "one pipeline, in order"
    concurrent: ClassVar[bool] = True

    def __init__(self, settings: Settings) -> None:
        redis = package("redis", "`pip install tailrace[lab]`")
        self._memory_bytes = settings.memory_bytes
        self._server = RedisServer()
        self._server.__enter__()
        try:
            self._client: Any = redis.Redis(port=self._server.port)
            self._client.config_set("maxmemory", settings.memory_bytes)
            self._client.config_set("maxmemory-policy", "noeviction")
        except BaseException:
            self._server.__exit__(None, None, None)
            raise

    @property
    def memory(self) -> dict[str, int]:
        return {"maxmemory": self._memory_bytes}

    def get(self, key: bytes) -> bytes | None:
        found: bytes | None = self._client.get(key)
        return found

    def put(self, key: bytes, value: bytes) -> None:
        self._client.set(key, value)

    def merge(self, key: bytes, value: bytes) -> None:
        self._client.append(key, value)

    def delete(self, key: bytes) -> None:
        self._client.unlink(key)

    def run(self, batch: Batch) -> list[bytes | None]:
        names = batch.names
        with self._client.pipeline(transaction=False) as pipeline:
            run = pipeline.execute_command
            for operation, key, value in zip(batch.operations.tolist(), batch.keys.tolist(), batch.values):
                if operation == Operation.GET:
                    run("GET", names[key])
                elif operation == Operation.PUT:
                    run("SET", names[key], value)
                elif operation == Operation.MERGE:
                    run("APPEND", names[key], value)
                else:
                    run("UNLINK", names[key])
            said = pipeline.execute()
        return [said[place] for place in (batch.operations == Operation.GET).nonzero()[0].tolist()]

    def close(self) -> None:
        self._client.close()
        self._server.__exit__(None, None, None)
