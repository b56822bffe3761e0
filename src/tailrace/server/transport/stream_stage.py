"""Staging by a stream: frames to a server on another machine, each as it is written.

Threads: a writer belongs to one task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pyarrow as pa
from pyarrow import flight

from tailrace.operators.ingest.frame import Frame
from tailrace.server.transport.stage_messages import NOTHING_STAGED, StageKey, StageReceipt
from tailrace.server.transport.wire import encode

Streams = tuple[flight.FlightStreamWriter, flight.FlightMetadataReader]
Put = Callable[[flight.FlightDescriptor, pa.Schema], Streams]
"""Opens the stream."""


class StageWriter:
    """One attempt's stream to one server. Used by one thread. Leaving it without ``finish`` drops what was sent."""

    def __init__(self, put: Put, meant: Callable[[Exception], Exception], key: StageKey) -> None:
        """``meant``: the error that a failed call means."""
        self._put, self._meant = put, meant
        self._key = key
        self._receipt = NOTHING_STAGED
        self._streams: Streams | None = None

    def write(self, frame: Frame) -> None:
        batch = frame.to_batch()
        with self._reporting():
            if self._streams is None:
                descriptor = flight.FlightDescriptor.for_command(encode(self._key))
                self._streams = self._put(descriptor, batch.schema)
            self._streams[0].write_batch(batch)
        self._receipt = self._receipt.after(frame.n, frame.nbytes, frame.checksum())

    def part(self) -> None:
        """What was written is on its way already."""

    def finish(self) -> StageReceipt:
        """End the stream; the server has all of it and has compared. The receipt goes to the driver."""
        if self._streams is None:
            return self._receipt
        with self._reporting():
            writer, reader = self._streams
            writer.write_metadata(encode(self._receipt))
            writer.done_writing()
            if reader.read() is None:
                raise pa.ArrowException("no receipt came back")
            self._streams = None
            writer.close()
        return self._receipt

    def abort(self) -> None:
        """End the stream without finishing it: the server drops what came."""
        self._close_stream()

    def __enter__(self) -> StageWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.abort()

    @contextmanager
    def _reporting(self) -> Iterator[None]:
        """A server that refuses a stream closes it: the reason is known only when our side is closed too."""
        try:
            yield
        except (flight.FlightError, pa.ArrowException) as error:
            reason = self._close_stream() or error
            raise self._meant(reason) from error

    def _close_stream(self) -> Exception | None:
        """Close without a receipt. The server answers that with an error, which is returned."""
        streams, self._streams = self._streams, None
        if streams is None:
            return None
        try:
            streams[0].close()
        except (flight.FlightError, pa.ArrowException) as error:
            reason: Exception = error
            return reason
        return None
