"""From where prefetch hints for an operator come: the driver decides after each epoch, from what the epoch has shown.

Candidates are points that rows pass, from the source to the operator; the last one is the operator's own staging area,
whose hints cost nothing. Earlier candidates give more time; later ones are more likely to see the keys that the
operator will ask for. A candidate's *slack* is how long before the operator begins to work on an epoch's rows a hint
for them arrives.

The rule, as the Keyed Prefetching paper has it:
- Until the operator has waited for spilled state, only staging sends hints. So too after some epochs in which the
  operator has read no spilled record, and while it reports that reading one is quick.
- Else the latest candidate sends whose slack (that of all hints but the slowest hundredth) is at least the time of a
  fetch (p99) and a margin. Where none is known to have so much, the first one sends.
- A candidate is discarded for the rest of the run, with all before it, when more of the records that were fetched for
  its hints went unused than a threshold allows: it sees other keys. Staging is never discarded.

Pure: no clock, no threads; every step gives a new ``Lookahead``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

STAGING = "staging"
_MEASURED_TIMES = 2

Sample = tuple[float, float]
"""Milliseconds of slack, and how many rows had it."""


@dataclass(frozen=True)
class Rule:
    """The numbers of the rule. ``waste_max``: which share of fetched records may go unused."""

    margin_ms: float = 2.0
    waste_max: float = 0.0
    epochs_kept: int = 16  # of slack: older samples are dropped, and candidates without any are measured again
    epochs_idle: int = 16  # without a spilled record, after which only staging sends
    epochs_settling: int = 2  # after a move, in which unused records may be those of the candidate before


@dataclass(frozen=True)
class Seen:
    """What an epoch has shown of one operator, on all servers. Counts are of this epoch.

    ``slack``: of candidates that were measured. ``fetch_ms_p99``: of the newest fetches.
    """

    spilled: int = 0  # spilled records that were read
    misses: int = 0  # of these, those for which no fetch had begun
    late: int = 0  # and those whose fetch had begun, and was waited for
    fetch_ms_p99: float = 0.0
    slack: Mapping[str, Sequence[Sample]] = field(default_factory=dict)
    used: int = 0  # records fetched for a hint that were used
    wasted: int = 0  # and those that went unused
    wanted: bool = True  # whether a read of spilled state takes long enough for a prefetch


@dataclass(frozen=True)
class Decision:
    """``candidate`` sends hints in the next epoch; where ``measured``, all of them report when rows pass."""

    candidate: str = STAGING
    measured: bool = False
    reason: str = "no spilled state was waited for"


@dataclass(frozen=True)
class Lookahead:
    """One operator's candidates and what is known of them. ``candidates``: from the source on, staging last."""

    candidates: tuple[str, ...]
    rule: Rule = Rule()
    decision: Decision = Decision()
    discarded: int = 0  # so many of the candidates, from the source on
    slack: tuple[Mapping[str, Sequence[Sample]], ...] = ()  # of the newest epochs
    fetch_ms_p99: float = 0.0
    on: bool = False  # the operator has waited for spilled state
    idle: int = 0  # epochs since a spilled record was last read
    since_move: int = 0
    used: int = 0  # since epochs_settling epochs after the move, as ``wasted``
    wasted: int = 0

    def __post_init__(self) -> None:
        assert self.candidates and self.candidates[-1] == STAGING, self.candidates

    @property
    def kept(self) -> tuple[str, ...]:
        return self.candidates[self.discarded :]

    def slack_ms(self, candidate: str) -> float | None:
        """The slack that all hints but the slowest hundredth had; None where it is not known."""
        return low_percentile([sample for seen in self.slack for sample in seen.get(candidate, ())])

    def after(self, seen: Seen) -> Lookahead:
        """What is known, and decided, after one more epoch."""
        idle = 0 if seen.spilled else self.idle + 1
        waited = seen.misses + seen.late > 0
        known = replace(
            self,
            slack=(*self.slack, seen.slack)[-self.rule.epochs_kept :],
            fetch_ms_p99=seen.fetch_ms_p99 or self.fetch_ms_p99,
            idle=idle,
            on=seen.wanted and (self.on or waited) and idle < self.rule.epochs_idle,
            since_move=self.since_move + 1,
        )
        if len(self.candidates) == 1:
            return replace(known, decision=Decision(reason="there is no earlier point that knows the key"))
        if not known.on:
            return known._moved(Decision(reason=known._why_off(seen)))
        return known._judged(seen)._chosen()

    def _why_off(self, seen: Seen) -> str:
        if self.idle:
            return f"no spilled state was read in {self.idle} epochs"
        return Decision().reason if seen.wanted else "spilled state is read as quickly as it could be prefetched"

    def _judged(self, seen: Seen) -> Lookahead:
        """Without the candidate that has sent hints, and those before it, where too many fetches were unused."""
        current = self.decision.candidate
        if current == STAGING or self.since_move <= self.rule.epochs_settling:
            return self
        used, wasted = self.used + seen.used, self.wasted + seen.wasted
        if wasted > self.rule.waste_max * (used + wasted):
            return replace(self, discarded=self.candidates.index(current) + 1)
        return replace(self, used=used, wasted=wasted)

    def _chosen(self) -> Lookahead:
        kept = self.kept
        slack = {name: self.slack_ms(name) for name in kept}
        chosen = latest_with(kept, slack, self.fetch_ms_p99 + self.rule.margin_ms)
        fetch = f"a fetch of {self.fetch_ms_p99:.1f} ms and a margin of {self.rule.margin_ms:g} ms"
        if chosen is not None:
            reason = f"the latest with enough slack: {slack[chosen]:.1f} ms, for {fetch}"
        elif None in slack.values():
            chosen, reason = kept[0], "the first, until the slack of all is known"
        else:
            chosen = kept[0]
            reason = f"the first, since none has slack for {fetch}: it has {slack[chosen]:.1f} ms"
        if self.discarded:
            before = ", ".join(self.candidates[: self.discarded])
            reason += f"; discarded, since they hint at other keys: {before}"
        # Twice, since workers that have to start first make the first time look like much slack: the least counts.
        due = any(sum(bool(seen.get(name)) for seen in self.slack) < _MEASURED_TIMES for name in kept)
        return self._moved(Decision(chosen, chosen != STAGING and due, reason))

    def _moved(self, decision: Decision) -> Lookahead:
        if decision.candidate == self.decision.candidate:
            return replace(self, decision=decision)
        return replace(self, decision=decision, since_move=0, used=0, wasted=0)


@dataclass(frozen=True)
class LookaheadProgress:
    """Of one operator in one epoch: where its hints came from, what is known, and what is decided for the next."""

    operator: str
    candidate: str
    hints: int
    hint_bytes: int
    lookahead: Lookahead  # after the epoch
    frames: int | None = None  # in which its tasks send rows; None: its rows come from another operator

    def to_json(self) -> dict[str, Any]:
        known = {name: self.lookahead.slack_ms(name) for name in self.lookahead.candidates}
        decided = self.lookahead.decision
        return {
            "operatorName": self.operator,
            "lookahead": self.candidate,
            "next": decided.candidate,
            "reason": decided.reason,
            "candidates": list(self.lookahead.candidates),
            "discarded": list(self.lookahead.candidates[: self.lookahead.discarded]),
            "slackMsP99": {name: round(slack, 3) for name, slack in known.items() if slack is not None},
            "fetchMsP99": round(self.lookahead.fetch_ms_p99, 3),
            "frames": self.frames,
            "numHints": self.hints,
            "hintBytes": self.hint_bytes,
        }


def lookahead_lines(lookaheads: Mapping[str, Lookahead]) -> list[str]:
    """For a user: where hints for each operator come from now, and why. Nothing where there is no choice."""
    lines = []
    for name, each in lookaheads.items():
        if len(each.candidates) > 1:
            known = [(point, each.slack_ms(point)) for point in each.kept]
            points = [point if slack is None else f"{point} ({slack:.1f} ms)" for point, slack in known]
            lines += [
                f"Lookahead of {name}: {each.decision.candidate}: {each.decision.reason}",
                f"   candidates, with the slack they have shown: {', '.join(points)}",
            ]
    return lines


def latest_with(kept: Sequence[str], slack: Mapping[str, float | None], needed_ms: float) -> str | None:
    """The latest candidate that is known to have so much slack."""
    for name in reversed(kept):
        known = slack[name]
        if known is not None and known >= needed_ms:
            return name
    return None


def low_percentile(samples: Sequence[Sample], share: float = 0.01) -> float | None:
    """The slack that all rows but this share of them have at least."""
    total = sum(rows for _, rows in samples)
    if not total:
        return None
    below = 0.0
    for slack_ms, rows in sorted(samples):
        below += rows
        if below > share * total:
            return slack_ms
    raise AssertionError("the shares of all samples are all of them")
