"""Pages that say what of Spark runs on Tailrace: made anew from what Tailrace says now, they are as they are."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import tailrace as tr
from support.guide import features, page
from support.guide.program import Outcome
from tailrace.testing import ScriptedSource


def test_every_stateful_feature_has_its_verdict(spark: SparkSession) -> None:
    made = features.page_with(features.table(spark))
    assert features.PAGE.read_text() == made, "write it: PYTHONPATH=tests python tests/support/guide/features.py"


def test_every_example_of_spark_has_its_verdict(spark: SparkSession, tmp_path: Path) -> None:
    lines = {line.split("|")[1].strip(): line for line in page.PAGE.read_text().splitlines() if line.startswith("| ")}
    for number, program in enumerate(page.PROGRAMS):
        sources = {
            name: ScriptedSource(tmp_path / f"{number}{name}", each[0].schema) for name, each in program.feeds.items()
        }
        frame = program.build({name: source.stream(spark) for name, source in sources.items()})
        reason = features.why_spark(tr.writeStream(frame).outputMode(program.mode))
        verdict = page.verdict(Outcome([], reason))
        assert f"| {program.mode} | {verdict} |" in lines[program.name], (
            f"write it: PYTHONPATH=tests python tests/support/guide/page.py {program.name!r}"
        )


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_the_rows_of_sparks_examples_are_sparks(spark: SparkSession, tmp_path: Path) -> None:
    outcomes = {
        program.name: page.compared(program, spark, tmp_path / str(number))
        for number, program in enumerate(page.PROGRAMS)
    }
    assert page.PAGE.read_text() == page.page(outcomes)
