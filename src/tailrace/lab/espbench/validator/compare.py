"""Results against right answers: the original's comparison pair by pair, and a verdict on each single record.

The original compares the i-th result with the i-th answer, text by text, and stops counting after 100 that are too many
or too few. One result too many makes all that follow wrong, so it says little about a system that repeats a record: for
that, ``exactly_once`` counts records by their message ids.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, field
from math import isnan

import pyarrow as pa

from tailrace.lab.espbench.validator.answers import Answers

GIVE_UP = 100
TOLERANCE = 1e-3
"""Of an average, which systems write with more or fewer digits."""


@dataclass(frozen=True)
class Results:
    """In order of the topic. ``ids``: none where a result is not of one record.

    ``seen_ms``: when a reader had each of them, who waits for the end of transactions, NaN for what came after it had
    ended; none where nobody read.
    """

    texts: list[str]
    ids: list[int] | None
    times_ms: list[int]
    seen_ms: list[float] | None = None

    @classmethod
    def of(cls, table: pa.Table, with_ids: bool) -> Results:
        """Of an output topic. The original compares what stands behind the last semicolon."""
        values = [value.decode() for value in table["value"].to_pylist()]
        times = table["time_ms"].to_pylist()
        seen = table["seen_ms"].to_pylist() if "seen_ms" in table.column_names else None
        if not with_ids:
            return cls(values, None, times, seen)
        ids = [int(value.partition(";")[0]) for value in values]
        return cls([value.rpartition(";")[2] for value in values], ids, times, seen)


@dataclass
class Pairs:
    """The original's counts."""

    expected: int = 0
    actual: int = 0
    errors: int = 0
    too_many: int = 0
    too_few: int = 0
    latencies_ms: list[int] = field(default_factory=list)

    @property
    def correct(self) -> bool:
        return not (self.errors or self.too_many or self.too_few)

    @property
    def correctness(self) -> float:
        if self.actual == self.expected and not self.errors:
            return 100.0
        right = self.actual - (self.errors + 2 * max(0, self.actual - self.expected))
        return round(max(0, right) / max(1, self.expected) * 100, 2)


def pairs(answers: Answers, results: Results) -> Pairs:
    found = Pairs()
    for place in range(max(len(answers), len(results.texts))):
        if found.too_many + found.too_few >= GIVE_UP:
            break
        if place >= len(answers):
            found.actual += 1
            found.too_many += 1
        elif place >= len(results.texts):
            found.expected += 1
            found.too_few += 1
        else:
            found.expected += 1
            found.actual += 1
            if same_text(answers.texts[place], results.texts[place]):
                found.latencies_ms.append(max(0, results.times_ms[place] - answers.caused_ms[place]))
            else:
                found.errors += 1
    return found


@dataclass(frozen=True)
class Verdict:
    """On single records. ``wrong``: there, with another text; ``unexpected``: of no answer."""

    missing: int
    doubled: int
    out_of_order: int
    wrong: int
    unexpected: int
    latencies_ms: dict[int, int]
    """By the answer's place, of its first result: also where pairs went wrong."""
    seen_ms: dict[int, float] = field(default_factory=dict)
    """The same, until a reader of whole transactions had it."""

    @property
    def exactly_once(self) -> bool:
        return not (self.missing or self.doubled or self.wrong or self.unexpected)


def exactly_once(answers: Answers, results: Results) -> Verdict:
    """Records are known by their message ids; windows, which have none, by their text, which two of them may share."""
    if answers.ids is None or results.ids is None:
        names, given = _windows(answers, results)
    else:
        names, given = list(answers.ids), list(results.ids)
    wanted: dict[Hashable, list[int]] = {}
    for place, name in enumerate(names):
        wanted.setdefault(name, []).append(place)
    seen: Counter[Hashable] = Counter()
    doubled, unexpected, wrong, behind, latest = 0, 0, 0, 0, -1
    latencies: dict[int, int] = {}
    until_seen: dict[int, float] = {}
    for number, name in enumerate(given):
        places = wanted.get(name)
        if places is None:
            unexpected += 1
            continue
        if seen[name] >= len(places):
            doubled += 1
            continue
        place = places[seen[name]]
        seen[name] += 1
        behind += place < latest
        latest = max(latest, place)
        wrong += not same_text(answers.texts[place], results.texts[number])
        latencies[place] = max(0, results.times_ms[number] - answers.caused_ms[place])
        if results.seen_ms is not None and not isnan(results.seen_ms[number]):
            until_seen[place] = max(0.0, results.seen_ms[number] - answers.caused_ms[place])
    missing = len(names) - seen.total()
    return Verdict(missing, doubled, behind, wrong, unexpected, latencies, until_seen)


def _windows(answers: Answers, results: Results) -> tuple[list[Hashable], list[Hashable]]:
    """Texts of both; a result that differs from an answer by digits of its average alone has the answer's."""
    by_rest: dict[str, list[str]] = {}
    for text in answers.texts:
        by_rest.setdefault(text.partition(",")[2], []).append(text)
    given: list[Hashable] = []
    for text in results.texts:
        near = (one for one in by_rest.get(text.partition(",")[2], ()) if same_text(one, text))
        given.append(next(near, text))
    return list(answers.texts), given


def same_text(expected: str, found: str) -> bool:
    """But for digits of an average, which comes first."""
    if expected == found:
        return True
    first, *rest = expected.split(",")
    other, *others = found.split(",")
    if not rest or rest != others:
        return False
    try:
        return abs(float(first) - float(other)) <= TOLERANCE
    except ValueError:
        return False
