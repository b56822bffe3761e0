"""The Flight service: turns calls into calls of the engine, and errors into Flight errors.

Actions also come over the local RPC (``local_rpc``), from callers on this machine. They carry one JSON ``Request``
and answer with JSON, but for staged files and hints, which have messages of their own; ``DoPut`` stages one attempt's
frames; ``DoGet`` reads an output. A put ends with metadata that says what was sent: a stream that breaks off looks to
gRPC like one that ended, and only that receipt distinguishes them.

Threading: gRPC and the local RPC call from threads of their own, any number at once. This class holds no state that
changes, except the engine, which is set once, and parts of stages, which have a lock of their own. All other locking is
the engine's and staging's.
"""

from __future__ import annotations

import hmac
import json
import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyarrow import flight

from tailrace.env.files.shared_file import sweep
from tailrace.errors import StateServerError
from tailrace.server.epoch.engine import Engine
from tailrace.server.epoch.staged_parts import StagedParts
from tailrace.server.epoch.staging import Stage
from tailrace.server.hints.receiver import HintReceiver
from tailrace.server.transport.epoch_messages import OutputTicket, Request
from tailrace.server.transport.file_output import ACTION as EMIT_ACTION
from tailrace.server.transport.file_output import handed
from tailrace.server.transport.file_stage import ACTION, PART_ACTION, StagedFile, StagedPart, frames_in
from tailrace.server.transport.hint_message import ACTION as HINT
from tailrace.server.transport.refusal import refused
from tailrace.server.transport.stage_messages import StageKey, StageReceipt
from tailrace.server.transport.wire import ERROR_PREFIX, TOKEN_HEADER, decode, encode

_log = logging.getLogger(__name__)
_OK = b"{}"


class TokenCheck(flight.ServerMiddlewareFactory):
    """Refuses every call that does not carry the query's token."""

    def __init__(self, token: str) -> None:
        super().__init__()
        self._token = token.encode()

    def start_call(self, info: flight.CallInfo, headers: dict[str, list[Any]]) -> None:
        given = headers.get(TOKEN_HEADER) or [""]
        text = given[0] if isinstance(given[0], bytes) else given[0].encode()
        if len(given) != 1 or not hmac.compare_digest(text, self._token):
            raise flight.FlightUnauthenticatedError("wrong or missing token")


class EngineFuture:
    """An engine that is still being built: calls wait for it, so that a server listens before its kernels are warm."""

    def __init__(self, timeout_s: float) -> None:
        self._ready = threading.Event()
        self._timeout_s = timeout_s
        self._engine: Engine | None = None
        self._failure: BaseException | None = None

    def set(self, engine: Engine) -> None:
        self._engine = engine
        self._ready.set()

    def fail(self, failure: BaseException) -> None:
        self._failure = failure
        self._ready.set()

    def get(self) -> Engine:
        if not self._ready.wait(self._timeout_s):
            raise StateServerError(f"the server was not ready within {self._timeout_s:.0f} s")
        if self._engine is None:
            raise StateServerError(f"the server could not start: {self._failure!r}") from self._failure
        return self._engine


class StateService(flight.FlightServerBase):
    def __init__(
        self,
        location: str,
        engine: EngineFuture,
        token: str,
        *,
        server: str,
        folder: str,
        opened: Callable[[], None],
        shutdown: Callable[[bool], None],
        tls_certificates: list[tuple[bytes, bytes]] | None = None,
        hints: HintReceiver | None = None,
    ) -> None:
        super().__init__(location, middleware={"token": TokenCheck(token)}, tls_certificates=tls_certificates)
        self._engine = engine
        self._server = server
        self._folder = folder  # where tasks of this machine put their frames
        self._opened = opened
        self._shutdown = shutdown
        self._hints = hints or HintReceiver("", {})
        self._parts = StagedParts()
        self._questions: dict[str, Callable[[Engine, Request], list[bytes | pa.Buffer]]] = {
            "open": self._open,
            "commit": lambda engine, request: [json.dumps(engine.commit(request).to_json()).encode()],
            "upload": lambda engine, request: [encode(engine.upload(request))],
            "run_epoch": self._run_epoch,
            "exchange": lambda engine, request: [engine.exchange(request).to_json()],
        }
        self._instructions: dict[str, Callable[[Engine, Request], None]] = {
            "prepare": Engine.prepare,
            "forget": self._forget,
            "compact": Engine.compact,
            "give_up": Engine.give_up,
        }

    def do_action(self, context: flight.ServerCallContext, action: flight.Action) -> list[flight.Result]:
        try:
            return [flight.Result(part) for part in self.act(action.type, action.body)]
        except Exception as error:
            raise _reported(f"action {action.type}", error) from None

    def act(self, name: str, body: pa.Buffer) -> Sequence[bytes | pa.Buffer]:
        """What an action does, however it came."""
        if name == ACTION:
            self._stage_file(StagedFile.from_json(body.to_pybytes()))
            return [_OK]
        if name == PART_ACTION:
            self._stage_part(StagedPart.from_json(body.to_pybytes()))
            return [_OK]
        if name == EMIT_ACTION:
            return [self._emit_file(decode(OutputTicket, body.to_pybytes()))]
        if name == HINT:
            return [self._hints.take(self._engine.get().hints, body)]
        if name == "ping":  # also of one that is not ready yet, or busy
            return [self._server.encode()]
        request = Request.from_json(body.to_pybytes())
        if name == "shutdown":  # also of a server that never got ready
            self._shutdown(request.keep)
            return [_OK]
        engine = self._engine.get()
        if name in self._instructions:
            self._instructions[name](engine, request)
            return [_OK]
        if name not in self._questions:
            raise StateServerError(f"no action {name!r}: driver and server are of different versions")
        return self._questions[name](engine, request)

    def do_put(
        self,
        context: flight.ServerCallContext,
        descriptor: flight.FlightDescriptor,
        reader: flight.MetadataRecordBatchReader,
        writer: flight.FlightMetadataWriter,
    ) -> None:
        try:
            engine = self._engine.get()
            staging = engine.staging
            stage = staging.open(decode(StageKey, descriptor.command))
            try:
                said = None
                while (chunk := _next_chunk(reader)) is not None:
                    if chunk.data is not None and chunk.data.num_rows:
                        self._add(engine, stage, chunk.data, in_file=False)
                    if chunk.app_metadata is not None:
                        said = decode(StageReceipt, chunk.app_metadata.to_pybytes())
                if said is None:
                    raise StateServerError(f"the stream of attempt {stage.key.attempt} broke off")
                writer.write(encode(staging.finish(stage, said)))
            finally:
                staging.abandon(stage)  # nothing happens to a finished one
        except Exception as error:
            raise _reported("staging", error) from None

    def _stage_file(self, staged: StagedFile) -> None:
        """As a put, of frames that lie in a file."""
        engine = self._engine.get()
        staging = engine.staging
        stage = staging.open(staged.key)
        try:
            for batch in self._parts.take(staged.key, staged.parts):
                staging.add(stage, batch, in_file=True)  # hints of its keys were taken when the part came
            for batch in frames_in(self._folder, staged):
                self._add(engine, stage, batch, in_file=True)
            staging.finish(stage, staged.receipt)
        finally:
            staging.abandon(stage)

    def _stage_part(self, part: StagedPart) -> None:
        """Frames of a stage that is not finished yet: nothing is staged, but their keys are known."""
        engine = self._engine.get()
        batches = frames_in(self._folder, part)
        frames = [engine.staging.preview(part.key, batch) for batch in batches]  # refused where it is fenced
        for frame in frames:
            engine.hints.show(part.key.operator, frame, part.key.epoch)
        self._parts.hold(part.key, part.number, batches)
        self._hints.staged(part.key, sum(frame.n for frame in frames))

    def _add(self, engine: Engine, stage: Stage, batch: pa.RecordBatch, *, in_file: bool) -> None:
        """Stage a frame, and let its operator fetch what the frame's keys need while others still come."""
        frame = engine.staging.add(stage, batch, in_file=in_file)
        engine.hints.offer(stage.key.operator, frame, stage.key.epoch)
        self._hints.staged(stage.key, frame.n)

    def do_get(self, context: flight.ServerCallContext, ticket: flight.Ticket) -> flight.FlightDataStream:
        try:
            batches = self._engine.get().output(decode(OutputTicket, ticket.ticket))
        except Exception as error:
            raise _reported("output", error) from None
        schema = batches[0].schema if batches else pa.schema([])
        return flight.GeneratorStream(schema, iter(batches))

    def _emit_file(self, ticket: OutputTicket) -> bytes:
        """As a get, of rows that will lie in a file: its name. Nothing where they must be got."""
        batches = self._engine.get().output(ticket)
        try:
            return (handed(batches, self._folder, ticket.epoch) or "").encode()
        except OSError as error:
            _log.warning("an output goes as a stream, since it could not be written to %s: %s", self._folder, error)
            return b""

    def _run_epoch(self, engine: Engine, request: Request) -> list[bytes | pa.Buffer]:
        slack, hints, hint_bytes = self._hints.begins(request.operator, request.epoch, request.try_)
        result = engine.run_epoch(request)
        return replace(result, slack=slack, hints=hints, hint_bytes=hint_bytes).to_parts()

    def _forget(self, engine: Engine, request: Request) -> None:
        engine.throttle.wait()  # it evicts records, and hints for rows that arrive now would wait for that
        engine.forget(request)
        self._parts.forget(request.epoch)
        sweep(self._folder, request.epoch)  # tasks that died have left their files

    def _open(self, engine: Engine, request: Request) -> list[bytes | pa.Buffer]:
        engine.assign(request)
        self._opened()
        return [encode(engine.status(request))]


def _next_chunk(reader: flight.MetadataRecordBatchReader) -> flight.FlightStreamChunk | None:
    try:
        return reader.read_chunk()
    except StopIteration:
        return None


def _reported(what: str, error: Exception) -> flight.FlightServerError:
    refusal = refused(what, error)
    return flight.FlightServerError(refusal.message, extra_info=ERROR_PREFIX + refusal.kind.encode())
