"""The records of windows that close."""

from __future__ import annotations

from collections.abc import Iterator

from tailrace.operators.windows.time_window import TimeWindowSpec
from tailrace.state.read_modify_write.scan import scan_panes
from tailrace.state.read_modify_write.store import ReadModifyWriteStore
from tailrace.state.rows.rows import Rows


def closed_records(
    store: ReadModifyWriteStore, window: TimeWindowSpec, late_before: int, watermark: int
) -> Iterator[Rows]:
    """The records of tumbling windows with an end in (late_before, watermark]: those in memory, then those on disk."""
    if watermark <= late_before:
        return iter(())
    return scan_panes(store, lambda panes: window.holding(panes, late_before, watermark)[0], watermark + 1)
