"""The model of lateness: which rows count, which windows close when. Plain integers, nothing else.

With W(i) = the largest event time in batches 0..i, minus the delay, the *closing watermark* C(i) of epoch i is W(i)
under the rule "tailrace", and W(i-1) under the rule "spark", both of its parts in whole milliseconds, and at least 0.
Then, under both:

- a window whose end is at or before C(i) is closed at the end of epoch i, at the first such i;
- a row of epoch i counts in those of its windows that epoch i-1 and all before have not closed;
- it is late when it has no such window.

A row without an event time belongs to no window and is dropped, but is not late. Without windows nothing is ever late,
nor is it in output mode complete, where no window closes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tailrace.testing.question import Question, Windows

MICROS_PER_MILLI = 1000


@dataclass(frozen=True)
class Contribution:
    """Row ``row`` of batch ``epoch`` counts in the window that starts at ``start`` (``None`` without windows)."""

    epoch: int
    row: int
    start: int | None


@dataclass(frozen=True)
class Judgement:
    contributions: tuple[Contribution, ...]
    late: tuple[int, ...]  # rows, by epoch
    timeless: tuple[int, ...]  # rows dropped for want of an event time, by epoch
    closing: tuple[int | None, ...]  # closing watermark, by epoch; None before any row was seen

    def closes(self, end: int) -> int | None:
        """The epoch that closes a window with this end, if any does."""
        for epoch, watermark in enumerate(self.closing):
            if watermark is not None and end <= watermark:
                return epoch
        return None


def closing_watermarks(times: Sequence[Sequence[int | None]], delay: int | None, rule: str) -> tuple[int | None, ...]:
    """C(i) for every epoch i."""
    if delay is None:
        return (None,) * len(times)
    largest: list[int | None] = []
    newest: int | None = None
    for batch in times:
        newest = max((time for time in (*batch, newest) if time is not None), default=None)
        largest.append(newest)
    if rule == "tailrace":
        return tuple(None if time is None else time - delay for time in largest)
    before = [None, *largest[:-1]] if largest else []
    return tuple(0 if time is None else max(0, _whole_millis(time) - _whole_millis(delay)) for time in before)


def _whole_millis(micros: int) -> int:
    return micros // MICROS_PER_MILLI * MICROS_PER_MILLI


def judge(question: Question, times: Sequence[Sequence[int | None]]) -> Judgement:
    """Decide every row of every batch; ``times`` are the event times of each batch in microseconds."""
    if question.windows is None:
        every = tuple(Contribution(epoch, row, None) for epoch, batch in enumerate(times) for row in range(len(batch)))
        nothing = (0,) * len(times)
        return Judgement(every, nothing, nothing, closing_watermarks(times, question.delay, question.rule))
    return _judge_windows(question, question.windows, times)


def _judge_windows(question: Question, windows: Windows, times: Sequence[Sequence[int | None]]) -> Judgement:
    closing = closing_watermarks(times, question.delay, question.rule)
    contributions: list[Contribution] = []
    late: list[int] = []
    timeless: list[int] = []
    for epoch, batch in enumerate(times):
        # Under Spark's rule epoch 0 is already judged by a watermark of 0: it has no "before any row".
        first = 0 if question.rule == "spark" and question.delay is not None else None
        closed = closing[epoch - 1] if epoch else first
        if question.output_mode == "complete":
            closed = None
        late.append(0)
        timeless.append(0)
        for row, time in enumerate(batch):
            if time is None:
                timeless[-1] += 1
                continue
            starts = [s for s in windows.starts(time) if closed is None or s + windows.size > closed]
            contributions.extend(Contribution(epoch, row, start) for start in starts)
            late[-1] += not starts
    return Judgement(tuple(contributions), tuple(late), tuple(timeless), closing)
