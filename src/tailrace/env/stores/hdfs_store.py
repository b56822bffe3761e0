"""Objects as files of HDFS, through WebHDFS: its REST interface, which every cluster has and needs no Hadoop here.

An object is written under ``.tmp/``, closed, then renamed to its name: with ``OVERWRITE`` (put), or with ``NONE``
(put if absent), which the name node refuses where the name exists. It decides renames one after the other, so there is
one winner. A closed file is as durable as the cluster makes it: see ``dfs.datanode.synconclose``.

A rename whose answer was lost finds its source gone when it is sent again: then the bytes under the name are compared.
Objects up to ``HELD_BYTES_MAX`` are sent again where that may help; larger ones come from a generator and cannot be.

Every request has a connection of its own, which is given up after ``STALL_S`` without progress. Safe from any thread
and from several processes on one folder.
"""

from __future__ import annotations

import getpass
import http.client
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, TypeVar
from urllib.parse import quote, unquote, urlencode, urlsplit

from tailrace.env.randomness import short_id
from tailrace.env.retry import keep_trying
from tailrace.env.stores.object_store import StoredObject, check_name, check_prefix
from tailrace.errors import CheckpointError

RETRY_S = 120.0
STALL_S = 5.0
HELD_BYTES_MAX = 8 << 20
HTTP_PORT = 9870
"""Of the name node, since Hadoop 3; ``hdfs://`` addresses name its other port."""

ADDRESS_VARIABLE = "TAILRACE_WEBHDFS"
TEMPORARY = ".tmp"
_PASSING = ("StandbyException", "RetriableException", "SafeModeException", "ServerTooBusyException")
_MISSING, _EXISTS = "FileNotFoundException", "FileAlreadyExistsException"
_Answer = TypeVar("_Answer")


class _RemoteError(Exception):
    """What the cluster has answered in place of success."""

    def __init__(self, status: int, kind: str, message: str) -> None:
        super().__init__(f"{kind or 'status'}: {message}, status {status}" if kind else f"status {status}")
        self.status, self.kind = status, kind


class HdfsStore:
    def __init__(self, uri: str, options: Mapping[str, str]) -> None:
        """``hdfs://name-node/path`` or ``webhdfs://name-node:port/path``. ``options``: ``retry_s``, ``stall_s``."""
        self._uri = uri.rstrip("/")
        parts = urlsplit(self._uri)
        if not parts.hostname:
            raise CheckpointError(f"{uri} names no host: write hdfs://NAMENODE/path, or webhdfs://NAMENODE:PORT/path.")
        self._path = unquote(parts.path).rstrip("/")
        self._retry_s = float(options.get("retry_s", RETRY_S))
        self._stall_s = float(options.get("stall_s", STALL_S))
        port = parts.port if parts.scheme == "webhdfs" and parts.port else HTTP_PORT
        given = os.environ.get(ADDRESS_VARIABLE, "")
        self._nodes = [each.strip() for each in given.split(",") if each.strip()] or [f"{parts.hostname}:{port}"]
        self._user = os.environ.get("HADOOP_USER_NAME") or getpass.getuser()
        self._known_folders: set[str] = set()

    @property
    def uri(self) -> str:
        return self._uri

    def put(self, name: str, parts: Iterable[Any]) -> int:
        check_name(name)
        iterator = iter(parts)
        held: list[memoryview] = []
        size = 0
        for part in iterator:
            held.append(memoryview(part).cast("B"))
            size += held[-1].nbytes
            if size > HELD_BYTES_MAX:
                break
        else:
            self._named(name, b"".join(held), "OVERWRITE")
            return size

        def counted() -> Iterator[memoryview]:
            nonlocal size
            for part in iterator:
                view = memoryview(part).cast("B")
                size += view.nbytes
                yield view

        self._named(name, chain(held, counted()), "OVERWRITE")
        return size

    def put_if_absent(self, name: str, data: Any) -> bool:
        check_name(name)
        return self._named(name, bytes(data), "NONE")

    def get(self, name: str) -> bytes:
        check_name(name)
        return self._ask("read", name, lambda: self._open(name))

    def get_range(self, name: str, start: int, length: int) -> bytes:
        check_name(name)
        if length <= 0:
            return b""

        def get() -> bytes:
            # An offset past the end is refused by the data node, whose words differ from version to version.
            size = int(self._call("GET", name, "GETFILESTATUS")["FileStatus"]["length"])
            return b"" if start >= size else self._open(name, offset=start, length=min(length, size - start))

        return self._ask("read", name, get)

    def list(self, prefix: str) -> list[StoredObject]:
        check_prefix(prefix)

        found = self._ask("list", prefix, lambda: list(self._listed(prefix.rstrip("/"))))
        return sorted(found, key=lambda each: each.name)

    def _listed(self, folder: str) -> Iterator[StoredObject]:
        try:
            statuses = self._call("GET", folder, "LISTSTATUS")["FileStatuses"]["FileStatus"]
        except _RemoteError as error:
            if error.kind == _MISSING:
                return
            raise
        for each in statuses:
            path = f"{folder}/{each['pathSuffix']}".lstrip("/")
            if each["type"] != "DIRECTORY":
                yield StoredObject(path, int(each["length"]))
            elif path != TEMPORARY:
                yield from self._listed(path)

    def delete(self, names: Sequence[str]) -> None:
        for name in names:
            self._remove("delete", check_name(name))

    def sweep(self, may: Callable[[], object]) -> None:
        left = self._ask("list", TEMPORARY, lambda: list(self._listed(TEMPORARY)))
        may()
        for each in left:
            self._remove("clean", each.name)

    def _remove(self, verb: str, name: str) -> None:
        self._ask(verb, name, lambda: self._call("DELETE", name, "DELETE", recursive="true"))

    def _named(self, name: str, data: Any, option: str) -> bool:
        """Create a file under another name and rename it. Whether it got the name.

        Bytes can be sent again, an iterator cannot.
        """
        folder = name.rpartition("/")[0]
        temporary = f"{TEMPORARY}/{short_id()}{short_id()}"
        lost_answer = False

        def rename() -> bool:
            nonlocal lost_answer
            target = f"{self._path}/{name}"
            try:
                self._call("PUT", temporary, "RENAME", destination=target, renameoptions=option)
                return True
            except _RemoteError as error:
                if lost_answer and error.kind in (_EXISTS, _MISSING):
                    return isinstance(data, bytes) and self._open(name) == data
                if error.kind == _EXISTS:
                    return False
                raise
            except OSError:
                lost_answer = True
                raise

        try:
            if folder not in self._known_folders:
                self._ask("create", folder, lambda: self._call("PUT", folder, "MKDIRS"))
                self._known_folders.add(folder)
            if isinstance(data, bytes):
                self._ask("write", name, lambda: self._create(temporary, data))
            else:
                try:
                    self._create(temporary, data)
                except (OSError, _RemoteError) as error:
                    raise self._explained("write", name, error, "") from error
            won = self._ask("write", name, rename)
        except BaseException:
            self._known_folders.discard(folder)
            raise
        if not won:
            self._remove("clean", temporary)
        return won

    def _create(self, name: str, body: Any) -> None:
        place = self._redirected("PUT", name, "CREATE", overwrite="true")
        streamed = not isinstance(body, bytes)
        headers = {"Content-Type": "application/octet-stream"} | ({"Transfer-Encoding": "chunked"} if streamed else {})
        self._request("PUT", place, body, headers, encode_chunked=streamed)

    def _open(self, name: str, **range_: int) -> bytes:
        return self._request("GET", self._redirected("GET", name, "OPEN", **range_))[0]

    def _redirected(self, method: str, name: str, op: str, **arguments: Any) -> tuple[str, str]:
        """The data node, and the path there, that the name node sends us to."""
        location = self._request(method, self._at(name, op, arguments))[1]
        if not location:
            raise _RemoteError(200, "", "no data node was named")
        parts = urlsplit(location)
        return parts.netloc, f"{parts.path}?{parts.query}"

    def _call(self, method: str, name: str, op: str, **arguments: Any) -> dict[str, Any]:
        body = self._request(method, self._at(name, op, arguments))[0]
        return dict(json.loads(body)) if body else {}

    def _at(self, name: str, op: str, arguments: Mapping[str, Any]) -> tuple[str, str]:
        query = urlencode({"op": op, "user.name": self._user, **arguments})
        return self._nodes[0], f"/webhdfs/v1{quote(f'{self._path}/{name}'.rstrip('/') or '/')}?{query}"

    def _request(
        self,
        method: str,
        place: tuple[str, str],
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        encode_chunked: bool = False,
    ) -> tuple[bytes, str]:
        """The answer's body, and where it sends us, if it does."""
        connection = http.client.HTTPConnection(place[0], timeout=self._stall_s)
        try:
            connection.request(method, place[1], body, dict(headers or {}), encode_chunked=encode_chunked)
            answer = connection.getresponse()
            data = answer.read()
        except http.client.HTTPException as error:
            raise ConnectionError(f"half an answer from {place[0]}: {error!r}") from error
        finally:
            connection.close()
        if answer.status < 300:
            return data, ""
        if answer.status in (301, 302, 307):
            return b"", answer.headers["Location"] or ""
        try:
            remote = json.loads(data)["RemoteException"]
            raise _RemoteError(answer.status, remote["exception"], str(remote["message"]).split("\n", 1)[0])
        except (ValueError, KeyError, TypeError):
            raise _RemoteError(answer.status, "", "") from None

    def _ask(self, verb: str, name: str, work: Callable[[], _Answer]) -> _Answer:
        def may_pass(error: Exception) -> bool:
            if isinstance(error, _RemoteError):
                if error.kind == "StandbyException":  # the next of the name nodes, in turn
                    self._nodes = [*self._nodes[1:], self._nodes[0]]
                return error.kind in _PASSING or (error.status >= 500 and not error.kind)
            if isinstance(error, OSError):
                self._nodes = [*self._nodes[1:], self._nodes[0]]
                return True
            return False

        return keep_trying(
            work, may_pass, lambda error, tried: self._explained(verb, name, error, tried), self._retry_s
        )

    def _explained(self, verb: str, name: str, error: Exception, tried: str) -> Exception:
        place = f"{self._uri}/{name}"
        if not isinstance(error, OSError | _RemoteError):
            return error
        if isinstance(error, _RemoteError) and error.kind == _MISSING and verb == "read":
            return FileNotFoundError(f"no such object: {place}")
        again = "then start the query again: it continues from the last durable epoch."
        if isinstance(error, _RemoteError) and (error.kind == "AccessControlException" or error.status in (401, 403)):
            return CheckpointError(
                f"Cannot {verb} {place}: HDFS refuses it to the user {self._user} ({error}). Give that user the rights "
                f"there, or name another by HADOOP_USER_NAME (Kerberos is not supported), {again}"
            )
        reason = f"{tried}; the last trouble: {error}" if tried else str(error)
        return CheckpointError(
            f"Cannot {verb} {place}: {reason}. Check that {self._nodes[0]} is the name node's web address (else give "
            f"it by the environment variable {ADDRESS_VARIABLE}=HOST:PORT) and that the cluster is up, {again}"
        )
