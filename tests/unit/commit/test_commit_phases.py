"""Steps of a commit: legal ones only."""

from __future__ import annotations

import pytest

from tailrace.commit.phases import LEGAL, Phase, Phases
from tailrace.ids import Attempt


def test_the_way_of_an_epoch() -> None:
    phases = Phases()
    for to in (Phase.SEALED, Phase.LOCAL, Phase.REMOTE, Phase.DURABLE):
        phases.step(Attempt(0, 0), to)
    phases.step(Attempt(1, 0), Phase.SEALED)
    phases.step(Attempt(1, 1), Phase.SEALED)  # a new try begins again
    phases.step(Attempt(1, 1), Phase.REMOTE)
    assert (phases.newest, phases.phase) == (Attempt(1, 1), Phase.REMOTE)


@pytest.mark.parametrize("before", [None, *Phase])
@pytest.mark.parametrize("to", list(Phase))
def test_every_step_that_is_not_in_the_table_is_refused(before: Phase | None, to: Phase) -> None:
    phases = Phases()
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


def test_older_attempts_and_skipped_epochs_are_refused() -> None:
    phases = Phases()
    phases.step(Attempt(1, 1), Phase.SEALED)
    with pytest.raises(RuntimeError, match="already begun"):
        phases.step(Attempt(1, 0), Phase.SEALED)
    with pytest.raises(RuntimeError, match="is not durable"):
        phases.step(Attempt(2, 0), Phase.SEALED)
