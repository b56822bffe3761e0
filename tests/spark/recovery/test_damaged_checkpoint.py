"""Truncated and bit-flipped checkpoint files: an error that names the file, or the exact answer. Never a wrong one.

The files of a checkpoint are damaged in turn (all of them in the long profile, a sample else), at seeded places. A
start may go on only where that is exact: a damaged file that is not needed, or an entry whose epoch Spark replays
anyway.
"""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import tailrace as tr
from support.draw import drawn
from support.queries.simple import ROLLING, WINDOWED, Scripted, batches
from tailrace.testing import Question

LONG = os.environ.get("TAILRACE_TEST_LONG") == "1"
DAMAGES = ("truncated", "flipped", "emptied")
DAMAGES_QUICK = 8
CASES = [
    pytest.param(ROLLING, True, id="rolling, to be replayed"),
    pytest.param(WINDOWED, False, id="windowed, committed"),
    pytest.param(ROLLING, False, id="rolling, committed"),
    pytest.param(WINDOWED, True, id="windowed, to be replayed"),
]


def damage(path: Path, how: str, rng: random.Random) -> str:
    data = bytearray(path.read_bytes())
    if how == "truncated":
        keep = rng.randrange(1, len(data)) if len(data) > 1 else 0
        path.write_bytes(data[:keep])
        return f"{path.name} cut at {keep} of {len(data)}"
    if how == "emptied":
        path.write_bytes(b"")
        return f"{path.name} emptied"
    at, bit = rng.randrange(len(data)), rng.randrange(8)
    data[at] ^= 1 << bit
    path.write_bytes(data)
    return f"{path.name} bit {bit} of byte {at} of {len(data)} flipped"


def damages(path: Path, rng: random.Random) -> list[str]:
    """More flips for objects, which have more places to be hit in: header, batches, index, trailer."""
    if LONG:
        return [*DAMAGES, *(["flipped"] * 10)]
    return ["truncated", "flipped", "flipped", "flipped"] if path.parent.name == "objects" else rng.sample(DAMAGES, 1)


def files_of(state: Path) -> list[Path]:
    return sorted(path for path in state.rglob("*") if path.is_file() and path.name not in ("lock", "probe"))


@pytest.mark.parametrize(("question", "replay"), CASES if LONG else drawn(CASES, __name__))
def test_a_damaged_file_is_named_or_does_not_matter(
    spark: SparkSession, tmp_path: Path, question: Question, replay: bool
) -> None:
    """``replay``: the crash came after our durable entry and before Spark's commit of the last epoch."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    query = Scripted(spark, tmp_path, question)
    every = batches(6)
    query.feed(every[:5])
    query.run()
    if replay:
        for path in query.checkpoint.glob("commits/*4*"):
            path.unlink()
    complete = tmp_path / "whole"
    shutil.copytree(query.checkpoint, complete)
    query.feed(every[5:])
    known = dict(query.output.tables)
    refused = went_on = 0
    planned = [(path, how) for path in files_of(query.state) for how in damages(path, rng)]
    for path, how in planned if LONG else rng.sample(planned, min(len(planned), DAMAGES_QUICK)):
        shutil.rmtree(query.checkpoint)
        shutil.copytree(complete, query.checkpoint)
        what = damage(query.checkpoint / path.relative_to(query.checkpoint), how, rng)
        query.output.tables = dict(known)
        try:
            query.run()
        except tr.CheckpointError as error:
            assert path.name in str(error), f"{what}: the error does not name the file: {error}"
            refused += 1
        else:
            query.check()
            went_on += 1
        # Whatever happened, the undamaged checkpoint still serves.
    assert refused > 0
    print(f"{refused} refused, {went_on} went on exactly")
    shutil.rmtree(query.checkpoint)
    shutil.copytree(complete, query.checkpoint)
    query.output.tables = dict(known)
    query.run()
    query.check()


def lost(query: Scripted, match: str) -> None:
    with pytest.raises(tr.CheckpointError, match=match):
        query.run()


def test_missing_parts_are_refused_with_what_is_where(spark: SparkSession, tmp_path: Path) -> None:
    query = Scripted(spark, tmp_path)
    every = batches(5)
    query.feed(every[:4])
    query.run()
    complete = tmp_path / "whole"
    shutil.copytree(query.checkpoint, complete)
    query.feed(every[4:])

    def afresh() -> None:
        shutil.rmtree(query.checkpoint)
        shutil.copytree(complete, query.checkpoint)

    shutil.rmtree(query.state)
    lost(query, r"no state for the epochs that Spark has committed: .*newest commit: epoch 3")
    afresh()
    objects = sorted((query.state / "objects").iterdir())
    objects[-1].unlink()
    lost(query, objects[-1].name)
    afresh()
    query.run()
    query.check()


def test_an_older_copy_of_the_state_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """State restored from a backup beside a newer Spark checkpoint would lose the epochs between."""
    query = Scripted(spark, tmp_path)
    every = batches(6)
    query.feed(every[:2])
    query.run()
    backup = tmp_path / "backup"
    shutil.copytree(query.state, backup)
    query.feed(every[2:5])
    query.run()
    newest = tmp_path / "newest"
    shutil.move(query.state, newest)
    shutil.copytree(backup, query.state)
    query.feed(every[5:])
    lost(query, r"newest commit: epoch 4; .*newest durable state at .*: epoch 1")
    shutil.rmtree(query.state)
    shutil.move(newest, query.state)
    query.run()
    query.check()


@pytest.mark.parametrize("behind", [False, True], ids=["durable, not committed", "committed, not durable"])
def test_a_replay_with_other_rows_is_refused(spark: SparkSession, tmp_path: Path, behind: bool) -> None:
    """The source gives other rows than the first time: what was emitted of them cannot be taken back."""
    query = Scripted(spark, tmp_path)
    query.feed(batches(3))
    query.run(commit="async" if behind else "sync")
    lost = max(query.state.glob("log/*.json")) if behind else query.checkpoint / "commits" / "2"
    for path in (lost, lost.with_name(f".{lost.name}.crc")):
        path.unlink(missing_ok=True)
    for _ in range(1 + behind):  # a second start must not forget how many there were
        with pytest.raises(tr.ReplayError, match=r"epoch 2 is replayed .* has 1 rows now, but had 50"):
            query.run(query.frame().where("v = 10000 - 40"))
    query.run()
    query.check()
