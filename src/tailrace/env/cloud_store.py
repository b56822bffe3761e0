"""Objects in S3, Google Cloud Storage, Azure Blob Storage, or in this process's memory, through obstore.

A put of an object store is atomic and durable when it returns, and a conditional put (mode ``create``) is its
put-if-absent. The client retries by itself; so a conditional put that was answered too late may be told that the name
is taken by its own first attempt: who cares reads the object and compares (``commit.log`` does).

Safe from any thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, NotFoundError, NotSupportedError, PreconditionError
from obstore.store import MemoryStore, from_url

from tailrace.env.store import StoredObject, check_name, check_prefix
from tailrace.errors import CheckpointError

SINGLE_PUT_BYTES_MAX = 32 << 20
"""Objects up to this size go out in one request; larger ones in parts."""

_MEMORY: dict[str, MemoryStore] = {}
"""``memory://`` stores by name, so that a query restarted in the same process finds its state again."""


class CloudStore:
    def __init__(self, uri: str, options: Mapping[str, str]) -> None:
        self._uri = uri.rstrip("/")
        if uri.startswith("memory:"):
            self._store: Any = _MEMORY.setdefault(self._uri, MemoryStore())
            return
        try:
            self._store = from_url(  # type: ignore[call-overload]  # the options decide which overload it is
                self._uri,
                config=dict(options) or None,
                client_options={"allow_http": True, "timeout": timedelta(seconds=60)},
                retry_config={"max_retries": 8, "retry_timeout": timedelta(seconds=120)},
            )
        except (BaseError, ValueError, OSError) as error:
            raise CheckpointError(
                f"Cannot open the state location {uri}: {_first_line(error)}. "
                "Check the address and the options or environment variables that hold region and credentials."
            ) from error

    @property
    def uri(self) -> str:
        return self._uri

    def put(self, name: str, parts: Iterable[Any]) -> int:
        check_name(name)
        size = 0
        iterator = iter(parts)
        head: list[memoryview] = []
        for part in iterator:
            head.append(memoryview(part).cast("B"))
            size += head[-1].nbytes
            if size > SINGLE_PUT_BYTES_MAX:
                break
        else:
            with self._explained("write", name):
                obstore.put(self._store, name, b"".join(head), use_multipart=False)
            return size

        def counted() -> Iterator[memoryview]:
            nonlocal size
            while head:
                yield head.pop(0)
            for part in iterator:
                view = memoryview(part).cast("B")
                size += view.nbytes
                yield view

        with self._explained("write", name):
            obstore.put(self._store, name, counted(), use_multipart=True, max_concurrency=4)
        return size

    def put_if_absent(self, name: str, data: Any) -> bool:
        check_name(name)
        with self._explained("write", name):
            try:
                obstore.put(self._store, name, bytes(data), mode="create", use_multipart=False)
            except (AlreadyExistsError, PreconditionError):
                return False
            return True

    def get(self, name: str) -> bytes:
        check_name(name)
        with self._explained("read", name):
            return bytes(obstore.get(self._store, name).bytes())

    def get_range(self, name: str, start: int, length: int) -> bytes:
        check_name(name)
        with self._explained("read", name):
            if length <= 0:
                return b""
            try:
                return bytes(obstore.get_range(self._store, name, start=start, length=length))
            except BaseError:
                # Stores differ in how they refuse a range past the end; the size settles it.
                size = obstore.head(self._store, name)["size"]
                if start + length <= size:
                    raise
                if start >= size:
                    return b""
                return bytes(obstore.get_range(self._store, name, start=start, end=size))

    def list(self, prefix: str) -> list[StoredObject]:
        check_prefix(prefix)
        with self._explained("list", prefix):
            found = [
                StoredObject(each["path"], each["size"])
                for chunk in obstore.list(self._store, prefix=prefix[:-1] or None)
                for each in chunk
            ]
        return sorted(found, key=lambda each: each.name)

    def delete(self, names: Sequence[str]) -> None:
        for name in names:
            check_name(name)
            with self._explained("delete", name):
                try:
                    obstore.delete(self._store, name)
                except (FileNotFoundError, NotFoundError):
                    continue

    def sweep(self) -> None:
        """Nothing to do: a put that did not finish leaves no object."""

    @contextmanager
    def _explained(self, verb: str, name: str) -> Iterator[None]:
        try:
            yield
        except (FileNotFoundError, NotFoundError):
            if verb == "read":
                raise FileNotFoundError(f"no such object: {self._uri}/{name}") from None
            raise CheckpointError(
                f"Cannot {verb} {self._uri}/{name}: there is no such bucket or container. "
                "Create it, or choose another place with the option stateLocation."
            ) from None
        except NotSupportedError as error:
            raise CheckpointError(
                f"Cannot {verb} {self._uri}/{name}: the store does not support it ({_first_line(error)}). "
                "Choose a state location that supports conditional puts."
            ) from error
        except (BaseError, OSError) as error:
            raise CheckpointError(
                f"Cannot {verb} {self._uri}/{name}: {_first_line(error)}. "
                "Check the address, the credentials and the network; the query continues from the last durable epoch."
            ) from error


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n", 1)[0].rstrip(".")
