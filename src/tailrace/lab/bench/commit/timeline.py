"""When the steps of some epochs ran, for the picture in which commits overlap the epochs after them. Pure.

A step is (epoch, name, begin, end), times in seconds since the first of them. Tailrace reports an epoch's own steps
with it, and those of a commit with the epoch that found it durable; so the steps of one epoch come from two reports.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

STEPS = ("plan", "ingest", "apply", "advance", "gate", "sink", "seal", "local", "upload", "log", "snapshot")
"""In the order in which they are drawn; steps of other names come after."""

Step = tuple[int, str, float, float]


def steps_of(reports: Iterable[Mapping[str, Any]]) -> list[Step]:
    """The steps of the epochs that are reported, each once, in the order in which they began."""
    reports = list(reports)
    epochs = {report["batchId"] for report in reports}
    steps = {
        (int(epoch), str(name), float(began), float(ended))
        for report in reports
        for epoch, name, began, ended in report.get("timeline", ())
        if epoch in epochs
    }
    first = min((began for _, _, began, _ in steps), default=0.0)
    return [
        (epoch, name, round(began - first, 4), round(ended - first, 4))
        for epoch, name, began, ended in sorted(steps, key=lambda step: (step[2], step[0], step[1]))
    ]
