"""A sink of files in the simulated world: the real publication, over file systems that do one thing at a time.

| file system | one step is |
|---|---|
| ``disk`` | a file written, a file or folder synced, a folder renamed; what was not synced is lost with the power |
| ``hdfs`` | a file written, a folder renamed |
| ``s3a`` | a file put, copied or deleted, a listing; requests are slow, sent twice, or come late |

Between any two steps drivers die or stand still, and wake up as zombies: nothing keeps a zombie from the sink's files.

Checked at every change of a visible file, at each commit of Spark, and after a loss of power: readers find no row
twice and none that is not the oracle's; and of every epoch that Spark has committed they find all rows.
"""

from __future__ import annotations

import ast
import errno
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from support.simulation.disk import File, SimDisk
from support.simulation.spark import COMMITS
from support.simulation.store import SimStore
from tailrace.commit.controller import Controller
from tailrace.commit.sink_manifest import SinkManifests
from tailrace.spark.sinks.contract import SinkEpoch, SinkRun
from tailrace.spark.sinks.epoch_output import EpochOutput
from tailrace.spark.sinks.files.places import HadoopPlace, LocalPlace
from tailrace.spark.sinks.files.publication import EPOCH_COLUMN, Place, Publication
from tailrace.spark.sinks.files.sink import FileSink

if TYPE_CHECKING:
    from support.simulation.world import World

ROOT = "/sim/out"
FAULTS = 0.4
"""How often the driver is killed or stands still in its sink, as long as there are faults left."""
SYSTEMS = ("disk", "hdfs", "s3a", "s3a")


class SimFiles:
    """What lies at the sink's path."""

    def __init__(self, world: World, system: str) -> None:
        self._world = world
        scheduler = world.scheduler
        odd = scheduler.random.choice((0.05, 0.3)) if system == "s3a" else 0.0
        self.disk = SinkDisk(scheduler, lambda folder, name: self._changed(f"{folder}/{name}"))
        self._store = SimStore(scheduler, odd, 0.0, lambda name: self._changed(f"{ROOT}/{name}"))
        self._hadoop = None if system == "disk" else SimHadoop(system, self._store)

    @property
    def place(self) -> Place:
        return LocalPlace(Path(ROOT), self.disk) if self._hadoop is None else HadoopPlace(self._hadoop)  # type: ignore[arg-type]

    def write(self, folder: str, rows: Mapping[int, tuple[int, int]]) -> None:
        """As a job of Spark: in one to three files whose names hold the job's id."""
        draw = self._world.scheduler.random
        if draw.random() < FAULTS:
            self._world.fault_in_sink()
        job, pieces = f"{draw.getrandbits(32):08x}", draw.choice((1, 2, 3))
        items = list(rows.items())
        for piece in range(pieces):
            name, data = f"part-{piece}-{job}", repr(items[piece::pieces]).encode()
            if self._hadoop is None:
                self.disk.write_unsynced(f"{ROOT}/{folder}", name, data)
            else:
                self._store.put(f"{folder}/{name}", [data])

    def lose_power(self) -> None:
        self.disk.lose_power()
        self.check()

    def check(self) -> None:
        committed = max(self._world.spark_epochs(COMMITS), default=-1)
        found = self._visible()
        for epoch in sorted({*found, *range(committed + 1)}):
            rows = found.get(epoch, [])
            wanted = self._world.checks.sink[epoch][1]
            if len(dict(rows)) < len(rows):
                raise self._failed(f"readers find rows of epoch {epoch} twice: {rows}")
            if not wanted.items() >= set(rows):
                raise self._failed(f"readers find other rows of epoch {epoch}: {rows} instead of {wanted}")
            if epoch <= committed and len(rows) < len(wanted):
                raise self._failed(f"Spark has committed epoch {epoch}, and readers find {rows} of {wanted}")

    def _visible(self) -> dict[int, list[tuple[int, tuple[int, int]]]]:
        """The rows of each epoch, as a reader finds them."""
        found: dict[int, list[Any]] = {}
        files = self.disk.contents() if self._hadoop is None else self._store.objects
        for name, data in files.items():
            if name.startswith(EPOCH_COLUMN):
                epoch = int(name.partition("/")[0].partition("=")[2])
                try:
                    found.setdefault(epoch, []).extend(ast.literal_eval(data.decode()))
                except SyntaxError:
                    raise self._failed(f"readers find half a file: {name}") from None
        return found

    def _changed(self, path: str) -> None:
        if path.startswith(f"{ROOT}/{EPOCH_COLUMN}"):
            self.check()

    def _failed(self, why: str) -> BaseException:
        return self._world.scheduler.failed(why)


class SimSink(FileSink):
    """The real one, but for Spark's job. Opened when it is made."""

    def __init__(self, files: SimFiles, controller: Controller) -> None:
        self._files = files
        self._written = None
        self.open(SinkRun(controller.run, controller.retain, controller.store, controller.check_newest))

    def open(self, run: SinkRun) -> None:
        self._publication = Publication(self._files.place, SinkManifests(run.store, "output"), run)

    def write(self, output: Any, at: SinkEpoch) -> None:
        if output:
            self._written = EpochOutput(len(output), True, lambda: output)
            self._files.write(self._publication.stage(at), output)


class SinkDisk(SimDisk):
    """With folders that are renamed, as a whole, and files that their writer does not sync."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._renamed: list[tuple[str, str]] = []  # not synced

    def contents(self) -> dict[str, bytes]:
        """Files by their names below the root. No operation of the simulation."""
        return {
            f"{folder}/{name}".removeprefix(f"{ROOT}/"): file.data
            for folder, names in self._live.items()
            for name, file in names.items()
        }

    def lose_power(self) -> None:
        for source, target in reversed(self._renamed):
            if self._scheduler.random.random() < 0.5:
                self._rename(target, source)
        self._renamed = []
        super().lose_power()

    def write_unsynced(self, folder: str, name: str, data: bytes) -> None:
        self._scheduler.point(f"spark writes {name}")
        self.make_folder(Path(folder))
        self._live[folder][name] = File(data, synced=False)
        self._changed(folder, name)

    def sync(self, path: Path) -> None:
        self._scheduler.point("sync")
        self.sync_file(self._file(path))

    def sync_folder(self, path: Path) -> None:
        super().sync_folder(path)
        self._renamed = [each for each in self._renamed if os.path.dirname(each[1]) != str(path)]

    def exists(self, path: Path) -> bool:
        return super().exists(path) or str(path) in self._live

    def replace(self, source: Path, target: Path) -> None:
        self._scheduler.point(f"rename to {target.name}")
        if str(source) not in self._live:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(source))
        if self._live.get(str(target)):
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), str(target))
        self._rename(str(source), str(target))
        self._renamed.append((str(source), str(target)))
        self._changed(str(target), "")

    def folders(self, folder: Path) -> list[str]:
        self._scheduler.point(f"list {folder}")
        return sorted(os.path.basename(each) for each in self._live if os.path.dirname(each) == str(folder))

    def remove_folder(self, path: Path) -> None:
        for name in list(self._live.get(str(path), {})):
            self.remove(path / name)
        self._live.pop(str(path), None)
        self._durable.pop(str(path), None)

    def _rename(self, source: str, target: str) -> None:
        for folders in (self._live, self._durable):
            folders[target] = folders.pop(source)


class SimHadoop:
    """``tailrace.spark.private.HadoopFolder``."""

    uri = "sim://out"

    def __init__(self, scheme: str, store: SimStore) -> None:
        self.scheme = scheme
        self._store = store

    def files(self, folder: str) -> list[str]:
        return [each.name.removeprefix(f"{folder}/") for each in self._store.list(f"{folder}/")]

    def folders(self, folder: str) -> list[str]:
        return sorted({name.partition("/")[0] for name in self.files(folder)})

    def exists(self, name: str) -> bool:
        return bool(self._store._ask("get", name, lambda: self._names(name)))

    def rename(self, source: str, target: str) -> bool:
        objects = self._store.objects

        def rename() -> bool:
            names = self._names(source)
            into = f"{target}/{source.rpartition('/')[2]}" if self._names(target) else target
            for name in names:
                objects[into + name.removeprefix(source)] = objects.pop(name)
            self._store._changed(into)
            return bool(names)

        def copy() -> bool:
            if source not in objects:
                return False
            objects[target] = objects[source]
            self._store._changed(target)
            return True

        if self.scheme == "hdfs":
            return self._store._ask("rename", target, rename)
        if not self._store._ask("copy", target, copy):
            return False
        self._store.delete([source])
        return True

    def make_folder(self, folder: str) -> None:
        pass

    def remove(self, name: str) -> None:
        self._store.delete(self._names(name))

    def _names(self, name: str) -> list[str]:
        return [each for each in self._store.objects if each == name or each.startswith(f"{name}/")]
