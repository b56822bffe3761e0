"""The option ``recordAccesses``: what it takes, what it switches off, and which queries it refuses."""

from __future__ import annotations

import pytest

import tailrace as tr
from support.bids import RecordingRuntime, bids
from tailrace.api.options import Combine, Options, parse_options, split_options
from tailrace.api.relations import OutputMode
from tailrace.api.windows import session_window, window
from tailrace.errors import AnalysisError
from tailrace.plan.explain import explain
from tailrace.plan.fingerprint import differences, fingerprint
from tailrace.plan.physical import plan_relation


def counts(by):
    return bids(RecordingRuntime()).withWatermark("ts", "10 seconds").groupBy(by, "auction").agg(tr.count("*")).source


def test_recording_is_off_unless_a_folder_is_given_and_may_change_between_runs():
    ours, rest = split_options({"RECORDACCESSES": " /data/accesses "})
    assert rest == {} and parse_options({}).record_folder is None
    options = parse_options(ours)
    assert options.record_folder == "/data/accesses"
    source = counts(window("ts", "10 seconds"))
    plain, recorded = (plan_relation(source, OutputMode.APPEND, each) for each in (Options(), options))
    assert plain.options.record_folder is None and plain.options.combine is Combine.AUTO
    assert recorded.options.record_folder == "/data/accesses" and recorded.options.combine is Combine.OFF
    assert differences(fingerprint(plain), fingerprint(recorded)) == []
    assert "accesses are recorded in /data/accesses on the executors" in explain(recorded)
    assert "recorded" not in explain(plain)


@pytest.mark.parametrize("given", ["", "here", "s3://bucket/accesses"])
def test_what_is_no_absolute_path_is_refused(given):
    with pytest.raises(AnalysisError, match="option 'recordAccesses' must be the absolute path of a folder"):
        parse_options({"recordAccesses": given})


def test_an_operator_whose_accesses_are_not_known_is_refused_when_planned():
    source = counts(session_window("ts", "10 seconds"))
    plan_relation(source, OutputMode.APPEND, Options())
    with pytest.raises(AnalysisError, match=r'aggregate cannot be recorded.*remove the option "recordAccesses"'):
        plan_relation(source, OutputMode.APPEND, Options(record_folder="/data"))
