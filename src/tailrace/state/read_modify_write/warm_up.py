"""Compiles the kernels that only spilled records need, so that no epoch waits for a compiler."""

from __future__ import annotations

from tailrace.state.layout import RecordLayout
from tailrace.state.segments.point_reads import warm_up_point_rows
from tailrace.state.segments.segment import warm_up_fingerprints


def warm_up_spilled_records(layout: RecordLayout) -> None:
    warm_up_point_rows(layout)
    warm_up_fingerprints()
