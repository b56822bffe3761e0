"""How far a query has read its sources, as ``explain`` shows it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def offset_lines(progress: Mapping[str, Any] | None) -> Iterator[str]:
    """``progress``: Spark's of the newest epoch, where there is one."""
    if progress is None:
        return
    read = [source for source in progress["sources"] if source["endOffset"] is not None]
    if read:
        yield f"Offsets after epoch {progress['batchId']}"
        yield from (f"   {source['description']}: {source['endOffset']}" for source in read)
