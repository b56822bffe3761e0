"""One suite for all sinks that are tables or topics: each row once, whoever dies, sleeps, or is started twice."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

from support.sinks.cases import CASES, SCHEMA, Case, appended, batches, rows_of, upserted
from tailrace.errors import AnalysisError, FencedError, StateServerError
from tailrace.sinks.contract import Owner, Table, Unreachable
from tailrace.sinks.epochs import EpochWriter

CHILD = Path(__file__).parents[1] / "support" / "sinks" / "child.py"
LONG = os.environ.get("TAILRACE_TEST_LONG") == "1"
KILLS = 100 if LONG else 3
POINTS = ("rows", "commit", "done")
Make = Callable[..., Case]


KINDS = {**{name: name for name in CASES if name != "dbapi"}, "sqlite3": "dbapi", "psycopg": "dbapi"}
"""By the kind of table its format."""


@pytest.fixture(params=[*list(KINDS)[:-1], pytest.param("psycopg", marks=pytest.mark.long)])
def make(request: pytest.FixtureRequest, short_path: Path) -> Make:
    """Makes an empty table of the kind."""

    def made(upsert: bool = False, columns: dict[str, str] | None = None) -> Case:
        name = f"t{uuid.uuid4().hex[:8]}"
        place = {"path": str(short_path / name), "table": name, "upsert": "yes" if upsert else ""}
        if request.param == "postgresql":
            place["url"] = request.getfixturevalue("postgres").url
        if request.param == "psycopg":
            url = request.getfixturevalue("postgres").url
            place |= {"module": "psycopg", "connect": json.dumps({"conninfo": url})}
        if request.param == "sqlite3":
            place |= {"module": "sqlite3", "connect": json.dumps({"database": f"{short_path}/{name}.db"})}
        if request.param == "kafka":
            place["bootstrap"] = request.getfixturevalue("kafka").bootstrap
        case = CASES[KINDS[request.param]](place)
        case.create(columns)
        return case

    return made


def nothing() -> None:
    pass


def write(table: Table, epoch: int, before_commit: Callable[[], None] = nothing) -> None:
    table.write(epoch, batches(rows_of(epoch)), before_commit)


@pytest.mark.parametrize("upsert", [False, True])
def test_an_epoch_that_comes_again_is_there_once(make: Make, upsert: bool) -> None:
    case = make(upsert)
    for run in (1, 2):
        table = case.table(upsert=upsert)
        assert table.open(Owner("query", run)) == (-1, 2)[run - 1]
        for epoch in range(run + 2):
            write(table, epoch)
            write(table, epoch)
        table.close()
    assert sorted(case.read()) == (upserted(4) if upsert else appended(4))


def test_rows_keep_the_order_in_which_they_came_and_queries_know_nothing_of_each_other(make: Make) -> None:
    case = make()
    for query in ("one", "two"):
        table = case.table()
        assert table.open(Owner(query, 7)) == -1
        write(table, 3)
        assert table.open(Owner(query, 7)) == 3
        table.close()
    assert [row for row in case.read() if row[1] == 3005] == [rows_of(3)[5]] * 2
    if case.ordered:
        assert case.read()[:40] == rows_of(3)


def test_an_epoch_without_rows(make: Make) -> None:
    case = make(upsert=True)
    table = case.table(upsert=True)
    table.open(Owner("query", 0))
    table.write(0, iter(()), nothing)
    empty = pa.RecordBatch.from_pylist([], schema=SCHEMA)
    table.write(1, iter([empty]), nothing)
    assert case.read() == []
    assert table.open(Owner("query", 0)) == 1


def test_changes_take_rows_away(make: Make) -> None:
    """The last one of each key counts; what a row was before is passed over."""
    schema, case = pa.schema([*SCHEMA, pa.field("_change_type", pa.string())]), make(upsert=True)
    table = case.table(schema, upsert=True)
    table.open(Owner("query", 0))
    epochs = [
        [(k, k, "new", "insert") for k in range(6)],
        [(1, 1, "new", "delete"), (2, 2, "new", "update_preimage"), (2, 20, "two", "update_postimage")],
        [(3, 3, "new", "delete"), (3, 30, "again", "insert"), (7, 7, "new", "insert"), (7, 7, "new", "delete")],
        [(9, 9, "none", "delete"), (1, 10, "back", "insert"), (5, 5, "new", "update_preimage")],
    ]
    for epoch, rows in enumerate(epochs):
        table.write(epoch, batches(rows, schema), nothing)
    table.close()
    kept = [(0, 0, "new"), (1, 10, "back"), (2, 20, "two"), (3, 30, "again"), (4, 4, "new"), (5, 5, "new")]
    assert sorted(case.read()) == kept


@pytest.mark.parametrize("asleep", POINTS)
def test_a_run_that_wakes_after_its_successor_changes_nothing(make: Make, asleep: str) -> None:
    """It stands still in the middle of epoch 1; its successor writes that and the next one meanwhile."""
    case = make()
    zombie, successor = case.table(), case.table()
    zombie.open(Owner("query", 1))
    write(zombie, 0)

    def meanwhile() -> None:
        """In a thread of its own, as in a process of its own: a client may ask for rows in one of its threads."""
        with ThreadPoolExecutor(1) as other:
            other.submit(succeed).result()

    def succeed() -> None:
        assert successor.open(Owner("query", 2)) == (1 if asleep == "done" else 0)
        for epoch in (1, 2):
            write(successor, epoch)

    def rows() -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(batches(rows_of(1))):
            if number == 1 and asleep == "rows":
                meanwhile()
            yield batch

    if asleep == "done":
        write(zombie, 1)
        meanwhile()
    else:
        with pytest.raises((FencedError, Unreachable)):
            zombie.write(1, rows(), meanwhile if asleep == "commit" else nothing)
        zombie.close()
        with pytest.raises(FencedError):
            zombie.open(Owner("query", 1))
    with pytest.raises((FencedError, Unreachable, AssertionError)):
        write(zombie, 3)
    write(successor, 3)
    assert sorted(case.read()) == appended(4)


def test_a_run_that_opens_after_its_successor_is_refused_and_does_not_disturb_it(make: Make) -> None:
    case = make()
    successor, late = case.table(), case.table()
    successor.open(Owner("query", 2))
    write(successor, 0)
    with pytest.raises(FencedError, match="newer run"):
        late.open(Owner("query", 1))
    late.close()
    writer = EpochWriter(successor, Owner("query", 2), 10.0, nothing)
    for epoch in range(3):
        writer.write(epoch, lambda epoch=epoch: batches(rows_of(epoch)))
    assert sorted(case.read()) == appended(3)


def test_nothing_stays_of_an_epoch_whose_rows_break_off(make: Make) -> None:
    case = make()
    table = case.table()

    def broken() -> Iterator[pa.RecordBatch]:
        yield next(batches(rows_of(0)))
        raise StateServerError("lost")

    writer, lost = EpochWriter(table, Owner("query", 1), 0.0, nothing), [True]

    def rows() -> Iterator[pa.RecordBatch]:
        return broken() if lost.pop() else batches(rows_of(0))

    with pytest.raises(StateServerError):
        writer.write(0, rows)
    assert case.read() == []
    lost.append(False)
    writer.write(0, rows)
    assert sorted(case.read()) == appended(1)


def test_a_run_that_was_replaced_before_the_commit_is_asked_for_publishes_nothing(make: Make) -> None:
    case = make()
    table = case.table()
    table.open(Owner("query", 1))

    def replaced() -> None:
        raise FencedError("by the log")

    with pytest.raises(FencedError):
        write(table, 0, replaced)
    table.close()
    assert case.read() == []
    assert table.open(Owner("query", 1)) == -1


def test_rows_that_do_not_fit_are_refused_at_the_start(make: Make) -> None:
    case = make()
    for schema, word in case.misfits():
        with pytest.raises(AnalysisError, match=word):
            case.table(schema).open(Owner("query", 1))


@pytest.mark.parametrize("upsert", [False, pytest.param(True, marks=pytest.mark.long)])
def test_kills(make: Make, upsert: bool, short_path: Path) -> None:
    """A process after the other dies at a point of an epoch; the next one goes on. Each epoch is there once."""
    case, draw = make(upsert), random.Random(26)
    epoch, plan = 0, []
    for number in range(KILLS):
        point = POINTS[number % 3] if not LONG else draw.choice(POINTS)
        plan.append([epoch, point])
        # Where the epoch is there already, the next process begins with the one after it.
        epoch += 1 if point == "done" else draw.choice((0, 0, 1, 2))
    epochs, log = epoch + 2, short_path / "log"
    with log.open("w") as errors:
        dying = subprocess.Popen(
            [sys.executable, str(CHILD)],
            env={**os.environ, "PYTHONPATH": f"{CHILD.parents[2]}:{os.environ.get('PYTHONPATH', '')}"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    with dying:
        assert dying.stdin is not None and dying.stdout is not None
        for run, dies in enumerate([*plan, None]):
            config = {"format": case.format, "place": case.place, "upsert": upsert, "run": run}
            print(json.dumps({**config, "epochs": epochs, "dies": dies}), file=dying.stdin, flush=True)
            ended = dying.stdout.readline().strip()
            assert ended == ("0" if dies is None else "-9"), (run, dies, log.read_text())
        dying.stdin.close()
    assert sorted(case.read()) == (upserted(epochs) if upsert else appended(epochs))
