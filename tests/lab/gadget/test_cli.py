"""``tailrace gadget``: traces are written, wrong options are named, and the operator of the documentation works."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from tailrace.cli import app
from tailrace.lab.gadget.events.watermarks import by_events
from tailrace.lab.gadget.operators.driver import pieces
from tailrace.lab.gadget.traces.trace import Events, joined, read_trace
from tailrace.lab.gadget.workloads import WORKLOADS

DOCS = Path(__file__).parents[3] / "docs" / "explanation" / "gadget.md"


def gadget(*arguments: object) -> Any:
    return CliRunner().invoke(app, ["gadget", *map(str, arguments)], env={"COLUMNS": "200"})


@pytest.mark.parametrize("command", [(), ("generate",), ("ycsb",), ("import",), ("workloads",)])
def test_help_has_examples(command: tuple[str, ...]) -> None:
    done = gadget(*command, "--help")
    assert done.exit_code == 0 and "Examples" in done.output


def test_workloads_are_listed() -> None:
    done = gadget("workloads")
    assert done.exit_code == 0 and all(name in done.output for name in WORKLOADS)


def test_a_trace_from_options_equals_one_from_a_configuration(tmp_path: Path) -> None:
    one, other, config = tmp_path / "one.parquet", tmp_path / "other.parquet", tmp_path / "c.txt"
    done = gadget(
        "generate", "sliding-holistic", "--out", one, "--events", "2k", "--keys", "zipf:s=0.5,keyspacesize=100",
        "--gaps", "constant:constant=0.25", "--window", 4, "--slide", 2, "--late", 10, "--lateness", 2,
        "--watermark-seconds", 1, "--value-size", "uniform:a=5,b=9", "--seed", 4,
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    config.write_text(
        "operator.type = sliding.keyed.holistic\nwindow.length = 4\nsliding.length = 2\nseed = 9\n"
        "first.event.generator.events = 2000\n"
        "first.event.generator.key.popularity.distrib.type = zipf\n"
        "first.event.generator.key.popularity.distrib.params.s = 0.5\n"
        "first.event.generator.key.popularity.distrib.params.keyspacesize = 100\n"
        "first.event.generator.event.occurrence.gap.distrib.type = constant\n"
        "first.event.generator.event.occurrence.gap.distrib.params.constant = 0.25\n"
        "first.event.generator.outoforder.percentage = 10\nfirst.event.generator.lateness.threshold = 2\n"
        "first.event.generator.watermark.frequency = 1\n"
        "operator.value.size.distrib.type = uniform\noperator.value.size.distrib.params.a = 5\n"
        "operator.value.size.distrib.params.b = 9\n"
    )
    done = gadget("generate", "--config", config, "--out", other, "--set", "seed=4")
    assert done.exit_code == 0, done.output
    mine, theirs = read_trace(one), read_trace(other)
    assert len(mine) > 4_000 and f"{len(mine):,} accesses" in done.output
    for name in ("operations", "keys", "value_sizes", "times"):
        assert (getattr(mine, name) == getattr(theirs, name)).all()


def test_a_join_of_an_event_file_and_a_stand_in(tmp_path: Path) -> None:
    (tmp_path / "jobs.txt").write_text("1,150936000000,SUBMIT,u,n,l,0\n1,150940000000,FINISH,u,n,l,0\n")
    out = tmp_path / "t.parquet"
    options = ("--left", tmp_path / "jobs.txt", "--left-format", "borg-jobs", "--out", out)
    done = gadget("generate", "continuous-join", "--source", "borg", "--events", "1k", *options)
    assert done.exit_code == 0, done.output
    assert (np.bincount(read_trace(out).operations, minlength=4)[[1, 3]] == [1, 3]).all()


def test_ycsb_and_import(tmp_path: Path) -> None:
    out, text = tmp_path / "y.parquet", tmp_path / "run.txt"
    done = gadget("ycsb", "F", "--requests", "latest", "--records", 50, "--operations", "1k", "--out", out)
    assert done.exit_code == 0, done.output
    assert read_trace(out).metadata["requests"] == "latest" and read_trace(out).distinct_keys <= 50
    done = gadget("ycsb", "--like", out, "--requests", "hotspot", "--out", tmp_path / "z.parquet")
    assert done.exit_code == 0 and len(read_trace(tmp_path / "z.parquet")) == len(read_trace(out))
    text.write_text("READ usertable user1 [ <all fields>]\nSCAN usertable user1 5\n")
    done = gadget("import", "ycsb", text, "--out", out)
    assert done.exit_code == 0 and len(read_trace(out)) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("generate",), "operator.type is missing"),
        (("generate", "counting"), "no workload is called 'counting'"),
        (
            ("generate", "aggregation", "--keys", "zipf:s=1"),
            "params.keyspacesize is missing: the distribution zipf",
        ),
        (("generate", "aggregation", "--keys", "zipf:1"), "--keys: '1' of 'zipf:1' is not of the form parameter=value"),
        (("generate", "aggregation", "--events", "many"), "--events: first.event.generator.events: 'many'"),
        (("generate", "aggregation", "--set", "window=5"), "nothing is called 'window'"),
        (("generate", "aggregation", "--source", "none.csv"), "key.index is missing"),
        (
            ("generate", "aggregation", "--source", "none.csv", "--format", "borg-jobs"),
            "there is no event file none.csv",
        ),
        (("generate", "aggregation", "--watermark-events", "0"), "watermark.events: 0 is below 1"),
        (("ycsb",), "name a workload"),
        (("ycsb", "E"), "no YCSB workload is called 'E'"),
        (("ycsb", "A", "--operations", "x"), "'x' is not a whole number"),
        (("ycsb", "--like", "none.parquet"), "there is no trace none.parquet"),
        (("import", "zoo", "a.txt"), "no text format is called 'zoo'"),
        (("import", "ycsb", "none.txt"), "none.txt cannot be read"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, monkeypatch: Any, arguments: tuple[str, ...], message: str) -> None:
    monkeypatch.chdir(tmp_path)
    done = gadget(*arguments)
    assert done.exit_code == 2
    assert message in " ".join(re.sub(r"[│╭╮╰╯─]", " ", done.output).split())
    assert list(tmp_path.iterdir()) == []


def test_the_operator_of_the_documentation() -> None:
    """At most thirty lines, three methods, and it does what the text says: a put for every third event of a key."""
    (code,) = re.findall(r"```python\n(# An operator of your own.*?)```", DOCS.read_text(), re.DOTALL)
    assert len(code.splitlines()) <= 30
    names: dict[str, Any] = {"__name__": "example"}
    exec(code, names)
    events = Events(np.array([5, 5, 6, 5, 6, 6, 6]), np.arange(7) * 1_000_000)
    trace = joined(pieces(names["operator"], events, by_events(events, 100)))
    shown = " ".join(f"{'GPMD'[operation]}{key + 1}" for operation, key in zip(trace.operations, trace.keys))
    assert shown == "M1 M1 M2 M1 G1 P1 M2 M2 G2 P2 M2 G1 D1 G2 D2"
