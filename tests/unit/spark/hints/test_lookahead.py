"""Which candidate sends hints: the rule against a plain statement of it, and a run in which the world changes twice."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.spark.hints.lookahead import (
    STAGING,
    Lookahead,
    Rule,
    Sample,
    Seen,
    latest_with,
    lookahead_lines,
    low_percentile,
)

NAMES = ("source", "transform 1", "transform 2", "ingest", STAGING)


def _plainly(epochs: Sequence[Seen], candidates: tuple[str, ...], rule: Rule) -> list[tuple[str, bool]]:
    """The rule, recomputed from all epochs so far each time. Gives the candidate, and whether all are measured."""
    decided: list[tuple[str, bool]] = []
    gone = 0  # so many candidates are discarded
    moved_at = 0  # the epoch after which the present candidate was chosen
    on = False
    for now, seen in enumerate(epochs):
        current = decided[-1][0] if decided else STAGING
        past = epochs[: now + 1]
        recent = past[-rule.epochs_kept :]
        idle = len(past[-rule.epochs_idle :]) == rule.epochs_idle and not any(
            each.spilled for each in past[-rule.epochs_idle :]
        )
        was_on, on = on, seen.wanted and not idle and (on or seen.misses > 0 or seen.late > 0)
        chosen, measured = STAGING, False
        if on and len(candidates) > 1:
            if current != STAGING and was_on:
                counted = past[moved_at + rule.epochs_settling :]
                used, wasted = sum(each.used for each in counted), sum(each.wasted for each in counted)
                if wasted > rule.waste_max * (used + wasted):
                    gone = candidates.index(current) + 1
            kept = candidates[gone:]
            known = _known(recent, kept)
            fetch = next((each.fetch_ms_p99 for each in reversed(past) if each.fetch_ms_p99), 0.0)
            enough = [name for name in kept if name in known and known[name] >= fetch + rule.margin_ms]
            chosen = enough[-1] if enough else kept[0]
            seldom = [name for name in kept if len([each for each in recent if each.slack.get(name)]) < 2]
            measured = chosen != STAGING and bool(seldom)
        if chosen != current:
            moved_at = now + 1
        decided.append((chosen, measured))
    return decided


def _known(past: Sequence[Seen], names: Sequence[str]) -> dict[str, float]:
    """The slack of all rows but a hundredth, of candidates of which there is any."""
    known: dict[str, float] = {}
    for name in names:
        rows = sorted(slack for each in past for slack, n in each.slack.get(name, ()) for _ in range(int(n)))
        if rows:
            known[name] = rows[len(rows) // 100]
    return known


def _samples() -> st.SearchStrategy[list[Sample]]:
    return st.lists(st.tuples(st.integers(0, 30).map(float), st.integers(1, 300)), max_size=3)


def _seen() -> st.SearchStrategy[Seen]:
    return st.builds(
        lambda hits, misses, *rest: Seen(hits + misses, misses, *rest),
        st.sampled_from([0, 0, 5]),
        st.sampled_from([0, 0, 3]),
        st.sampled_from([0, 0, 2]),
        st.integers(0, 20).map(float),
        st.dictionaries(st.sampled_from(NAMES), _samples()),
        st.integers(0, 20),
        st.sampled_from([0, 0, 0, 1, 10]),
        st.sampled_from([True, True, True, True, False]),
    )


@settings(max_examples=300)
@given(
    st.lists(_seen(), max_size=14),
    st.integers(0, 4),
    st.builds(
        Rule,
        margin_ms=st.integers(0, 4).map(float),
        waste_max=st.sampled_from([0.0, 0.3]),
        epochs_kept=st.integers(1, 5),
        epochs_idle=st.integers(1, 4),
        epochs_settling=st.integers(0, 3),
    ),
)
def test_decisions_are_those_of_the_rule(epochs: list[Seen], missing: int, rule: Rule) -> None:
    candidates = NAMES[missing:]
    lookahead = Lookahead(candidates, rule)
    found = []
    for seen in epochs:
        lookahead = lookahead.after(seen)
        assert lookahead.decision.reason
        found.append((lookahead.decision.candidate, lookahead.decision.measured))
    assert found == _plainly(epochs, candidates, rule)


@given(st.lists(st.tuples(st.integers(-5, 50).map(float), st.integers(1, 400)), min_size=1, max_size=20))
def test_slack_is_that_of_all_rows_but_a_hundredth(samples: list[Sample]) -> None:
    rows = sorted(slack for slack, n in samples for _ in range(int(n)))
    found = low_percentile(samples)
    assert found is not None
    assert sum(row < found for row in rows) <= len(rows) / 100 < sum(row <= found for row in rows)


def test_a_candidate_without_a_number_never_wins() -> None:
    assert latest_with(("a", "b", STAGING), {"a": 9.0, "b": None, STAGING: 1.0}, 5.0) == "a"
    assert latest_with(("a", "b", STAGING), {"a": 4.0, "b": None, STAGING: 1.0}, 5.0) is None


class _World:
    """A query with three points ahead of staging, some milliseconds apart, over a backend that can be slowed.

    ``agrees``: from which candidate on rows have the keys that the operator asks for.
    """

    def __init__(self) -> None:
        self.slack_ms = {"source": 60.0, "transform 1": 40.0, "transform 2": 20.0, STAGING: 3.0}
        self.fetch_ms = 1.0
        self.spilled = 0
        self.agrees = 0
        self.names = tuple(self.slack_ms)
        self.lookahead = Lookahead(self.names, Rule(margin_ms=2.0, epochs_kept=8, epochs_idle=8))
        self.misses: list[int] = []

    def epochs(self, count: int) -> list[str]:
        sent = []
        for _ in range(count):
            decision = self.lookahead.decision
            sent.append(decision.candidate)
            at = self.names.index(decision.candidate)
            in_time = self.slack_ms[decision.candidate] >= self.fetch_ms
            right = at >= self.agrees or decision.candidate == STAGING
            hits = self.spilled if in_time and right else 0
            upstream = decision.candidate != STAGING
            measured = self.names if decision.measured else (decision.candidate, STAGING)
            self.misses.append(self.spilled - hits)
            self.lookahead = self.lookahead.after(
                Seen(
                    spilled=self.spilled,
                    misses=self.spilled - hits,
                    fetch_ms_p99=self.fetch_ms if self.spilled else 0.0,
                    slack={name: [(self.slack_ms[name], 1000), (self.slack_ms[name] + 50, 9000)] for name in measured},
                    used=hits if upstream else 0,
                    wasted=0 if right or not upstream else self.spilled,
                )
            )
        return sent


def test_the_lookahead_moves_as_the_world_changes() -> None:
    """State in memory, then on disk; keys that change behind the source; a backend that gets faster, slower, idle."""
    world = _World()
    assert set(world.epochs(5)) == {STAGING}, "nothing is spilled"
    world.spilled, world.fetch_ms = 100, 30.0
    sent = world.epochs(10)
    assert sent[:3] == [STAGING, "source", "transform 1"], "the first, until all are measured; then the latest in time"
    assert set(sent[2:]) == {"transform 1"} and not any(world.misses[-8:])

    world.agrees = 2
    sent = world.epochs(10)
    assert sent[0] == "transform 1" and sent[-1] == "transform 2", "transform 2 changes the keys: hints before it waste"
    assert "transform 1" in world.lookahead.decision.reason
    assert "source" not in world.lookahead.kept and "transform 1" not in world.lookahead.kept

    world.fetch_ms = 10.0
    assert set(world.epochs(5)) == {"transform 2"} and world.misses[-1] == 0
    world.fetch_ms = 0.5
    assert world.epochs(3)[-1] == STAGING and world.misses[-1] == 0, "staging has time enough, and costs nothing"
    world.fetch_ms = 15.0
    assert world.epochs(3)[-1] == "transform 2" and world.misses[-1] == 0
    world.spilled = 0
    assert world.epochs(12)[-1] == STAGING
    assert "no spilled state was read" in world.lookahead.decision.reason


def test_a_candidate_whose_fetches_go_unused_never_comes_back() -> None:
    slack = {"ingest": [(40.0, 1.0)], STAGING: [(1.0, 1.0)]}
    lookahead = Lookahead(("ingest", STAGING), Rule(waste_max=0.1))
    for wasted, wanted in ((10, "ingest"), (12, STAGING)):  # of a hundred fetches
        lookahead = Lookahead(("ingest", STAGING), Rule(waste_max=0.1))
        for _ in range(200):
            ahead = lookahead.decision.candidate == "ingest"
            seen = Seen(spilled=100, late=9, fetch_ms_p99=10.0, slack=slack)
            used = Seen(100, 0, 9, 10.0, slack, used=100 - wasted, wasted=wasted)
            lookahead = lookahead.after(used if ahead else seen)
        assert lookahead.decision.candidate == wanted, lookahead.decision
    assert "other keys: ingest" in lookahead.decision.reason


def test_an_operator_without_an_earlier_point_is_left_alone() -> None:
    lookahead = Lookahead((STAGING,)).after(Seen(spilled=9, misses=9, fetch_ms_p99=100.0))
    assert lookahead.decision.candidate == STAGING and not lookahead.decision.measured
    assert "no earlier point" in lookahead.decision.reason


def test_a_user_sees_where_hints_come_from() -> None:
    world = _World()
    world.spilled, world.fetch_ms = 100, 10.0
    world.epochs(6)
    first, second = lookahead_lines({"aggregate": world.lookahead, "alone": Lookahead((STAGING,))})
    assert first.startswith("Lookahead of aggregate: transform 2: the latest with enough slack: 20.0 ms")
    assert second.endswith("source (60.0 ms), transform 1 (40.0 ms), transform 2 (20.0 ms), staging (3.0 ms)")
    assert lookahead_lines({"alone": Lookahead((STAGING,))}) == []


def test_waiting_for_a_fetch_that_began_too_late_turns_hints_on() -> None:
    """Every record had a hint, and all rows waited: staging's hints came too late, and an earlier point is tried."""
    lookahead = Lookahead(("ingest", STAGING))
    for _ in range(4):
        lookahead = lookahead.after(Seen(spilled=100, fetch_ms_p99=50.0, slack={STAGING: [(20.0, 1.0)]}))
    assert lookahead.decision.candidate == STAGING
    lookahead = lookahead.after(Seen(spilled=100, late=30, fetch_ms_p99=50.0, slack={STAGING: [(20.0, 1.0)]}))
    assert lookahead.decision.candidate == "ingest"
    for _ in range(6):  # late is not unused: no reason to think that the point sees other keys
        seen = Seen(spilled=100, late=90, fetch_ms_p99=5.0, slack={"ingest": [(40.0, 1.0)], STAGING: [(1.0, 1.0)]})
        lookahead = lookahead.after(seen)
    assert lookahead.decision.candidate == "ingest"
