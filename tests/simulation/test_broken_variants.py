"""Each rule of the commit, taken away: the simulator must notice within so many seeds, or it proves nothing.

The numbers are about ten times what was needed on average: a variant that is not noticed within them says that the
simulator has become blind to it.
"""

from __future__ import annotations

import random

import pytest
from _pytest.mark import ParameterSet

from support.simulation import broken, broken_sink
from support.simulation.seeds import Failed, run_seeds

SEEDS_MAX: dict[broken.Break, int] = {
    broken.no_gate: 30,
    broken.acknowledged_before_it_is_synced: 100,
    broken.folder_not_synced: 200,
    broken.acknowledged_before_it_is_stored: 30,
    broken.listed_and_not_synced: 800,
    broken.put_over_others: 150,
    broken.not_behind_the_fence: 150,
    broken.no_rewind: 200,
    broken.spark_logs_recorded_behind_the_sink: 1_000,
    broken.sources_not_recorded: 50,
    broken.half_files_trusted: 1_000,
    broken.half_commits_trusted: 1_000,
    broken.spark_records_taken_for_orphans: 50,
    broken.record_of_any_run_counts: 1_000,
    broken.sleeper_records_and_releases: 1_000,
    broken.fresh_plan_accepted: 1_000,
    broken.last_replay_forgotten: 1_000,
    broken.cleaned_before_it_is_replayed: 1_000,
    broken.far_checkpoint_not_recorded: 100,
    broken.one_version_kept: 200,
    broken.objects_deleted_first: 800,
    broken.sealed_too_late: 600,
    broken.snapshotted_as_before: 600,
    broken.applied_twice: 250,
    broken.no_record: 100,
    broken.old_record_overlooked: 1_000,
    broken.record_put_by_a_sleeper: 1_000,
    broken.closed_too_early: 60,
    broken.gone_with_its_manifest: 100,
    broken.clock_believed: 1_000,
    broken.loss_counted_too_late: 1_000,
    broken.not_called_again: 500,
    broken.waits_for_the_only_server: 300,
    broken.cancelled_once: 1_000,
    broken.ended_by_what_others_write: 1_000,
    broken.tried_under_the_old_number: 200,
    broken.tries_counted: 500,
    broken.loss_in_a_start_ends_the_query: 800,
    broken.late_end_taken_for_a_timeout: 1_000,
    broken.moved_as_before: 300,
    broken_sink.sink_that_overwrites: 300,
    broken_sink.sink_folder_shared: 100,
    broken_sink.sink_decided_twice: 1_000,
    broken_sink.sink_never_decided: 100,
    broken_sink.manifest_believed: 400,
    broken_sink.sink_without_fence: 1_000,
    broken_sink.undecided_files_swept: 400,
    broken_sink.sink_files_not_synced: 800,
}
LONG = (
    broken.old_record_overlooked,
    broken.record_put_by_a_sleeper,
    broken.cancelled_once,
    broken_sink.sink_decided_twice,
    broken_sink.sink_without_fence,
)
"""That take hundreds of seeds."""


def _case(each: broken.Break) -> ParameterSet:
    return pytest.param(each, id=each.__name__, marks=pytest.mark.long if each in LONG else ())


@pytest.mark.drawn(14)
@pytest.mark.parametrize("break_it", [_case(each) for each in SEEDS_MAX])
def test_a_broken_rule_is_noticed(monkeypatch: pytest.MonkeyPatch, break_it: broken.Break) -> None:
    break_it(monkeypatch)
    seeds = random.sample(range(2**32), SEEDS_MAX[break_it])
    with pytest.raises(Failed) as caught:
        run_seeds(seeds)
    print(str(caught.value).splitlines()[0])
