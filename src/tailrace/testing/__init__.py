"""Test a streaming query of your own: scripted batches in, and an oracle that says what must come out.

>>> from tailrace.testing import Aggregate, Question, Windows
>>> Windows(size=10, slide=4).starts(9)
[0, 4, 8]
"""

from __future__ import annotations

from tailrace.testing.compare import describe, differences
from tailrace.testing.lateness import Contribution, Judgement, judge
from tailrace.testing.oracle import ExpectedEpoch, expected
from tailrace.testing.processors import ProcessorTester
from tailrace.testing.queries import QueryTester
from tailrace.testing.question import Aggregate, Question, Windows
from tailrace.testing.scripted_source import ScriptedSource

__all__ = [
    "Aggregate",
    "Contribution",
    "ExpectedEpoch",
    "Judgement",
    "ProcessorTester",
    "QueryTester",
    "Question",
    "ScriptedSource",
    "Windows",
    "describe",
    "differences",
    "expected",
    "judge",
]
