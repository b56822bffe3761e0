"""Where hints for an operator come from: the decisions, made by the driver after each epoch from what was seen.

Candidates are points that rows pass, from the source to the operator; the last one is the operator's own staging area,
whose hints cost nothing. Earlier ones give more time; later ones are surer to see the keys that the operator will ask
for. A candidate's *slack* is how long before the operator begins to work on an epoch's rows a hint for them arrives.

The rule
- Until the operator has waited for cold state, nothing is sent ahead of staging; nor after many epochs in which it
  has asked for none; nor while it says that reading it is quick. Where rows come from tasks, these send them in more
  frames first, so that staging sees most of them while the rest still comes; and others are no candidates unless rows
  wait all the same, for longer than these take (``framing``): points of Spark's plan send every key through Python once
  more, and tasks that hint hash and send it.
- Else the latest candidate wins whose slack (that of all hints but the slowest hundredth) is at least the time of a
  fetch (p99, from the hint on, so with all that stands before it) and a margin. If none is known to have so much, the
  latest one with nearly as much as any: what little an earlier one has more would not pay for its hints. Which has more
  is judged by the slack that half of all hints have: by the least of few epochs, one hiccup would decide.
- Where rows had to wait, in the last epochs, for what was already being fetched, and some candidate has half of the
  slack that is needed or more, a little more of it may be what is missing: the one with the most wins. Where they have
  to wait again soon after that was over, it is for twice as many epochs the next time. It ends early where a fetch
  takes less than half of what it took then.
- A candidate whose fetched entries went unused, beyond a share, is discarded with all before it: it sees other keys.
  So is one that has slack enough, and yet more than half of the cold records were not foretold: what it hinted was
  none of them. Staging never is. Keys change, and one hint may be for nothing by chance: after some epochs the
  discarded ones may try again, after twice as many the next time.
- One whose hints take more than a share of the bytes that rows take is left out for some epochs, where staging, which
  takes none, has a quarter of its slack or more.

Pure: no clock, no threads; every step gives a new ``Lookahead``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tailrace.spark.hints.framing import Framing

STAGING = "staging"
_MEASURED_TIMES = 2

Sample = tuple[float, float]
"""Milliseconds of slack, and how many rows had it."""


@dataclass(frozen=True)
class Rule:
    """The numbers of the rule. ``waste_max``: which share of fetched entries may go unused."""

    margin_ms: float = 2.0
    waste_max: float = 0.0
    bytes_max: float = 0.1  # of hints, to those of the rows that they are for ...
    bytes_slack: float = 0.25  # ... unless staging has less than this share of the slack
    slack_share: float = 0.9  # of the most that any has: where none has enough, that much is as good
    misses_max: float = 0.5  # of the cold records, with slack enough
    epochs_kept: int = 16  # of slack: what is older counts no more, and candidates without any are measured again
    epochs_idle: int = 16  # without a cold record, after which nothing is sent ahead any more
    epochs_wary: int = 16  # after rows had to wait for what was being fetched, at first ...
    epochs_wary_max: int = 1024  # ... and at most ...
    wary_share: float = 0.5  # ... where any has this share of the slack that is needed
    epochs_discarded: int = 64  # for which a candidate is discarded, at first ...
    epochs_discarded_max: int = 1024  # ... and at most
    epochs_settling: int = 2  # after a move, in which unused entries may be those of the candidate before


@dataclass(frozen=True)
class Seen:
    """What an epoch has shown of one operator, on all servers. Counts are of this epoch.

    ``slack``: of candidates that were measured. ``fetch_ms_p99``: of the newest fetches.
    """

    spilled: int = 0  # records on disk, or elsewhere, that were asked for
    misses: int = 0  # of these, those that nobody had begun to fetch
    fetch_ms_p99: float = 0.0
    slack: Mapping[str, Sequence[Sample]] = field(default_factory=dict)
    used: int = 0  # fetched entries that were used
    wasted: int = 0  # and those that went unused
    wanted: bool = True  # whether cold state takes long enough to be fetched ahead
    wait_ms: float = 0.0  # for which rows have waited for cold records
    late: int = 0  # of the cold records, those that were waited for while they were fetched ahead
    hint_bytes: int = 0
    row_bytes: int = 0  # that came to be worked on


@dataclass(frozen=True)
class Decision:
    """``candidate`` sends hints in the next epoch; where ``measured``, all of them tell when rows pass."""

    candidate: str = STAGING
    measured: bool = False
    reason: str = "no cold state was waited for"


@dataclass(frozen=True)
class Lookahead:
    """One operator's candidates and what is known of them. ``candidates``: from the source on, staging last."""

    candidates: tuple[str, ...]
    rule: Rule = Rule()
    decision: Decision = Decision()
    discarded: int = 0  # of the candidates, so many from the source on ...
    discarded_at: int = 0  # ... after so many epochs ...
    discards: int = 0  # ... and how often any were
    slack: tuple[Mapping[str, Sequence[Sample]], ...] = ()  # of the newest epochs
    fetch_ms_p99: float = 0.0
    framing: Framing | None = None  # of rows that come from tasks; None: they come from another operator
    in_plan: int = 0  # of the candidates, so many from the source on are points of Spark's plan
    on: bool = False
    idle: int = 0  # epochs since cold state was last asked for
    since_late: int | None = None  # epochs since rows had to wait for what was being fetched; None: never yet
    wary: int = 0  # for so many epochs after that
    late_fetch_ms: float = 0.0  # what a fetch took then
    since_move: int = 0
    used: int = 0  # since the move has settled, as all that follows
    wasted: int = 0
    spilled: int = 0  # in the newest epochs, for as long as the slack was enough, as is ``misses``
    misses: int = 0
    hint_bytes: int = 0
    row_bytes: int = 0
    epochs: int = 0  # so far
    dear: tuple[tuple[str, int], ...] = ()  # candidates that are left out for the bytes of their hints, and since when

    def __post_init__(self) -> None:
        assert self.candidates and self.candidates[-1] == STAGING, self.candidates

    @property
    def kept(self) -> tuple[str, ...]:
        first = max(self.discarded, self._dearer)
        return tuple(name for name in self.candidates[first:] if name not in self.left_out)

    @property
    def _dearer(self) -> int:
        """So many of the candidates, from the source on, cost more than rows wait."""
        if self.framing is None or self.framing.in_plan:
            return 0
        return self.in_plan if self.framing.in_tasks else len(self.candidates) - 1

    @property
    def left_out(self) -> tuple[str, ...]:
        return tuple(name for name, since in self.dear if self.epochs - since < self.rule.epochs_kept)

    def slack_ms(self, candidate: str) -> float | None:
        """What all hints but the slowest hundredth had; None where it is not known."""
        return low_percentile([sample for seen in self.slack for sample in seen.get(candidate, ())])

    def usual_slack_ms(self, candidate: str) -> float | None:
        """What half of all hints had."""
        return low_percentile([sample for seen in self.slack for sample in seen.get(candidate, ())], 0.5)

    def after(self, seen: Seen) -> Lookahead:
        """What is known, and decided, after one more epoch."""
        rule, waited = self.rule, seen.misses + seen.late > 0
        known = replace(
            self,
            slack=(*self.slack, seen.slack)[-rule.epochs_kept :],
            fetch_ms_p99=seen.fetch_ms_p99 or self.fetch_ms_p99,
            idle=0 if seen.spilled else self.idle + 1,
            on=seen.wanted and (self.on or waited),
            since_late=0 if seen.late else None if self.since_late is None else self.since_late + 1,
            wary=self._wary() if seen.late else self.wary,
            late_fetch_ms=(seen.fetch_ms_p99 or self.fetch_ms_p99) if seen.late else self.late_fetch_ms,
            since_move=self.since_move + 1,
            epochs=self.epochs + 1,
        )
        if known.framing is not None:
            over = not seen.wanted or known.idle >= rule.epochs_idle
            anew = Framing(known.framing.rule)
            known = replace(known, framing=anew if over else known.framing.after(seen.wait_ms, waited))
        if len(self.candidates) == 1:
            return replace(known, decision=Decision(reason="there is no earlier point that knows the key"))
        if known.discarded and known.epochs - known.discarded_at >= known._discarded_for():
            known = replace(known, discarded=0)
        if known.on and known.idle >= rule.epochs_idle:
            known = replace(known, on=False)
        if not known.on:
            return known._moved(Decision(reason=known._why_off(seen)))
        return known._judged(seen)._chosen()

    def _discarded_for(self) -> int:
        """How many epochs, after as many times."""
        return min(self.rule.epochs_discarded_max, self.rule.epochs_discarded << self.discards - 1)

    def _wary(self) -> int:
        """For how many epochs, now that rows had to wait."""
        if self.since_late is not None and self.since_late < self.wary:
            return self.wary
        again = self.since_late is not None and self.since_late < 2 * self.wary
        return min(self.rule.epochs_wary_max, 2 * self.wary) if again else self.rule.epochs_wary

    def _why_off(self, seen: Seen) -> str:
        if self.idle:
            return f"no cold state was asked for in {self.idle} epochs"
        return Decision().reason if seen.wanted else "cold state is read as quickly as it could be foretold"

    def _judged(self, seen: Seen) -> Lookahead:
        """Without the candidate that has sent hints, and those before it, where too many of them were for nothing."""
        current = self.decision.candidate
        if current == STAGING or self.since_move <= self.rule.epochs_settling:
            return self
        slack = self.slack_ms(current)
        early = slack is not None and slack >= self.fetch_ms_p99 + self.rule.margin_ms
        counted = replace(
            self,
            used=self.used + seen.used,
            wasted=self.wasted + seen.wasted,
            spilled=self.spilled + seen.spilled if early else 0,
            misses=self.misses + seen.misses if early else 0,
            hint_bytes=self.hint_bytes + seen.hint_bytes,
            row_bytes=self.row_bytes + seen.row_bytes,
        )
        for_nothing = counted.wasted > self.rule.waste_max * (counted.used + counted.wasted)
        beside = counted.misses > self.rule.misses_max * counted.spilled
        if for_nothing or beside:
            gone = self.candidates.index(current) + 1
            return replace(counted, discarded=gone, discarded_at=self.epochs, discards=self.discards + 1)
        free = self.slack_ms(STAGING)
        near = slack is not None and free is not None and free >= self.rule.bytes_slack * slack
        dear = near and counted.hint_bytes > self.rule.bytes_max * counted.row_bytes > 0
        others = (each for each in self.dear if each[0] != current)
        return replace(counted, dear=(*others, (current, self.epochs))) if dear else counted

    def _chosen(self) -> Lookahead:
        kept, rule = self.kept, self.rule
        slack = {name: self.slack_ms(name) for name in kept}
        needed = self.fetch_ms_p99 + rule.margin_ms
        most = max((known for known in slack.values() if known is not None), default=0.0)
        wary = (
            self.since_late is not None and self.since_late < self.wary and 2 * self.fetch_ms_p99 >= self.late_fetch_ms
        )
        wary = wary and most >= rule.wary_share * needed
        chosen = None if wary else latest_with(kept, slack, needed)
        unknown = [name for name in kept if slack[name] is None]
        fetch = f"a fetch of {self.fetch_ms_p99:.1f} ms and a margin of {rule.margin_ms:g} ms"
        if chosen is not None:
            reason = f"the latest with enough slack: {slack[chosen]:.1f} ms, for {fetch}"
        elif unknown:
            chosen, reason = kept[0], "the first, until the slack of all is known"
        else:
            usual = {name: self.usual_slack_ms(name) for name in kept}
            most = max((known for known in usual.values() if known is not None), default=0.0)
            chosen = latest_with(kept, usual, most if wary else rule.slack_share * most) or kept[0]
            if wary:
                reason = f"the one with most slack, since rows have waited for fetches: it has {slack[chosen]:.1f} ms"
            else:
                which = "the first" if chosen == kept[0] else "the latest with nearly as much slack as any"
                reason = f"{which}, since none has slack for {fetch}: it has {slack[chosen]:.1f} ms"
        if self._dearer:
            reason += f"; rows wait for less than these cost: {', '.join(self.candidates[: self._dearer])}"
        if self.discarded:
            before = ", ".join(self.candidates[: self.discarded])
            reason += f"; discarded, since they hint at other keys: {before}"
        if self.left_out:
            reason += f"; left out, since their hints are many bytes for little slack: {', '.join(self.left_out)}"
        # Twice, since workers that have to start first make the first time look like much slack: the least counts.
        due = any(sum(bool(seen.get(name)) for seen in self.slack) < _MEASURED_TIMES for name in kept)
        return self._moved(Decision(chosen, chosen != STAGING and due, reason))

    def _moved(self, decision: Decision) -> Lookahead:
        if decision.candidate == self.decision.candidate:
            return replace(self, decision=decision)
        return replace(
            self, decision=decision, since_move=0, used=0, wasted=0, spilled=0, misses=0, hint_bytes=0, row_bytes=0
        )


@dataclass(frozen=True)
class LookaheadProgress:
    """Of one operator in one epoch: where its hints came from, what is known, and what is decided for the next."""

    operator: str
    candidate: str
    hints: int
    hint_bytes: int
    lookahead: Lookahead  # after the epoch

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
            "frames": None if self.lookahead.framing is None else self.lookahead.framing.frames,
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
