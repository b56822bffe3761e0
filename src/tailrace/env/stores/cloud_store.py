"""Objects in S3, Google Cloud Storage, Azure Blob Storage, or in this process's memory, through obstore.

A put of an object store is atomic and durable when it returns, and a conditional put (mode ``create``) is its
put-if-absent. Rules:

- A request that fails and may succeed later is sent again, with pauses that grow, until ``RETRY_S`` have passed since
  the first; then a ``CheckpointError`` says so. A refusal (credentials, bucket) is raised at once.
- A request that makes no progress for ``STALL_S`` is given up and sent again. A client cannot see how far an upload has
  come, so an upload is given ``STALL_S`` and the time that its bytes take at ``SLOWEST_BYTES_PER_S``.
- A conditional put whose answer was lost may find its own object on the next try: it then compares, and has won where
  the bytes are equal. A caller that has to distinguish two writers writes different bytes.
- Large objects go out in parts, of which a few are under way at once.

Safe from any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, TypeVar

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, NotFoundError, PreconditionError
from obstore.store import MemoryStore, from_url

from tailrace.env.retry import FIRST_PAUSE_S, PAUSE_S_MAX, keep_trying
from tailrace.env.stores.cloud_errors import explained, is_bucket_gone, may_pass
from tailrace.env.stores.object_store import StoredObject, check_name, check_prefix
from tailrace.errors import CheckpointError

RETRY_S = 120.0
STALL_S = 5.0
SLOWEST_BYTES_PER_S = 512 << 10
"""Of one upload; ``PARTS_AT_ONCE`` of them share the way out."""

PART_BYTES = 5 << 20
"""The smallest part that S3 takes: a quarter of a second at 20 MB/s, so five requests' latency, and soon sent again."""

PARTS_AT_ONCE = 4
SINGLE_PUT_BYTES_MAX = 8 << 20
"""Objects up to this size go out in one request; larger ones in parts, which costs two requests more."""

DELETED_AT_ONCE = 1000
_WHOLE_READ_S = 3600.0
_UPLOAD_STEPS = (256 << 10, 1 << 20, PART_BYTES, SINGLE_PUT_BYTES_MAX)

_MEMORY: dict[str, MemoryStore] = {}
"""``memory://`` stores by name, so that a query restarted in the same process finds its state again."""

_Answer = TypeVar("_Answer")


class CloudStore:
    def __init__(self, uri: str, options: Mapping[str, str]) -> None:
        """``options``: obstore's, and ours: ``retry_s`` and ``stall_s`` in place of the constants above."""
        self._uri = uri.rstrip("/")
        self._options = dict(options)
        self._retry_s = float(self._options.pop("retry_s", RETRY_S))
        self._stall_s = float(self._options.pop("stall_s", STALL_S))
        self._memory = _MEMORY.setdefault(self._uri, MemoryStore()) if uri.startswith("memory:") else None
        self._clients: dict[tuple[float, bool], Any] = {}  # by their timeout, and whether they retry; made when needed
        self._reader = self._client(_WHOLE_READ_S)

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
            self._put_whole(name, b"".join(head))
            return size

        def counted() -> Iterator[memoryview]:
            nonlocal size
            while head:
                yield head.pop(0)
            for part in iterator:
                view = memoryview(part).cast("B")
                size += view.nbytes
                yield view

        try:
            obstore.put(
                self._client(self._upload_s(PART_BYTES), retries=True),
                name,
                counted(),
                use_multipart=True,
                chunk_size=PART_BYTES,
                max_concurrency=PARTS_AT_ONCE,
            )
        except (BaseError, OSError) as error:
            tried = f"parts were sent again and again for {self._retry_s:g} s" if may_pass(error) else ""
            raise explained(error, "write", self._place(name), tried) from error
        return size

    def put_if_absent(self, name: str, data: Any) -> bool:
        check_name(name)
        wanted = bytes(data)
        writer = self._client(self._upload_s(len(wanted)))
        lost_answer = False

        def put() -> bool:
            nonlocal lost_answer
            try:
                obstore.put(writer, name, wanted, mode="create", use_multipart=False)
                return True
            except (AlreadyExistsError, PreconditionError) as error:
                # Also S3's word for another put of the name that is still under way, and may yet fail.
                try:
                    kept = bytes(obstore.get(self._reader, name).bytes())
                except (FileNotFoundError, NotFoundError):
                    raise ConnectionError(f"a put of the same name was under way ({type(error).__name__})") from error
                return lost_answer and kept == wanted
            except (BaseError, OSError):
                lost_answer = True
                raise

        return self._ask("write", name, put)

    def get(self, name: str) -> bytes:
        check_name(name)
        return self._ask("read", name, lambda: bytes(obstore.get(self._reader, name).bytes()))

    def get_range(self, name: str, start: int, length: int) -> bytes:
        check_name(name)
        if length <= 0:
            return b""

        def get() -> bytes:
            try:
                return bytes(obstore.get_range(self._reader, name, start=start, length=length))
            except NotFoundError:
                raise
            except BaseError:
                # Stores differ in how they refuse a range past the end; the size decides.
                size = obstore.head(self._reader, name)["size"]
                if start + length <= size:
                    raise
                if start >= size:
                    return b""
                return bytes(obstore.get_range(self._reader, name, start=start, end=size))

        return self._ask("read", name, get)

    def list(self, prefix: str) -> list[StoredObject]:
        check_prefix(prefix)
        found = self._ask(
            "list",
            prefix,
            lambda: [
                StoredObject(each["path"], each["size"])
                for chunk in obstore.list(self._reader, prefix=prefix[:-1] or None)
                for each in chunk
            ],
        )
        return sorted(found, key=lambda each: each.name)

    def delete(self, names: Sequence[str]) -> None:
        for name in names:
            check_name(name)
        for first in range(0, len(names), DELETED_AT_ONCE):
            some = list(names[first : first + DELETED_AT_ONCE])
            try:
                self._ask("delete", some[0], lambda some=some: obstore.delete(self._reader, some))  # type: ignore[misc]
            except FileNotFoundError:  # some stores say so of one of them, and leave the rest
                for name in some:
                    try:
                        self._ask("delete", name, lambda name=name: obstore.delete(self._reader, name))  # type: ignore[misc]
                    except FileNotFoundError:
                        continue

    def sweep(self, may: Callable[[], object]) -> None:
        """Nothing to do: a put that did not finish leaves no object."""
        may()

    def _ask(self, verb: str, name: str, work: Callable[[], _Answer]) -> _Answer:
        """The answer, of the first request that gets one. ``FileNotFoundError`` where the object is missing."""

        def described(error: Exception, tried: str) -> Exception:
            if not isinstance(error, BaseError | OSError):
                return error
            missing = isinstance(error, FileNotFoundError | NotFoundError) and not is_bucket_gone(error)
            if missing and verb != "write":
                return FileNotFoundError(f"no such object: {self._place(name)}")
            return explained(error, verb, self._place(name), tried)

        return keep_trying(work, may_pass, described, self._retry_s)

    def _put_whole(self, name: str, data: bytes) -> None:
        writer = self._client(self._upload_s(len(data)))
        self._ask("write", name, lambda: obstore.put(writer, name, data, use_multipart=False))

    def _upload_s(self, size: int) -> float:
        """How long an upload of that size may take, in few steps: a client has one timeout."""
        step = next((step for step in _UPLOAD_STEPS if size <= step), SINGLE_PUT_BYTES_MAX)
        return self._stall_s + step / SLOWEST_BYTES_PER_S

    def _place(self, name: str) -> str:
        return f"{self._uri}/{name}"

    def _client(self, timeout_s: float, retries: bool = False) -> Any:
        """``retries``: by the client itself, for the parts of an upload; all else is sent again by ``_ask``."""
        if self._memory is not None:
            return self._memory
        found = self._clients.get((timeout_s, retries))
        return found or self._clients.setdefault((timeout_s, retries), self._new_client(timeout_s, retries))

    def _new_client(self, timeout_s: float, retries: bool) -> Any:
        times = {"timeout": timedelta(seconds=timeout_s), "connect_timeout": timedelta(seconds=self._stall_s)}
        if timeout_s == _WHOLE_READ_S:
            times["read_timeout"] = timedelta(seconds=self._stall_s)  # of an upload it would count the sending too
        pauses = {
            "init_backoff": timedelta(seconds=FIRST_PAUSE_S),
            "max_backoff": timedelta(seconds=PAUSE_S_MAX),
            "base": 2,
        }
        try:
            return from_url(  # type: ignore[call-overload]  # the options decide which overload it is
                self._uri,
                config=self._options or None,
                client_options={"allow_http": True, **times},
                retry_config={
                    "max_retries": 10_000 if retries else 0,
                    "retry_timeout": timedelta(seconds=self._retry_s),
                    "backoff": pauses,
                },
            )
        except (BaseError, ValueError, OSError) as error:
            said = str(error).strip().split("\n", 1)[0].rstrip(".")
            raise CheckpointError(
                f"Cannot open the state location {self._uri}: {said}. "
                "Check the address and the options or environment variables that hold region and credentials."
            ) from error
