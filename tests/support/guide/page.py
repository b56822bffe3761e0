"""``docs/reference/spark-examples.md``: which of the programs run on Tailrace, and that their rows are Spark's.

``PYTHONPATH=tests python tests/support/guide/page.py`` runs all of them on both engines and writes the page, or, with
names of programs, runs these and writes their lines. The long tests run all of them and compare the page.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from pyspark.sql import SparkSession

from support.guide import aggregations, joins, per_key
from support.guide.program import Outcome, Program, on_spark, on_tailrace, run
from support.session import session_builder

PROGRAMS = (*aggregations.PROGRAMS, *joins.PROGRAMS, *per_key.PROGRAMS)
PAGE = Path(__file__).parents[3] / "docs/reference/spark-examples.md"

_HEAD = """# Spark's examples

Every stateful example of Spark's Structured Streaming guide and of its `examples/src/main/python/sql/streaming`,
written anew and run twice over the same rows: on Spark, and with one line changed, `tr.writeStream(df)` instead of
`df.writeStream`. A test runs them and writes this page, so every line of it was seen.

*The same rows* are: all rows together in append mode, the last row of each key in update mode, the last epoch's rows in
complete mode. Sources are Parquet files with the columns of the sources there, one file a micro-batch.

| example | where it stands | mode | run by | rows | what is not as there |
|---|---|---|---|---|---|
"""
_TAIL = """
Keep no state, so that Spark does all of their work on either engine: `structured_blockchain_admission_control.py`,
`simple_streaming_query.py`, and the guide's selections and sinks.
"""


def compared(program: Program, spark: SparkSession, path: Path) -> tuple[Outcome, Outcome]:
    """On Spark and on Tailrace. A program that gives no row tells nothing."""
    both = tuple(
        run(program, spark, path / name, writer) for name, writer in (("spark", on_spark), ("tailrace", on_tailrace))
    )
    assert len(both[0].rows) > 1, f"{program.name}: no rows"
    return both[0], both[1]


def page(outcomes: Mapping[str, tuple[Outcome, Outcome]]) -> str:
    return _HEAD + "".join(_line(program, *outcomes[program.name]) for program in PROGRAMS) + _TAIL


def verdict(outcome: Outcome) -> str:
    if outcome.why_spark is None:
        return "Tailrace"
    return f"Spark: {outcome.why_spark.partition(' (at ')[0]}"


def _line(program: Program, theirs: Outcome, ours: Outcome) -> str:
    rows = f"{len(theirs.rows) - 1}, the same" if theirs.rows == ours.rows else "**different**"
    origin = f"`{program.origin}`" if program.origin.endswith(".py") else program.origin
    cells = (program.name, origin, program.mode, verdict(ours), rows, program.instead)
    return f"| {' | '.join(_cell(each) for each in cells)} |\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _write(names: Sequence[str]) -> None:
    spark = session_builder("local[2]").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    outcomes = {}
    with tempfile.TemporaryDirectory() as folder:
        for number, program in enumerate(PROGRAMS):
            if names and program.name not in names:
                continue
            outcomes[program.name] = compared(program, spark, Path(folder) / str(number))
            print(_line(program, *outcomes[program.name]), end="", flush=True)
            theirs, ours = (each.rows for each in outcomes[program.name])
            if theirs != ours:
                print("  Spark alone:", [row for row in theirs if row not in ours][:3])
                print("  Tailrace alone:", [row for row in ours if row not in theirs][:3])
    if not names:
        PAGE.write_text(page(outcomes), encoding="utf-8")
    lines = {f"| {program.name} ": program for program in PROGRAMS if program.name in outcomes}
    kept = PAGE.read_text(encoding="utf-8").splitlines(keepends=True)
    for number, line in enumerate(kept):
        program = lines.get(line[: line.find("|", 1)])
        if program is not None:
            kept[number] = _line(program, *outcomes[program.name])
    PAGE.write_text("".join(kept), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(_write(sys.argv[1:]))
