"""Which candidate sends hints: the rule against a plain statement of it, and a run in which the world changes twice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.spark.hints.framing import FRAMES, Framing, FramingRule
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


def _plainly(
    epochs: Sequence[Seen], candidates: tuple[str, ...], rule: Rule, framed: FramingRule | None, in_plan: int
) -> list[tuple[str, bool]]:
    """The rule, recomputed from all epochs so far each time. Gives the candidate, and whether all are measured."""
    decided: list[tuple[str, bool]] = []
    gone = gone_at = times = 0
    dear: dict[str, int] = {}
    moved_at = 0  # the epoch after which the present candidate was chosen
    on = False
    framing = None if framed is None else Framing(framed)
    for now, seen in enumerate(epochs):
        current = decided[-1][0] if decided else STAGING
        waited = seen.misses > 0 or seen.late > 0
        was_on, on = on, seen.wanted and (on or waited)
        past = epochs[: now + 1]
        idle = 0
        while idle <= now and past[now - idle].spilled == 0:
            idle += 1
        dearer = 0
        if framing is not None and framed is not None:
            over = not seen.wanted or idle >= rule.epochs_idle
            framing = Framing(framed) if over else framing.after(seen.wait_ms, waited)
            dearer = 0 if framing.in_plan else in_plan if framing.in_tasks else len(candidates) - 1
        if on and idle >= rule.epochs_idle:
            on = False
        if not on or len(candidates) == 1:
            chosen, measured = STAGING, False
        else:
            if gone and now - gone_at >= min(rule.epochs_discarded_max, rule.epochs_discarded * 2 ** (times - 1)):
                gone = 0
            before = gone
            if current != STAGING and was_on:
                counted = [each for at, each in enumerate(past) if at >= moved_at + rule.epochs_settling]
                used, wasted = sum(each.used for each in counted), sum(each.wasted for each in counted)
                if wasted > rule.waste_max * (used + wasted):
                    gone = candidates.index(current) + 1
                spilled = misses = 0
                for at in range(now, moved_at + rule.epochs_settling - 1, -1):  # back to where it was not early enough
                    then = epochs[: at + 1]
                    known = _known(then[-rule.epochs_kept :], (current,))
                    if current not in known or known[current] < _fetch(then) + rule.margin_ms:
                        break
                    spilled, misses = spilled + epochs[at].spilled, misses + epochs[at].misses
                if misses > rule.misses_max * spilled:
                    gone = candidates.index(current) + 1
                sent, moved = sum(each.hint_bytes for each in counted), sum(each.row_bytes for each in counted)
                if gone <= candidates.index(current) and counted and moved and sent / moved > 0.1:
                    known = _known(past[-rule.epochs_kept :], (current, STAGING))
                    if current in known and STAGING in known and known[STAGING] >= known[current] / 4:
                        dear[current] = now
                if gone > before:
                    gone_at, times = now, times + 1
            kept = tuple(
                name for name in candidates[max(gone, dearer) :] if now - dear.get(name, -99) >= rule.epochs_kept
            )
            fetch = _fetch(past)
            known = _known(past[-rule.epochs_kept :], kept)
            late = [at for at, each in enumerate(past) if each.late]
            wary = now < _wary_until(late, rule) and fetch >= _fetch(past[: late[-1] + 1]) / 2
            wary = wary and max(known.values(), default=0.0) >= (fetch + rule.margin_ms) / 2
            enough = [name for name in kept if name in known and known[name] >= fetch + rule.margin_ms and not wary]
            chosen = enough[-1] if enough else kept[0]
            if not enough and set(known) == set(kept):  # as good as any, if not good enough
                share, usual = 1.0 if wary else 0.9, _known(past[-rule.epochs_kept :], kept, 2)
                chosen = [name for name in kept if usual[name] >= share * max(usual.values())][-1]
            recent = past[-rule.epochs_kept :]
            seldom = [name for name in kept if len([each for each in recent if each.slack.get(name)]) < 2]
            measured = chosen != STAGING and bool(seldom)
        if chosen != current:
            moved_at = now + 1
        decided.append((chosen, measured))
    return decided


def _wary_until(late: Sequence[int], rule: Rule) -> int:
    """The first epoch that is no longer wary, after epochs with such rows."""
    until, length = -1, 0
    for number, at in enumerate(late):
        if not number or at > until + length:
            length = rule.epochs_wary  # for the first time, or long after
        elif at > until:
            length = min(2 * length, rule.epochs_wary_max)
        until = at + length
    return until


def _fetch(past: Sequence[Seen]) -> float:
    return next((each.fetch_ms_p99 for each in reversed(past) if each.fetch_ms_p99), 0.0)


def _known(past: Sequence[Seen], names: Sequence[str], part: int = 100) -> dict[str, float]:
    """The slack of all rows but a hundredth, or another part, of candidates of which there is any."""
    known: dict[str, float] = {}
    for name in names:
        rows = sorted(slack for each in past for slack, n in each.slack.get(name, ()) for _ in range(int(n)))
        if rows:
            known[name] = rows[len(rows) // part]
    return known


def _samples() -> st.SearchStrategy[list[Sample]]:
    return st.lists(st.tuples(st.integers(0, 30).map(float), st.integers(1, 300)), max_size=3)


def _seen() -> st.SearchStrategy[Seen]:
    return st.builds(
        lambda hits, misses, *rest: Seen(hits + misses, misses, *rest),
        st.sampled_from([0, 0, 5]),
        st.sampled_from([0, 0, 3]),
        st.integers(0, 20).map(float),
        st.dictionaries(st.sampled_from(NAMES), _samples()),
        st.integers(0, 20),
        st.sampled_from([0, 0, 0, 1, 10]),
        st.sampled_from([True, True, True, True, False]),
        st.sampled_from([0.0, 0.9, 5.0, 40.0]),
        st.sampled_from([0, 0, 2]),
        st.sampled_from([0, 0, 5, 30]),
        st.sampled_from([0, 100]),
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
        epochs_wary=st.integers(1, 3),
        epochs_wary_max=st.sampled_from([3, 5, 1024]),
        epochs_discarded=st.integers(1, 4),
        epochs_discarded_max=st.sampled_from([2, 5, 1024]),
    ),
    st.none()
    | st.builds(
        FramingRule, worth_ms=st.sampled_from([0.0, 10.0, 20.0]), epochs=st.just(1), epochs_settling=st.just(0)
    ),
    st.integers(0, 3),
)
def test_decisions_are_those_of_the_rule(
    epochs: list[Seen], missing: int, rule: Rule, framed: FramingRule | None, in_plan: int
) -> None:
    candidates = NAMES[missing:]
    in_plan = min(in_plan, len(candidates) - 1)
    lookahead = Lookahead(candidates, rule, framing=None if framed is None else Framing(framed), in_plan=in_plan)
    found = []
    for seen in epochs:
        lookahead = lookahead.after(seen)
        assert lookahead.decision.reason
        found.append((lookahead.decision.candidate, lookahead.decision.measured))
    assert found == _plainly(epochs, candidates, rule, framed, in_plan)


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
    """State in memory, then cold; keys that change behind the source; a backend that gets faster, slower, and idle."""
    world = _World()
    assert set(world.epochs(5)) == {STAGING}, "nothing is cold"
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
    assert "no cold state was asked for" in world.lookahead.decision.reason


def test_hints_at_keys_that_do_not_exist_are_seen_by_what_is_missed() -> None:
    """Nothing is fetched for them, so that nothing goes unused: but with slack enough nothing would be waited for."""
    world = _World()
    world.spilled, world.fetch_ms = 100, 10.0  # staging has too little, the others enough
    assert world.epochs(6)[-1] == "transform 2"
    lookahead = world.lookahead
    slack = {name: [(ms, 1000)] for name, ms in world.slack_ms.items()}
    for _ in range(12):
        lookahead = lookahead.after(Seen(spilled=100, misses=90, fetch_ms_p99=10.0, slack=slack))
    assert lookahead.kept == (STAGING,) and "other keys: source, transform 1, transform 2" in lookahead.decision.reason


def test_the_discarded_may_try_again_less_and_less_often() -> None:
    slack = {"ingest": [(40.0, 1.0)], STAGING: [(1.0, 1.0)]}
    lookahead, tried = Lookahead(("ingest", STAGING)), list[int]()
    for number in range(600):
        ahead = lookahead.decision.candidate == "ingest"
        if ahead and (not tried or tried[-1] < number - 10):
            tried.append(number)
        lookahead = lookahead.after(
            Seen(spilled=100, late=90, fetch_ms_p99=10.0, slack=slack, wasted=1 if ahead else 0)
        )
    waits = [after - before for before, after in pairwise(tried)]
    assert waits[0] >= 64 and all(after > 1.5 * before for before, after in pairwise(waits)), tried
    for _ in range(800):  # by then what it hints at is asked for
        lookahead = lookahead.after(Seen(spilled=100, late=90, fetch_ms_p99=10.0, slack=slack, used=100))
    assert lookahead.decision.candidate == "ingest" and not lookahead.discarded


def test_one_hiccup_does_not_decide_which_has_most_slack() -> None:
    """Hints of one epoch came as late as its rows."""
    lookahead = Lookahead(("ingest", STAGING))
    for number in range(12):
        ingest = 4.0 if number == 8 else 20.0
        slack = {"ingest": [(ingest, 1.0)], STAGING: [(4.0 if number == 8 else 8.0, 1.0)]}
        lookahead = lookahead.after(Seen(spilled=100, late=90, fetch_ms_p99=60.0, slack=slack))
    assert lookahead.decision.candidate == "ingest", lookahead.decision


def test_an_operator_without_an_earlier_point_is_left_alone() -> None:
    lookahead = Lookahead((STAGING,)).after(Seen(spilled=9, misses=9, fetch_ms_p99=100.0))
    assert lookahead.decision.candidate == STAGING and not lookahead.decision.measured
    assert "no earlier point" in lookahead.decision.reason


def test_a_user_is_told_where_hints_come_from() -> None:
    world = _World()
    world.spilled, world.fetch_ms = 100, 10.0
    world.epochs(6)
    first, second = lookahead_lines({"aggregate": world.lookahead, "alone": Lookahead((STAGING,))})
    assert first.startswith("Lookahead of aggregate: transform 2: the latest with enough slack: 20.0 ms")
    assert second.endswith("source (60.0 ms), transform 1 (40.0 ms), transform 2 (20.0 ms), staging (3.0 ms)")
    assert lookahead_lines({"alone": Lookahead((STAGING,))}) == []


def test_waiting_for_what_was_foretold_too_late_turns_hints_on() -> None:
    """Every record was foretold, and all rows waited: staging told too late, and an earlier point is tried."""
    lookahead = Lookahead(("ingest", STAGING))
    for _ in range(4):
        lookahead = lookahead.after(Seen(spilled=100, fetch_ms_p99=50.0, slack={STAGING: [(20.0, 1.0)]}))
    assert lookahead.decision.candidate == STAGING
    lookahead = lookahead.after(Seen(spilled=100, late=30, fetch_ms_p99=50.0, slack={STAGING: [(20.0, 1.0)]}))
    assert lookahead.decision.candidate == "ingest"
    for _ in range(6):  # what comes late was foretold: no reason to think that the point sees other keys
        seen = Seen(spilled=100, late=90, fetch_ms_p99=5.0, slack={"ingest": [(40.0, 1.0)], STAGING: [(1.0, 1.0)]})
        lookahead = lookahead.after(seen)
    assert lookahead.decision.candidate == "ingest"


def test_points_of_the_plan_must_be_worth_what_they_cost() -> None:
    """Where rows come in frames, these are made smaller, and tasks may hint: points come only after long waits."""

    def after(lookahead: Lookahead, epochs: int, wait_ms: float) -> Lookahead:
        for _ in range(epochs):
            late = 30 if wait_ms else 0
            lookahead = lookahead.after(Seen(spilled=100, late=late, wait_ms=wait_ms, slack={STAGING: [(20.0, 1.0)]}))
        return lookahead

    def framing(lookahead: Lookahead) -> Framing:
        assert lookahead.framing is not None
        return lookahead.framing

    throttle = after(Lookahead(NAMES, framing=Framing(), in_plan=3), 3, 0.0)
    assert framing(throttle).frames == 1 and "no cold state was waited for" in throttle.decision.reason
    once = after(throttle, 1, 3.0)
    assert framing(once).frames == 1 and once.kept == (STAGING,) and once.decision.candidate == STAGING
    assert once.decision.reason.endswith("rows wait for less than these cost: source, transform 1, transform 2, ingest")
    assert framing(after(once, 40, 0.5)).frames == 1, "a frame costs more"
    some = after(once, 40, 1.5)
    assert framing(some).frames == FRAMES[-1] and some.kept == (STAGING,)
    more = after(once, 40, 12.0)
    assert more.kept == ("ingest", STAGING) and not framing(more).in_plan, "points of the plan cost more"
    assert not framing(after(once, 20, 300.0)).in_plan, "frames have only just become smaller"
    much = after(once, 40, 300.0)
    assert much.decision.candidate == "source"
    idle = much
    for _ in range(16):
        idle = idle.after(Seen())
    assert framing(idle) == Framing()
    chained = after(Lookahead(NAMES), 1, 1.0)
    assert chained.decision.candidate == "source", "its rows come from another operator"
    as_asked = after(Lookahead(NAMES, framing=Framing(FramingRule(worth_ms=0.0)), in_plan=3), 1, 1.0)
    assert as_asked.decision.candidate == "source"


def test_where_none_has_slack_enough_hints_must_bring_more_than_a_little() -> None:
    for staging, wanted in ((31.0, STAGING), (20.0, "ingest")):
        lookahead = Lookahead(("ingest", STAGING))
        for _ in range(5):
            slack = {"ingest": [(33.0, 1.0)], STAGING: [(staging, 1.0)]}
            lookahead = lookahead.after(Seen(spilled=100, late=90, fetch_ms_p99=90.0, slack=slack))
        assert lookahead.decision.candidate == wanted, lookahead.decision


def test_hints_that_are_many_bytes_must_bring_much_slack() -> None:
    for sent, staging, wanted in ((900, 20.0, "ingest"), (1100, 20.0, STAGING), (1100, 5.0, "ingest")):
        lookahead = Lookahead(("source", "ingest", STAGING))
        for _ in range(12):
            ahead = lookahead.decision.candidate != STAGING
            slack = {"source": [(33.5, 1.0)], "ingest": [(33.0, 1.0)], STAGING: [(staging, 1.0)]}
            seen = Seen(spilled=100, late=90, fetch_ms_p99=90.0, slack=slack)
            lookahead = lookahead.after(replace(seen, hint_bytes=sent if ahead else 0, row_bytes=10_000))
            assert not lookahead.discarded
        found = lookahead.decision
        if wanted == STAGING:  # one after the other
            assert found.candidate == STAGING and "ingest, source" in found.reason, found
        else:
            assert found.candidate == wanted and "many bytes" not in found.reason, found


def test_rows_that_have_waited_for_fetches_move_hints_to_where_there_is_most_time() -> None:
    slack = {name: [(ms, 1.0)] for name, ms in zip(NAMES, (9.6, 9.8, 10.0, 9.9, 9.5), strict=True)}
    lookahead = Lookahead(NAMES)
    for _ in range(4):
        lookahead = lookahead.after(Seen(spilled=5, misses=1, fetch_ms_p99=1.0, slack=slack))
    assert lookahead.decision.candidate == STAGING, "the latest with enough slack"
    lookahead = lookahead.after(Seen(spilled=5, late=1, fetch_ms_p99=1.0, slack=slack))
    assert lookahead.decision.candidate == "transform 2"
    assert "rows have waited for fetches" in lookahead.decision.reason
    for epoch in range(Rule().epochs_wary):
        assert lookahead.decision.candidate == "transform 2", epoch
        lookahead = lookahead.after(Seen(spilled=5, fetch_ms_p99=1.0, slack=slack))
    assert lookahead.decision.candidate == STAGING, "that is long ago"

    lookahead = lookahead.after(Seen(spilled=5, late=1, fetch_ms_p99=3.0, slack=slack))
    assert lookahead.decision.candidate == "transform 2"
    assert lookahead.after(Seen(spilled=5, fetch_ms_p99=1.5, slack=slack)).decision.candidate == "transform 2"
    assert lookahead.after(Seen(spilled=5, fetch_ms_p99=1.4, slack=slack)).decision.candidate == STAGING, (
        "it is quick now"
    )
    for _ in range(5 * Rule().epochs_wary):
        lookahead = lookahead.after(Seen(spilled=5, fetch_ms_p99=1.0, slack=slack))

    def epochs_until_staging(now: Lookahead) -> int:
        for epoch in range(10_000):
            if now.decision.candidate == STAGING:
                return epoch
            now = now.after(Seen(spilled=5, fetch_ms_p99=1.0, slack=slack))
        raise AssertionError("never")

    waited = Seen(spilled=5, late=1, fetch_ms_p99=1.0, slack=slack)
    lengths = []
    for _ in range(9):
        lookahead = lookahead.after(waited)
        lengths.append(epochs_until_staging(lookahead))
        for _ in range(lengths[-1]):
            lookahead = lookahead.after(Seen(spilled=5, fetch_ms_p99=1.0, slack=slack))
    assert lengths == [16, 32, 64, 128, 256, 512, 1024, 1024, 1024], "ever longer, while it comes back at once"
    for _ in range(2000):
        lookahead = lookahead.after(Seen(spilled=5, fetch_ms_p99=1.0, slack=slack))
    assert epochs_until_staging(lookahead.after(waited)) == Rule().epochs_wary, "long after, as at first"
