"""How far a long run of random plans is."""

from __future__ import annotations

import sys
import time
from collections import Counter
from dataclasses import dataclass, field

from support.plans.comparison import DIFFERENT, UNREAD, Verdict
from support.plans.plan import Plan

_LINE_EVERY = 50
"""Plans, where a line that changes in place cannot be shown."""


@dataclass
class Tally:
    count: int
    done: int = 0
    rows: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)

    def add(self, plan: Plan, verdict: Verdict) -> None:
        self.done += 1
        self.rows += verdict.rows
        self.kinds[verdict.kind] += 1
        if verdict.kind == UNREAD:
            self.reasons[verdict.about.split(":")[-1][:100]] += 1
        if verdict.kind == DIFFERENT:
            self.failures.append(f"{plan}\n{verdict.about}")

    def show(self) -> None:
        """On the terminal, over the line before it; failures as they come."""
        live = sys.stderr.isatty()
        if self.kinds[DIFFERENT] and self.failures and self.failures[-1] is not self._shown_failure:
            self._shown_failure = self.failures[-1]
            print(f"\n{self._shown_failure}", file=sys.stderr, flush=True)
        if live or self.done % _LINE_EVERY == 0 or self.done == self.count:
            print(f"\r{self}\033[K" if live else str(self), end="" if live else "\n", file=sys.stderr, flush=True)

    def __str__(self) -> str:
        kinds = ", ".join(f"{number} {kind}" for kind, number in self.kinds.most_common())
        spent = time.monotonic() - self.began
        left = spent / self.done * (self.count - self.done)
        return f"{self.done} of {self.count} plans: {kinds}; {self.rows} rows; {spent:.0f} s, {left:.0f} s to go"

    def reasons_shown(self) -> str:
        return "\n".join(f"{number:6} {reason}" for reason, number in self.reasons.most_common())

    _shown_failure: str | None = None
