"""How the driver and the tasks talk to a state server.

Every failed call is one of ``tailrace.errors``: the server's own error as it was raised there, ``StateServerError``
where the server did not answer in time, and ``UnansweredError`` where the way to it failed, or the way back, and the
call may be made again.

Which calls may be made twice, and what the second one does (``IDEMPOTENT``; the driver makes them again)
- ``open``: the server goes back to the manifest's epoch again. What was staged meanwhile is gone, and prepare says so.
  Where shards move it never goes back: once the next epoch is applied, it is refused.
- ``prepare``, ``run_epoch``: a step that was done for this (epoch, try) gives what it gave the first time.
- ``commit``: a delta is saved once for each (epoch, try); the second call gives the same name.
- ``upload``: the same bytes go to the same name.
- ``forget``, ``compact``: nothing is left to do.
Not ``exchange`` and staging: their rows would come twice, so they are refused, and the epoch gets a new try.

Threading and forks
A ``StateClient`` may be used by several threads. ``connect`` keeps one per process and address. Next to its server, it
calls by local RPC, and gRPC is left for streams; elsewhere all goes through gRPC. A client must never cross a
fork, since neither survives one: the cache is keyed by the process's pid, and a child neither uses nor
closes what its parent had opened.
"""

from __future__ import annotations

import json
import os
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import pyarrow as pa

# Flight hands out buffers at any address. Acero would warn about each; nothing here or in Spark needs them aligned.
os.environ.setdefault("ACERO_ALIGNMENT_HANDLING", "reallocate")

from pyarrow import flight

from tailrace.commit.manifest import EMPTY, Manifest
from tailrace.commit.objects import ObjectRef
from tailrace.env.files.disk import process_id
from tailrace.errors import CertificateError, StateServerError, TailraceError, UnansweredError
from tailrace.ids import MIN_MICROS
from tailrace.server.transport.epoch_messages import (
    CommitResult,
    EpochResult,
    OutputTicket,
    Request,
    Uploaded,
)
from tailrace.server.transport.file_output import ACTION as EMIT_ACTION
from tailrace.server.transport.file_output import taken
from tailrace.server.transport.file_stage import FileStageWriter
from tailrace.server.transport.folder import ServerFolder
from tailrace.server.transport.hint_message import ACTION as HINT
from tailrace.server.transport.hint_message import HintMessage
from tailrace.server.transport.local_call import LocalRpcClient, Refused, WrongToken
from tailrace.server.transport.local_message import BrokenLine
from tailrace.server.transport.refusal import Refusal
from tailrace.server.transport.server_config import UNIX_SCHEME, Access, ServerAddress
from tailrace.server.transport.server_status import ServerStatus
from tailrace.server.transport.stage_messages import CommittedAttempt, Exchanged, StageKey
from tailrace.server.transport.stream_stage import StageWriter, Streams
from tailrace.server.transport.wire import ERROR_PREFIX, TOKEN_HEADER, encode

IDEMPOTENT = frozenset({"open", "prepare", "run_epoch", "commit", "upload", "forget", "compact"})
"""Actions that mean the same when they come twice: see above."""
_CLIENTS_MAX = 64
_HINT_TIMEOUT_S = 2.0
INLINE_BYTES = 1 << 20
"""Outputs up to this size come back with the answer of ``run_epoch``."""


class StateClient:
    def __init__(self, address: ServerAddress, access: Access) -> None:
        self.address = address
        self._access = access
        self._headers = [(TOKEN_HEADER.encode(), access.token.encode())]
        self._who = f"state server {address.server} (pid {address.pid} on {address.host}, log {address.log_path})"
        self._lock = threading.Lock()
        self._opened: flight.FlightClient | None = None
        line = None if self._folder is None else ServerFolder(self._folder).local_rpc(address.server)
        near = line is not None and os.path.exists(line)
        self._direct = LocalRpcClient(line, access.token) if line is not None and near else None
        # Hints may be given up, and with them their connection; what is staged may not.
        self._staging = LocalRpcClient(line, access.token) if line is not None and near else None

    # -- tasks --------------------------------------------------------------------------------------------------------

    def stage(self, key: StageKey) -> StageWriter | FileStageWriter:
        """Takes the frames of one attempt. Rows count only after ``finish``. Opened by the first frame."""
        if self._folder is not None:
            return FileStageWriter(self._send, self._tell, self._folder, key)
        return StageWriter(self._put, lambda error: _meant(error, self._who), key)

    def hint(self, message: HintMessage, batch: pa.RecordBatch | None = None) -> bytes | None:
        """Send hints. Returns the answer; None where none came: hints may be lost, and fail no task.

        Where nothing is asked and the server is near, it may still be at it: ``wait_for_hints`` waits.
        """
        body = message.to_bytes(batch)
        try:
            if self._direct is None or message.asks:
                return b"".join(self._called(HINT, body, _HINT_TIMEOUT_S))
            with self._mapped_errors():
                self._direct.post(HINT, body, _HINT_TIMEOUT_S)
            return b""
        except (TailraceError, pa.ArrowException):
            return None

    def wait_for_hints(self) -> None:
        """Wait until the server has worked off the hints of this process; not long, and whatever became of them."""
        if self._direct is not None:
            with suppress(TailraceError), self._mapped_errors():
                self._direct.drain(_HINT_TIMEOUT_S)

    def output(
        self, epoch: int, try_: int, operator: str = "", part: int = 0, parts: int = 1
    ) -> Iterator[pa.RecordBatch]:
        """Batches of an output, or of one of its parts, once it is there."""
        options = self._options(self._access.transfer_timeout_s)
        ticket = OutputTicket(self._access.run, operator, epoch, try_, part, parts)
        with self._mapped_errors():
            if self._folder is not None:
                name = b"".join(self._called(EMIT_ACTION, encode(ticket), self._access.transfer_timeout_s)).decode()
                if name:
                    yield from taken(self._folder, name)
                    return
            for chunk in self._client.do_get(flight.Ticket(encode(ticket)), options):
                yield chunk.data

    # -- driver -------------------------------------------------------------------------------------------------------

    def open(
        self, shards: Iterable[int], manifest: Manifest = EMPTY, try_: int = 0, *, moving: bool = False
    ) -> ServerStatus:
        """Own exactly these shards as the manifest has them; accept ``try_`` of the next epoch, or later ones.

        From now on the server waits for this driver without a bound. ``moving``: what is staged for the next epoch
        stays.
        """
        request = self._request(shards=tuple(shards), manifest=manifest, try_=try_, moving=moving)
        answer = self._act("open", request, self._access.transfer_timeout_s)
        return ServerStatus.from_json(json.loads(answer[0]))

    def prepare(
        self, epoch: int, try_: int, committed_attempts: Sequence[CommittedAttempt], operator: str = ""
    ) -> None:
        self._act(
            "prepare",
            self._request(epoch=epoch, try_=try_, committed_attempts=tuple(committed_attempts), operator=operator),
        )

    def commit(self, epoch: int, try_: int, *, upload: bool) -> CommitResult:
        """Save the delta of a try that has advanced; ``upload``: into the state store, too."""
        request = self._request(epoch=epoch, try_=try_, upload=upload)
        answer = self._act("commit", request, self._access.transfer_timeout_s)
        return CommitResult.from_json(json.loads(answer[0]))

    def upload(self, deltas: Iterable[ObjectRef]) -> Uploaded:
        """Bring into the state store those of the deltas that are saved on the server's machine."""
        request = self._request(deltas=tuple(delta.name for delta in deltas))
        answer = self._act("upload", request, self._access.transfer_timeout_s)
        return Uploaded.from_json(answer[0])

    def run_epoch(
        self,
        epoch: int,
        try_: int,
        committed_attempts: Sequence[CommittedAttempt] | None,
        late_before: int,
        watermark: int,
        *,
        commit: bool,
        inline_bytes: int = INLINE_BYTES,
        operator: str = "",
        now: int = 0,
        forget_before: int = MIN_MICROS,
        timeout_s: float | None = None,
    ) -> EpochResult:
        """Prepare (unless ``committed_attempts`` is None: done before), apply, advance and, where asked, commit, in one
        call.

        Such a commit uploads its delta, too.
        """
        request = self._request(
            epoch=epoch,
            try_=try_,
            operator=operator,
            committed_attempts=None if committed_attempts is None else tuple(committed_attempts),
            late_before=late_before,
            watermark=watermark,
            now=now,
            forget_before=forget_before,
            commit=commit,
            upload=True,
            inline_bytes=inline_bytes,
        )
        answer = self._act("run_epoch", request, timeout_s)
        return EpochResult.from_parts(answer)

    def exchange(
        self,
        epoch: int,
        try_: int,
        operator: str,
        target: str,
        late_before: int,
        number: int,
        routes: Sequence[tuple[ServerAddress, int, int]],
    ) -> Exchanged:
        """Stage what ``operator`` has emitted here for ``target``. ``number``: of this server in ``routes``."""
        request = self._request(
            epoch=epoch,
            try_=try_,
            operator=operator,
            target=target,
            late_before=late_before,
            number=number,
            routes=tuple(routes),
        )
        return Exchanged.from_json(self._act("exchange", request, self._access.transfer_timeout_s)[0])

    def forget(self, epoch: int) -> None:
        """Epochs up to this one will not be undone any more."""
        self._act("forget", self._request(epoch=epoch))

    def compact(self, manifest: Manifest) -> None:
        """Say what is durable now: the server compacts objects in the background where it is due."""
        self._act("compact", self._request(manifest=manifest))

    def ping(self, timeout_s: float) -> bool:
        """Whether this very server answers: another one may have got a port that became free."""
        try:
            return self._act("ping", self._request(), timeout_s) == [self.address.server.encode()]
        except StateServerError:
            return False

    def give_up(self) -> None:
        """The query is being stopped: let no step wait for anything outside. One that is gone does not."""
        try:
            self._act("give_up", self._request(), timeout_s=5.0)
        except StateServerError:
            pass

    def shutdown(self, keep: bool = False) -> bool:
        """End the server. Whether it has answered: one that is already gone is fine.

        ``keep``: the copies of objects in its machine's temporary folder, for a start that comes soon.
        """
        try:
            self._act("shutdown", self._request(keep=keep), timeout_s=5.0)
        except StateServerError:
            return False
        return True

    def close(self) -> None:
        for line in (self._direct, self._staging):
            if line is not None:
                line.close()
        with self._lock:
            if self._opened is not None:
                self._opened.close()

    # -- wire ---------------------------------------------------------------------------------------------------------

    def _request(self, **fields: Any) -> Request:
        return Request(run=self._access.run, **fields)

    def _options(self, timeout_s: float | None = None) -> flight.FlightCallOptions:
        return flight.FlightCallOptions(timeout=timeout_s or self._access.timeout_s, headers=self._headers)

    def _act(self, name: str, request: Request, timeout_s: float | None = None) -> list[bytes]:
        return self._called(name, request.to_json(), timeout_s)

    def _called(self, name: str, body: bytes, timeout_s: float | None) -> list[bytes]:
        """One action, by local RPC where there is one: the parts of its answer."""
        with self._mapped_errors(again=name in IDEMPOTENT):
            if self._direct is not None:
                try:
                    return self._direct.call(name, body, timeout_s or self._access.timeout_s)
                except FileNotFoundError as error:
                    raise ConnectionRefusedError(f"its socket is gone: {error}") from error
            answer = self._client.do_action(flight.Action(name, body), self._options(timeout_s))
            return [result.body.to_pybytes() for result in answer]

    @property
    def _client(self) -> flight.FlightClient:
        """Opened when it is first needed: next to a server, tasks may never."""
        with self._lock:
            if self._opened is None:
                self._opened = flight.FlightClient(self.address.uri, **self._access.trust.client_options())
            return self._opened

    @property
    def _folder(self) -> str | None:
        """The server's, where it is on this machine."""
        uri = self.address.uri
        return os.path.dirname(uri[len(UNIX_SCHEME) :]) if uri.startswith(UNIX_SCHEME) else None

    def _put(self, descriptor: flight.FlightDescriptor, schema: pa.Schema) -> Streams:
        opened: Streams = self._client.do_put(descriptor, schema, self._options(self._access.transfer_timeout_s))
        return opened

    def _send(self, name: str, body: bytes) -> None:
        """After all that was posted."""
        with self._mapped_errors():
            refusal = None if self._staging is None else self._staging.drain(self._access.transfer_timeout_s)
        try:
            self._called(name, body, self._access.transfer_timeout_s)
        except TailraceError as error:
            # What was refused may be of a task before that gave up, and then this call does not fail.
            if refusal is None:
                raise
            raise refusal.error(self._who) from error

    def _tell(self, name: str, body: bytes) -> None:
        with self._mapped_errors():
            if self._staging is not None:
                self._staging.post(name, body, self._access.transfer_timeout_s)
                return
        self._called(name, body, self._access.transfer_timeout_s)

    @contextmanager
    def _mapped_errors(self, again: bool = False) -> Iterator[None]:
        """``again``: what is called may be called twice."""
        try:
            yield
        except (flight.FlightError, pa.ArrowException, OSError, Refused, WrongToken) as error:
            raise _meant(error, self._who, again) from error


_cache_lock = threading.Lock()
_cache: OrderedDict[tuple[int, str, str], StateClient] = OrderedDict()
_left_by_parent: list[StateClient] = []


def connect(address: ServerAddress, access: Access) -> StateClient:
    """The client of this process for a server; opened where it is not yet."""
    pid = process_id()
    key = (pid, address.uri, access.run)
    with _cache_lock:
        for other in [other for other in _cache if other[0] != pid]:
            _left_by_parent.append(_cache.pop(other))  # neither used nor closed: see above
        if key not in _cache:
            _cache[key] = StateClient(address, access)
            while len(_cache) > _CLIENTS_MAX:
                _cache.popitem(last=False)
        _cache.move_to_end(key)
        return _cache[key]


def disconnect(run: str) -> None:
    """Close every client of this process for a run."""
    pid = process_id()
    with _cache_lock:
        clients = [_cache.pop(key) for key in list(_cache) if key[0] == pid and key[2] == run]
    for client in clients:
        client.close()


def _meant(error: Exception, who: str, again: bool = False) -> TailraceError:
    """The error that a failed call means. ``who`` names the server; ``again``: it may be called twice."""
    if isinstance(error, Refused):
        return error.refusal.error(who)
    extra = getattr(error, "extra_info", b"") or b""
    if extra.startswith(ERROR_PREFIX):
        message = str(error).split(". Detail: Failed", 1)[0]  # what Arrow and gRPC add says nothing more
        return Refusal(extra[len(ERROR_PREFIX) :].decode(), message).error(who)
    if isinstance(error, WrongToken | flight.FlightUnauthenticatedError):
        return StateServerError(f"{who} refused the call: the token is not the one of its query")
    if isinstance(error, TimeoutError | flight.FlightTimedOutError):
        return StateServerError(f"{who} did not answer in time")  # it may still be at it
    unanswered = UnansweredError if again else StateServerError
    first_line = (str(error).splitlines() or [""])[0][:500]
    if "certificate verify failed" in first_line or "is not in peer certificate" in first_line:
        return CertificateError(
            f"the certificate that {who} shows is not the one that this run trusts: look at the options tlsCertificate "
            f"and tlsRoots, or whether something stands between the machines: {first_line}"
        )
    if isinstance(error, flight.FlightUnavailableError | ConnectionError | BrokenLine):
        return unanswered(f"{who} cannot be reached: {first_line}")
    return unanswered(f"call to {who} failed: {type(error).__name__}: {first_line}")
