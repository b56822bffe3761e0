"""``tailrace espbench``: the benchmark of enterprise streams, from its data to its report."""

from __future__ import annotations

from tailrace.cli.espbench import capacity, demo, generate, load, report, run, send, validate

__all__ = ["capacity", "demo", "generate", "load", "report", "run", "send", "validate"]
