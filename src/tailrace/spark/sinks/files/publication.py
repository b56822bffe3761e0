"""How the files of an epoch become visible, exactly once, on a file system of which nothing is atomic but one file.

```text
<path>/_tailrace/<epoch>-<run>-<try>/...    written here: readers pass over names that begin with _
<stateLocation>/sinks/<sink>/<epoch>.json   put if absent: the epoch has these files
<path>/tailrace_epoch=<epoch>/...           moved here: what readers see
```

Order of a publication: the files are whole and durable; the manifest is put; the fence is looked at; the manifest's
files are moved. Why no row is lost or doubled, whoever dies or stands still between any two steps:

- **Nobody shares a folder**: a try of a run has one of its own. A driver that was replaced, or a task that was given up
  and still writes, can change nothing that another one has written.
- **One list an epoch.** Only files of the manifest are moved, and it never changes. Whether the winner was replaced
  meanwhile does not matter: it had written all of its files before, and they hold the rows that everybody else has.
- **A manifest lasts before anybody goes by it**: also one that another driver has put, who may have been killed before
  it was synced.
- **Moving is repeatable**: a file that is not in the folder any more was moved. Whoever wakes up in the middle moves
  the same files to the same names. An epoch is run again until its sink is done, as only then Spark commits it: so an
  epoch that was decided and not moved is found by whoever runs it again.
- **Why the fence is looked at after the put.** A manifest is deleted once nobody runs its epoch again. A driver that
  has slept that long finds the name free and wins; then it finds the fence of its successor, and moves nothing. Where
  there is no newer fence after the put, every later run finds the manifest: it fences first, and then runs the epoch.
- **Nothing undecided is deleted**: folders of an epoch are swept when the epoch is decided and moved. Before that the
  folder of another run may be the one whose manifest is on its way. Nor is anything of a newer run: between listing and
  deleting, the fence is looked at.

Rows that are planned afresh (after a rewind) belong to an epoch that was never released, so it has no manifest: the
gate lets an epoch out when the one before is durable, and a rewind takes back only what comes after one that is not.

Threads: those of ``contract``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Protocol

from tailrace.commit.sink_manifest import SinkManifest, SinkManifests
from tailrace.errors import CheckpointError
from tailrace.spark.sinks.contract import SinkEpoch, SinkRun

EPOCH_COLUMN = "tailrace_epoch"
HIDDEN = "_tailrace"
_NO_TRY = 9999
_FOLDER = re.compile(r"(\d{20})-[0-9a-f]{16}-\d{4}")


class Place(Protocol):
    """The folder that a query's output goes to. Names are relative to it, with ``/`` between parts."""

    uri: str

    local: bool
    """Whether it is a path of each machine's own file system, which may be one that they share."""

    def prepare(self, folder: str) -> None:
        """Others will write below ``folder``: its name must last."""
        ...

    def seal(self, folder: str) -> list[str]:
        """The files below ``folder``, by their names in it, without Spark's working files. Durable on return."""
        ...

    def move(self, folder: str, target: str, files: Sequence[str]) -> None:
        """Move files from one folder to another, durably. Those that are not there any more were moved before.

        A file is moved as a whole or not at all. Raises ``FolderTaken`` where others have files of these names there.
        """
        ...

    def exists(self, folder: str) -> bool: ...

    def folders(self, folder: str) -> list[str]:
        """The names of the folders right below ``folder``."""
        ...

    def remove(self, folder: str) -> None:
        """The folder with all that is in it. One that is gone is fine."""
        ...


class FolderTaken(Exception):
    """Something that is not ours stands where an epoch's files should go."""


class Publication:
    """One sink of one run."""

    def __init__(self, place: Place, manifests: SinkManifests, run: SinkRun) -> None:
        self._place = place
        self._manifests = manifests
        self._run = run
        self._looked = False  # whether the place was seen not to be another query's
        self._swept = False
        self._left: list[tuple[int, str]] = []  # folders of this run that were not moved as a whole, by epoch

    def stage(self, at: SinkEpoch) -> str:
        """The folder that a try writes to. No other try of any run has it."""
        self._place.prepare(HIDDEN)
        folder = self._folder(at)
        self._left.append((at.epoch, folder))
        return folder

    def shared_folder(self) -> str | None:
        """One of this run that no try writes to; ``clean`` deletes it. None where all machines see the same files."""
        if not self._place.local:
            return None
        folder = f"{HIDDEN}/{0:020d}-{self._run.run}-{_NO_TRY:04d}"
        self._place.prepare(folder)
        return f"{self._place.uri}/{folder}"

    def finish(self, epoch: int) -> bool:
        """Whether the epoch was decided before: then it is visible on return."""
        manifest = self._manifests.decided(epoch)
        if manifest is None:
            return False
        self._show(manifest)
        return True

    def publish(self, at: SinkEpoch, count: Callable[[], int]) -> None:
        """Make visible what was written to the folder of this try, or what another one has written of the epoch.

        ``count``: of the rows that were written, asked where no file is found: without rows nothing is decided.
        """
        folder = self._folder(at)
        files = self._place.seal(folder)
        if files:
            self._refuse_other_query(at.epoch)
            self._show(self._manifests.put(SinkManifest(at.epoch, folder, tuple(files))))
        elif rows := count():
            self._run.check_fence(0.0)  # a newer run sweeps what it finds of epochs that are over
            raise CheckpointError(
                f"Spark wrote {rows} rows of epoch {at.epoch} to {self._place.uri}/{folder}, and the driver finds no "
                "file there. Executors on other machines write to disks of their own where a path is not one folder "
                "for all of them: choose a path that driver and executors share, then start the query again: it "
                "continues with this epoch."
            )

    def clean(self, epoch: int) -> None:
        """Delete what is left of epochs up to this one, which is durable and visible."""
        place = self._place
        if not self._swept:
            found = ((_epoch_of(name), f"{HIDDEN}/{name}") for name in place.folders(HIDDEN))
            left = [folder for of, folder in found if of is not None and of <= epoch]
            over = [each for each in self._manifests.epochs() if each <= epoch - self._run.retain]
            self._run.check_fence(0.0)  # so nothing that was listed is a newer run's
        else:
            left = [folder for of, folder in self._left if of <= epoch]
            over = [epoch - self._run.retain] if epoch >= self._run.retain else []
        for folder in left:
            place.remove(folder)
        self._manifests.forget(over)
        self._swept = True
        for done in [each for each in self._left if each[0] <= epoch]:
            self._left.remove(done)

    def _folder(self, at: SinkEpoch) -> str:
        return f"{HIDDEN}/{at.epoch:020d}-{self._run.run}-{at.try_:04d}"

    def _show(self, manifest: SinkManifest) -> None:
        """The visible step."""
        self._run.check_fence(0.0)
        target = f"{EPOCH_COLUMN}={manifest.epoch}"
        try:
            self._place.move(manifest.folder, target, manifest.files)
        except FolderTaken as error:
            raise self._taken(manifest.epoch) from error

    def _refuse_other_query(self, epoch: int) -> None:
        """Once a run, before it decides anything: files of an epoch that this query has not published are not ours."""
        if not self._looked and self._place.exists(f"{EPOCH_COLUMN}={epoch}") and self._manifests.read(epoch) is None:
            raise self._taken(epoch)
        self._looked = True

    def _taken(self, epoch: int) -> CheckpointError:
        return CheckpointError(
            f"{self._place.uri}/{EPOCH_COLUMN}={epoch} exists, and this query has not written it: another query "
            "writes there, or one did before the checkpoint was removed. Give the query a path of its own, or remove "
            "what is there, then start it again."
        )


def _epoch_of(folder: str) -> int | None:
    found = _FOLDER.fullmatch(folder)
    return int(found.group(1)) if found else None


def is_working_file(name: str) -> bool:
    """Whether Spark has made the file for its own use, while it wrote others or when it had written them."""
    return any(part.startswith(("_temporary", "_SUCCESS", "._SUCCESS", "__magic")) for part in name.split("/"))
