"""Each rule of the commit, taken away: the simulator must notice within so many seeds, or it proves nothing.

The numbers are about ten times what was needed on average: a variant that is not noticed within them says that the
simulator has become blind to it.
"""

from __future__ import annotations

import random

import pytest
from _pytest.mark import ParameterSet

from support.simulation import broken
from support.simulation.seeds import Failed, run_seeds

SEEDS_MAX: dict[broken.Break, int] = {
    broken.no_gate: 30,
    broken.acknowledged_before_it_is_synced: 100,
    broken.folder_not_synced: 200,
    broken.acknowledged_before_it_is_stored: 30,
    broken.put_over_others: 150,
    broken.not_behind_the_fence: 150,
    broken.commits_moved_first: 50,
    broken.no_rewind: 80,
    broken.one_version_kept: 200,
    broken.objects_deleted_first: 800,
    broken.sealed_too_late: 1_000,
    broken.snapshotted_as_before: 600,
    broken.applied_twice: 250,
    broken.no_record: 100,
    broken.old_record_overlooked: 6_000,
    broken.record_put_by_a_sleeper: 6_000,
    broken.closed_too_early: 60,
    broken.gone_with_its_manifest: 100,
}
LONG_FROM = 1_000


def _case(each: broken.Break) -> ParameterSet:
    return pytest.param(each, id=each.__name__, marks=pytest.mark.long if SEEDS_MAX[each] > LONG_FROM else ())


@pytest.mark.parametrize("break_it", [_case(each) for each in SEEDS_MAX])
def test_a_broken_rule_is_noticed(monkeypatch: pytest.MonkeyPatch, break_it: broken.Break) -> None:
    break_it(monkeypatch)
    seeds = random.sample(range(2**32), SEEDS_MAX[break_it])
    with pytest.raises(Failed) as caught:
        run_seeds(seeds)
    print(str(caught.value).splitlines()[0])
