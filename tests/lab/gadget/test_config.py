"""Configurations: the artifact's own form is read, and what is wrong is named with its line and its key."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tailrace.lab.gadget.events.distributions import Exponential, Uniform, Zipf
from tailrace.lab.gadget.events.source import Synthetic
from tailrace.lab.gadget.generate import generation
from tailrace.lab.gadget.settings.config import Config, ConfigError, FileInput, Settings, StandInInput

SAMPLE = """
# A comment, and an empty line above
operator.type = tumbling.keyed.incremental
Expected.Num.Operations = 5000
window.length = 5
first.event.generator.type = gadget
first.event.generator.key.popularity.distrib.type = zipf
first.event.generator.key.popularity.distrib.params.s = 1
first.event.generator.key.popularity.distrib.params.keyspacesize = 1000
first.event.generator.event.occurrence.gap.distrib.type = exponential
  first.event.generator.event.occurrence.gap.distrib.params.lambda=10
first.event.generator.arrival.interarrival.distrib.type = constant
first.event.generator.watermark.frequency = 1
first.event.generator.outoforder.percentage = 2
first.event.generator.lateness.threshold = 3
allowed.lateness = false
lateness.length = 3
operator.key.popularity.distrib.type = sequential
operator.key.size.distrib.type = constant
operator.key.size.distrib.params.constant = 12
operator.value.size.distrib.type = uniform
operator.value.size.distrib.params.a = 10
operator.value.size.distrib.params.b = 20
operator.service.time.distrib.type = constant
wrapper.type = file
wrapper.path = .
"""


def read(tmp_path: Path, text: str) -> Settings:
    (tmp_path / "c.txt").write_text(text)
    return Config().read(tmp_path / "c.txt").settings()


def test_the_form_of_the_artifact(tmp_path: Path) -> None:
    settings = read(tmp_path, SAMPLE)
    assert settings.workload.name == "tumbling-incremental" and settings.limit == 5_000
    assert settings.first == Synthetic(5_000, Zipf(1, 1_000), Exponential(10), 2, 3)
    assert settings.every_us == 1_000_000 and settings.every_events is None
    assert settings.parameters.window == 5_000_000 and settings.parameters.lateness == 0
    assert settings.value_size == Uniform(10, 20)
    trace = next(generation(settings).pieces())
    assert len(trace) == 5_000 and trace.key_bytes == 12
    assert trace.metadata["window.length"] == "5"
    written = trace.value_sizes[trace.value_sizes > 0]
    assert written.min() >= 10 and written.max() <= 20 and len(np.unique(written)) > 5


def test_the_paper_is_the_default(tmp_path: Path) -> None:
    settings = read(tmp_path, "operator.type = join.interval\n")
    assert (settings.parameters.lower, settings.parameters.upper) == (-120_000_000, 180_000_000)
    assert settings.every_events == 100 and isinstance(settings.second, Synthetic)
    assert read(tmp_path, "operator.type = session.incremental\n").parameters.gap == 120_000_000
    assert read(tmp_path, "operator.type = session.incremental\nwindow.length = 60\n").parameters.gap == 60_000_000


def test_two_inputs_of_two_kinds(tmp_path: Path) -> None:
    settings = read(
        tmp_path,
        "operator.type = continuous.join\nfirst.event.generator.type = tracefile\n"
        "first.event.generator.file.path = Jobs.txt\nfirst.event.generator.key.index = 0\n"
        "first.event.generator.event.time.index = 1\nfirst.event.generator.event.type.index = 2\n"
        "second.event.generator.type = borg\nsecond.event.generator.events = 2k\n",
    )
    assert isinstance(settings.first, FileInput) and settings.first.path == "Jobs.txt"
    assert settings.first.mapping.type == "2" and settings.second == StandInInput("borg", 2_000)


KEYS = "first.event.generator.key.popularity.distrib"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("window.length 5\n", r"line 1 of .*c\.txt: 'window.length 5' is not of the form name = value"),
        ("\n\nwindow.length =\n", "line 3 of .* is not of the form"),
        (
            "operator.type = aggregation\nwindow.lenght = 5\n",
            "line 2 of .*'window.lenght'; did you mean window.length?",
        ),
        ("seed = 1\nseed = 2\n", "line 2 of .*: seed was given in line 1 already"),
        ("seed = 1\n", "operator.type is missing: the workload, one of tumbling-incremental"),
        ("operator.type = counting\n", "line 1 of .*: operator.type: no workload is called 'counting'"),
        ("operator.type = ycsb.replayer\n", "line 1 of .*: operator.type: .* `tailrace gadget import` does that"),
        ("operator.type = aggregation\nseed = x\n", "line 2 of .*: seed: 'x' is not a whole number"),
        ("operator.type = aggregation\nwindow.length = nan\n", "line 2 of .*: window.length: 'nan' is not a number"),
        ("operator.type = aggregation\nwindow.length = -1\n", "window.length: -1 seconds are below"),
        (
            "operator.type = aggregation\nwindow.length = 1e300\n",
            "window.length: 1e.300 seconds are more",
        ),
        ("operator.type = sliding-holistic\nsliding.length = 9\n", "line 2 .*: sliding.length: a slide longer"),
        ("operator.type = interval-join\nlower.bound = 9\nupper.bound = 3\n", "lower.bound: it is above upper.bound"),
        ("operator.type = aggregation\nallowed.lateness = maybe\n", "allowed.lateness: 'maybe' is none of true, false"),
        (
            f"operator.type = aggregation\n{KEYS}.type = pareto\n",
            f"line 2 .*: {KEYS}.type: no distribution is called 'pareto'",
        ),
        (
            f"operator.type = aggregation\n{KEYS}.type = zipf\n",
            f"{KEYS}.params.* is missing: the distribution zipf needs it",
        ),
        (
            f"operator.type = aggregation\n{KEYS}.type = zipf\n{KEYS}.params.s = 1\n{KEYS}.params.keyspacesize = 1.5\n",
            f"line 4 of .*: {KEYS}.params.keyspacesize: '1.5' is not a whole number",
        ),
        (
            f"operator.type = aggregation\n{KEYS}.type = hotspot\n{KEYS}.params.s = 1\n",
            f"line 3 of .*: {KEYS}.params.s: the distribution hotspot has no such parameter",
        ),
        (f"operator.type = aggregation\n{KEYS}.params.s = 1\n", f"{KEYS}.type is missing: which distribution has s"),
        (
            "operator.type = aggregation\nfirst.event.generator.watermark.events = 5\n"
            "first.event.generator.watermark.frequency = 5\n",
            "line 2 of .*: first.event.generator.watermark.events: .*, line 3 of .*, not both",
        ),
        (
            "operator.type = aggregation\nfirst.event.generator.outoforder.percentage = 101\n",
            "line 2 .*outoforder.percentage: 101 is above 100",
        ),
        (
            "operator.type = aggregation\nfirst.event.generator.type = tracefile\n",
            "first.event.generator.file.path is missing: the event file",
        ),
        (
            "operator.type = aggregation\nfirst.event.generator.type = tracefile\n"
            "first.event.generator.file.path = a.csv\nfirst.event.generator.key.index = 0\n",
            "first.event.generator.event.time.index is missing",
        ),
        (
            "operator.type = aggregation\nfirst.event.generator.type = tracefile\n"
            "first.event.generator.file.path = a.csv\nfirst.event.generator.file.format = zoo\n",
            "line 4 of .*file.format: 'zoo' is none of borg-jobs",
        ),
        (
            "operator.type = join.tumbling\nfirst.event.generator.type = azure\n",
            "line 2 of .*: first.event.generator.type: azure is one stream, and tumbling-join needs two",
        ),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read(tmp_path, text)


def test_a_missing_configuration(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.txt cannot be read"):
        Config().read(tmp_path / "none.txt")
