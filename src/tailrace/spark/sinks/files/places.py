"""Where a file sink's folders lie: a disk, or any other file system that Spark can write to.

| file system | how an epoch's files are moved | so a reader sees of an epoch |
|---|---|---|
| a disk | one rename of the folder, which fails where the name is taken | all or nothing |
| HDFS | likewise | all or nothing |
| object stores and others | file by file: a copy in the store, then a delete | for a moment some of its files |

A disk is used directly, since Spark does not sync what it writes, and files that a loss of power may take are not
written. Everything else goes through Spark's own file systems, with the credentials and settings that Spark has.

Safe from two threads, of which one only removes.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession

from tailrace.env import tasks
from tailrace.env.files.disk import Disk
from tailrace.errors import AnalysisError, CheckpointError
from tailrace.spark.private import JAVA_ERROR, HadoopFolder
from tailrace.spark.sinks.files.publication import FolderTaken, Place, is_working_file

_RENAMES_FOLDERS = ("hdfs", "webhdfs", "swebhdfs", "viewfs")
_CALLS_AT_ONCE = 8
_AGAIN = "then start the query again: it continues with this epoch"


def place_of(spark: SparkSession, path: str, options: Mapping[str, str]) -> Place:
    """``options``: those of the sink, among which there may be settings of its file system."""
    try:
        folder = HadoopFolder(spark, path, options)
    except JAVA_ERROR as error:
        said = str(error.java_exception.getMessage())
        raise AnalysisError(
            f"Spark cannot write to {path}: {said}. Check the path, and Spark's settings for it"
        ) from error
    if folder.scheme == "file":
        return LocalPlace(Path(folder.path))
    return HadoopPlace(folder)


class LocalPlace:
    local = True

    def __init__(self, root: Path, disk: Disk | None = None) -> None:
        self.uri = str(root)
        self._root = root
        self._disk = disk if disk is not None else Disk()

    def prepare(self, folder: str) -> None:
        try:
            self._disk.make_folder(self._root / folder)
        except OSError as error:
            raise self._failed("create", folder, error) from error

    def seal(self, folder: str) -> list[str]:
        top = self._root / folder
        try:
            names = (path.relative_to(top).as_posix() for path, _ in self._disk.files(top))
            found = sorted(name for name in names if not is_working_file(name))
            folders = {parent for name in found for parent in (top / name).parents if _is_in(parent, top.parent)}
            # At the same time: the system writes them out together.
            _at_once(
                [partial(self._disk.sync, top / name) for name in found]
                + [partial(self._disk.sync_folder, each) for each in sorted(folders)]
            )
        except OSError as error:
            raise self._failed("sync", folder, error) from error
        return found

    def move(self, folder: str, target: str, files: Sequence[str]) -> None:
        first = self._root / folder / files[0]
        try:
            if self._disk.exists(first):
                try:
                    self._disk.replace(self._root / folder, self._root / target)
                except OSError as error:
                    if self._disk.exists(first):  # else another driver was quicker
                        if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                            raise FolderTaken(str(self._root / target)) from error
                        raise
            # Also where another driver has moved it: it may not have come to this.
            self._disk.sync_folder(self._root)
        except OSError as error:
            raise self._failed("move", folder, error) from error

    def exists(self, folder: str) -> bool:
        return self._disk.exists(self._root / folder)

    def folders(self, folder: str) -> list[str]:
        return self._disk.folders(self._root / folder)

    def remove(self, folder: str) -> None:
        try:
            self._disk.remove_folder(self._root / folder)
        except OSError as error:
            raise self._failed("remove", folder, error) from error

    def _failed(self, verb: str, folder: str, error: OSError) -> CheckpointError:
        return CheckpointError(
            f"Cannot {verb} {self._root / folder}: {error.strerror or error}. Look after that disk, {_AGAIN}."
        )


class HadoopPlace:
    local = False

    def __init__(self, folder: HadoopFolder) -> None:
        self.uri = folder.uri
        self._folder = folder

    def prepare(self, folder: str) -> None:
        """Nothing to do: Spark makes folders where there are any."""

    def seal(self, folder: str) -> list[str]:
        # Durable when they were closed, as these file systems promise.
        return sorted(name for name in self._folder.files(folder) if not is_working_file(name))

    def move(self, folder: str, target: str, files: Sequence[str]) -> None:
        if self._folder.scheme in _RENAMES_FOLDERS:
            self._move_folder(folder, target, files[0])
            return
        _at_once([partial(self._move_file, f"{folder}/{name}", f"{target}/{name}") for name in files])

    def _move_folder(self, folder: str, target: str, first: str) -> None:
        # Hadoop's rename to a folder that exists would move ours into it.
        if not self._folder.exists(f"{folder}/{first}"):
            return
        if self._folder.exists(target):
            if self._folder.exists(f"{folder}/{first}"):  # else another driver has moved it just now
                raise FolderTaken(target)
            return
        if not self._folder.rename(folder, target) and self._folder.exists(f"{folder}/{first}"):
            raise self._failed(folder, target)

    def _move_file(self, source: str, target: str) -> None:
        # A copy is there as a whole or not at all, and only this file has the name: it holds the id of Spark's job.
        if not self._folder.exists(source):
            return
        if self._folder.exists(target):
            self._folder.remove(source)
            return
        self._folder.make_folder(target.rpartition("/")[0])
        if not self._folder.rename(source, target) and not self._folder.exists(target):
            raise self._failed(source, target)

    def exists(self, folder: str) -> bool:
        return self._folder.exists(folder)

    def folders(self, folder: str) -> list[str]:
        return self._folder.folders(folder)

    def remove(self, folder: str) -> None:
        self._folder.remove(folder)

    def _failed(self, source: str, target: str) -> CheckpointError:
        return CheckpointError(
            f"Cannot move {self.uri}/{source} to {target}: the file system refuses it. Check that Spark may write, "
            f"rename and delete there, {_AGAIN}."
        )


def _at_once(calls: Sequence[Callable[[], None]]) -> None:
    """Make all of the calls. Raises the error of the first one that fails, when all are over."""
    if len(calls) == 1:
        calls[0]()
        return
    worker = tasks.worker("tailrace-sink", _CALLS_AT_ONCE)
    try:
        for each in [worker.submit(call) for call in calls]:
            each.result()
    finally:
        worker.shutdown(wait=True)


def _is_in(folder: Path, top: Path) -> bool:
    return folder == top or top in folder.parents
