"""What the plan of an aggregation needs to know of windows of one kind.

Each kind is defined beside the operators that keep its state, and listed in ``aggregate.window_forms``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tailrace.operators.aggregate.accumulators import Accumulator
from tailrace.operators.aggregate.spec import AggregateSpec
from tailrace.operators.pattern import Pattern, StoreChoice
from tailrace.operators.windows.any_window import AnyWindowSpec
from tailrace.types import Field


@dataclass(frozen=True)
class WindowStores:
    """Which stores can keep the state, and why: what ``explain`` quotes.

    Incremental aggregates are a few mergeable values in a record, which is read, modified and written; holistic ones
    need all rows of a group, which are appended and read when the window ends.
    """

    incremental: StoreChoice
    holistic: StoreChoice
    others: Mapping[Pattern, str] = field(default_factory=dict)  # give the same answer, for whoever asks for them
    refused: Mapping[Pattern, str] = field(default_factory=dict)


def _no_accumulators(window: Any, time: Field | None, expires: bool) -> list[Accumulator]:
    return []


def _no_lines(operator: AggregateSpec) -> list[str]:
    return []


@dataclass(frozen=True)
class WindowForm:
    window: type[Any]  # of the API
    spec: type[Any]
    plan: Callable[[Any, bool], AnyWindowSpec]  # from the API's window, and whether keys expire
    stores: Callable[[Any], WindowStores]  # of a window's spec
    # Accumulators that come before all others, by the API's window, the event time, and whether keys expire.
    accumulators: Callable[[Any, Field | None, bool], list[Accumulator]] = _no_accumulators
    lines: Callable[[AggregateSpec], list[str]] = _no_lines  # for ``explain``, beside what the window says itself
