"""Writes the write-back buffer to disk: a segment that is still in memory.

Threads: one at a time; a thread of its own writes.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress

from tailrace.state.segments.segment import Segment


class WriteBackBuffer:
    def __init__(self, folder: str, *, direct: bool) -> None:
        self._folder, self._direct = folder, direct
        self._writer: ThreadPoolExecutor | None = None
        self._writing: Future[None] | None = None

    def write(self, segment: Segment) -> None:
        """Begin to write a segment in the background, unless one is being written."""
        if self._writing is None:
            if self._writer is None:
                self._writer = ThreadPoolExecutor(1, "tailrace-evict")
            self._writing = self._writer.submit(self._write_out, segment)

    def _write_out(self, segment: Segment) -> None:
        segment.write_out(self._folder, direct=self._direct)

    def wait(self) -> None:
        """Until it is written, or cannot be."""
        if self._writing is not None:
            self._writing.exception()

    @property
    def tried(self) -> bool:
        """Whether the background thread is done with a segment, well or not."""
        return self._writing is not None and self._writing.done()

    def finish(self, segments: Iterable[Segment]) -> None:
        """Wait, and write what is still in memory. A segment that cannot be written stays there, and this raises."""
        if self._writing is not None:
            with suppress(OSError):
                self._writing.result()
            self._writing = None
        for segment in segments:
            if segment.buffered_bytes:
                self._write_out(segment)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.shutdown()
