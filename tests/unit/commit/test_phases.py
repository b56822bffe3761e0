"""Steps of a commit: legal ones only."""

from __future__ import annotations

import pytest

from tailrace.commit.phases import LEGAL, Phase, Phases
from tailrace.ids import NO_EPOCH, Attempt

WAY = (Phase.SEALED, Phase.LOCAL, Phase.REMOTE, Phase.DURABLE)


def test_the_way_of_an_epoch() -> None:
    phases = Phases(NO_EPOCH)
    for to in WAY:
        assert phases.durable == NO_EPOCH
        phases.step(Attempt(0, 0), to)
    assert phases.durable == 0
    phases.step(Attempt(1, 0), Phase.SEALED)
    phases.step(Attempt(1, 1), Phase.SEALED)  # a new try begins again
    phases.step(Attempt(1, 1), Phase.REMOTE)
    assert (phases.of(Attempt(1, 1)), phases.of(Attempt(1, 0))) == (Phase.REMOTE, None)


@pytest.mark.parametrize("before", [None, *Phase])
@pytest.mark.parametrize("to", list(Phase))
def test_every_step_that_is_not_in_the_table_is_refused(before: Phase | None, to: Phase) -> None:
    phases = Phases(4)
    way = {
        None: [],
        Phase.SEALED: [Phase.SEALED],
        Phase.LOCAL: [Phase.SEALED, Phase.LOCAL],
        Phase.REMOTE: [Phase.SEALED, Phase.REMOTE],
        Phase.DURABLE: [Phase.SEALED, Phase.REMOTE, Phase.DURABLE],
        Phase.GIVEN_UP: [Phase.GIVEN_UP],
    }[before]
    for each in way:
        phases.step(Attempt(5, 0), each)
    if to in LEGAL[before]:
        phases.step(Attempt(5, 0), to)
    else:
        with pytest.raises(RuntimeError, match="cannot go"):
            phases.step(Attempt(5, 0), to)


def test_older_tries_are_refused() -> None:
    phases = Phases(0)
    phases.step(Attempt(1, 1), Phase.SEALED)
    with pytest.raises(RuntimeError, match="already begun"):
        phases.step(Attempt(1, 0), Phase.SEALED)


def test_one_epoch_may_begin_while_the_one_before_is_under_way() -> None:
    phases = Phases(0)
    phases.step(Attempt(1, 0), Phase.SEALED)
    phases.step(Attempt(2, 0), Phase.SEALED)
    phases.step(Attempt(2, 0), Phase.REMOTE)
    with pytest.raises(RuntimeError, match="would be durable"):
        phases.step(Attempt(2, 0), Phase.DURABLE)
    with pytest.raises(RuntimeError, match="is not durable"):
        phases.step(Attempt(3, 0), Phase.SEALED)
    for to in (Phase.REMOTE, Phase.DURABLE):
        phases.step(Attempt(1, 0), to)
    phases.step(Attempt(2, 0), Phase.DURABLE)
    assert phases.durable == 2


def test_nothing_begins_after_an_epoch_that_was_given_up_or_never_began() -> None:
    phases = Phases(0)
    with pytest.raises(RuntimeError, match="has not begun"):
        phases.step(Attempt(2, 0), Phase.SEALED)
    phases.step(Attempt(1, 0), Phase.SEALED)
    phases.step(Attempt(1, 0), Phase.GIVEN_UP)
    with pytest.raises(RuntimeError, match="has not begun"):
        phases.step(Attempt(2, 0), Phase.SEALED)


def test_a_later_try_of_a_durable_epoch_goes_the_way_again() -> None:
    """A crash between our entry and Spark's: the epoch is replayed on top of the one before."""
    phases = Phases(0)
    for try_ in (0, 1):
        for to in (Phase.SEALED, Phase.REMOTE, Phase.DURABLE):
            phases.step(Attempt(1, try_), to)
    assert phases.durable == 1
