"""One behaviour suite for the file systems of file sinks. HDFS and S3 themselves: ``tests/crash/test_file_sinks.py``.

Hadoop's own local file system stands for both: it moves file by file, or the folder where it is told that it is HDFS.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tailrace.spark.private import HadoopFolder
from tailrace.spark.sinks.files.places import HadoopPlace, LocalPlace, place_of
from tailrace.spark.sinks.files.publication import FolderTaken, Place

FILES = ["part-0", "k=a b%2Fc/part-1", "k=ä/l=2/part-2"]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "a b%20c"


@pytest.fixture(params=["disk", "file by file", "by folder"])
def place(request: pytest.FixtureRequest, spark: SparkSession, root: Path) -> Place:
    if request.param == "disk":
        return LocalPlace(root)
    folder = HadoopFolder(spark, str(root), {})
    if request.param == "by folder":
        folder.scheme = "hdfs"
    return HadoopPlace(folder)


def write(root: Path, folder: str, names: list[str], text: str = "rows") -> None:
    for name in names:
        path = root / folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text} {name}")


def files(root: Path, folder: str) -> dict[str, str]:
    found = (path for path in (root / folder).rglob("*") if path.is_file())
    names = {path.relative_to(root / folder).as_posix(): path.read_text() for path in found}
    return {name: text for name, text in names.items() if not name.startswith((".", "_SUCCESS", "_temporary"))}


def test_files_that_readers_see_are_sealed_and_moved(place: Place, root: Path) -> None:
    place.prepare("_tailrace")
    others = ["_metadata", "_log/0.json"]  # as some formats have
    write(root, "_tailrace/x", [*FILES, *others, "_SUCCESS", "_temporary/0/part-9"])
    assert place.seal("_tailrace/x") == sorted([*FILES, *others])
    assert place.seal("_tailrace/none") == []
    place.move("_tailrace/x", "tailrace_epoch=0", [*FILES, *others])
    assert files(root, "tailrace_epoch=0") == {name: f"rows {name}" for name in [*FILES, *others]}
    place.move("_tailrace/x", "tailrace_epoch=0", [*FILES, *others])
    assert place.exists("tailrace_epoch=0") and not place.exists("tailrace_epoch=1")
    assert place.exists("tailrace_epoch=0/part-0")


def test_a_move_that_was_cut_short_is_finished(spark: SparkSession, root: Path) -> None:
    """A copy may be there whose source was not deleted yet."""
    place = HadoopPlace(HadoopFolder(spark, str(root), {}))
    write(root, "_tailrace/x", FILES)
    place.move("_tailrace/x", "tailrace_epoch=0", FILES[:1])
    write(root, "tailrace_epoch=0", FILES[1:2])
    place.move("_tailrace/x", "tailrace_epoch=0", FILES)
    assert files(root, "tailrace_epoch=0") == {name: f"rows {name}" for name in FILES}
    assert files(root, "_tailrace/x") == {}


def test_a_file_that_others_have_taken_away_is_not_brought_back(place: Place, root: Path) -> None:
    write(root, "_tailrace/x", FILES)
    place.move("_tailrace/x", "tailrace_epoch=0", FILES)
    for name in FILES:
        (root / "tailrace_epoch=0" / name).unlink()
    place.move("_tailrace/x", "tailrace_epoch=0", FILES)
    assert files(root, "tailrace_epoch=0") == {}


@pytest.mark.parametrize("scheme", ["disk", "hdfs"])
def test_a_folder_of_others_is_not_touched(spark: SparkSession, root: Path, scheme: str) -> None:
    folder = HadoopFolder(spark, str(root), {})
    folder.scheme = scheme
    place = LocalPlace(root) if scheme == "disk" else HadoopPlace(folder)
    write(root, "_tailrace/x", FILES)
    write(root, "tailrace_epoch=0", ["part-7"], "theirs")
    with pytest.raises(FolderTaken):
        place.move("_tailrace/x", "tailrace_epoch=0", FILES)
    assert files(root, "tailrace_epoch=0") == {"part-7": "theirs part-7"}
    assert files(root, "_tailrace/x").keys() == set(FILES)


@pytest.mark.parametrize("system", ["file by file", "by folder"])
def test_another_driver_that_moves_at_the_same_time_is_no_error(spark: SparkSession, root: Path, system: str) -> None:
    """Before each of the looks and steps of the move, as a driver does that was replaced and wakes up."""
    for step in range(20):
        folder, other = HadoopFolder(spark, str(root), {}), HadoopFolder(spark, str(root), {})
        if system == "by folder":
            folder.scheme = other.scheme = "hdfs"
        write(root, f"_tailrace/{step}", FILES)
        calls = 0

        def at_step(call: Callable[..., Any], step: int = step, other: HadoopFolder = other) -> Callable[..., Any]:
            def called(*names: str) -> Any:
                nonlocal calls
                calls += 1
                if calls == step + 1:
                    HadoopPlace(other).move(f"_tailrace/{step}", f"tailrace_epoch={step}", FILES)
                return call(*names)

            return called

        for name in ("exists", "rename", "make_folder", "remove"):
            setattr(folder, name, at_step(getattr(folder, name)))
        HadoopPlace(folder).move(f"_tailrace/{step}", f"tailrace_epoch={step}", FILES)
        assert files(root, f"tailrace_epoch={step}") == {name: f"rows {name}" for name in FILES}, f"step {step}"


def test_folders_are_listed_and_removed(place: Place, root: Path) -> None:
    assert place.folders("_tailrace") == []
    place.remove("_tailrace/x")
    write(root, "_tailrace/x", FILES)
    write(root, "_tailrace/y", FILES)
    write(root, "_tailrace", ["file"])
    assert sorted(place.folders("_tailrace")) == ["x", "y"]
    place.remove("_tailrace/x")
    assert place.folders("_tailrace") == ["y"]


def test_a_path_is_found_where_spark_writes_it(spark: SparkSession, root: Path) -> None:
    for path in (str(root), f"file:{root}", f"file://{root}"):
        place = place_of(spark, path, {"compression": "gzip"})
        assert isinstance(place, LocalPlace) and place.uri == str(root)
        spark.range(3).coalesce(1).write.mode("overwrite").json(f"{path}/_tailrace/x")
        assert [name.endswith(".json") for name in place.seal("_tailrace/x")] == [False, True], "a checksum comes first"
