"""SQL over a checkpoint: tables are operators, and errors keep their words."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from support.crash.recovery_kinds import script_of, spec_of
from support.crash.saved_states import save
from tailrace.cli import app
from tailrace.errors import CheckpointError, CorruptionError
from tailrace.state_table.checkpoint import SavedState, open_state
from tailrace.state_table.sql import sql


@pytest.fixture(scope="module")
def location(tmp_path_factory: pytest.TempPathFactory) -> str:
    spec, folder = spec_of("windows"), tmp_path_factory.mktemp("checkpoint")
    save(spec, script_of(spec, 5, 6), str(folder / "tailrace"), str(tmp_path_factory.mktemp("scratch")), 5)
    return str(folder)


def answered(state: SavedState, query: str, *, records: bool = False) -> list[dict[str, object]]:
    with sql(state, query, records=records) as found:
        return found.read_all().to_pylist()


def test_an_operator_is_a_table(location: str) -> None:
    state = open_state(location)
    rows = state["aggregate"].table()
    query = 'SELECT k, "count(1)" AS n, "window".start AS start FROM aggregate WHERE k IS NOT NULL'
    wanted = [
        {"k": row["k"], "n": row["count(1)"], "start": row["window"]["start"]}
        for row in rows.to_pylist()
        if row["k"] is not None
    ]
    found = answered(state, query)
    assert sorted(map(str, found)) == sorted(map(str, wanted)) and wanted


def test_a_table_may_be_read_twice_in_a_query(location: str) -> None:
    state = open_state(location)
    (row,) = answered(state, 'SELECT count(*) AS n FROM aggregate a JOIN aggregate b USING (k, "window")')
    assert row["n"] == sum(1 for key in state["aggregate"].table().column("k").to_pylist() if key is not None)


def test_records_are_another_view(location: str) -> None:
    (row,) = answered(
        open_state(location),
        'SELECT sum("count(*)") AS n, count(DISTINCT _pane) > 1 AS panes FROM aggregate',
        records=True,
    )
    assert row["panes"] and row["n"]


def test_another_epoch(location: str) -> None:
    state = open_state(location)
    (row,) = answered(state.at(state.epochs[0]), "SELECT count(*) AS n FROM aggregate")
    assert row["n"] == state.at(state.epochs[0])["aggregate"].table().num_rows


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("SELECT * FROM counts", "The tables at .* are: aggregate"),
        ("SELECT nothing FROM aggregate", "nothing"),
        ("SELEC 1", "syntax error"),
        ("SELECT CAST(k AS INT) FROM aggregate", "Could not convert"),
    ],
)
def test_a_wrong_query(location: str, query: str, said: str) -> None:
    with pytest.raises(CheckpointError, match=said):
        answered(open_state(location), query)


def test_damage_keeps_its_words(location: str, tmp_path: Path) -> None:
    source = Path(location)
    for path in (path for path in source.rglob("*") if path.is_file()):
        copy = tmp_path / path.relative_to(source)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
    needed = open_state(str(tmp_path)).manifest.objects
    damaged = max((tmp_path / "tailrace" / each.name for each in needed), key=lambda path: path.stat().st_size)
    data = bytearray(damaged.read_bytes())
    data[40] ^= 255
    damaged.write_bytes(data)
    with pytest.raises(CorruptionError, match=damaged.name):
        answered(open_state(str(tmp_path)), "SELECT count(*) FROM aggregate")
    ended = CliRunner().invoke(app, ["sql", str(tmp_path), "SELECT count(*) AS n FROM aggregate", "--skip-damaged"])
    assert ended.exit_code == 0
    assert "Left out: shards" in ended.stderr and damaged.name in ended.stderr.replace("\n", "")


def test_the_command(location: str) -> None:
    run = CliRunner()
    ended = run.invoke(app, ["sql", location, "SELECT 'a' AS \"x[red]\", NULL AS y, k FROM aggregate", "--rows", "2"])
    assert ended.exit_code == 0 and "2 rows, " in ended.stdout and "x[red]" in ended.stdout
    ended = run.invoke(app, ["sql", location, 'SELECT "window", k FROM aggregate', "--json"])
    rows = [json.loads(line) for line in ended.stdout.splitlines()]
    assert len(rows) == open_state(location)["aggregate"].table().num_rows and set(rows[0]) == {"window", "k"}
    ended = run.invoke(app, ["sql", location])
    assert "aggregate" in ended.stdout
    ended = run.invoke(app, ["sql", location, "--epoch", "0"])
    assert isinstance(ended.exception, CheckpointError)
