"""Spark's own logs of a query as they lie in its checkpoint. A path here is relative to the checkpoint.

``offsets/<epoch>`` says what an epoch reads, ``commits/<epoch>`` that it is done, ``metadata`` which query it is;
``sources/<source>/<number>`` is what a source remembers: Kafka its first offsets, files the list of those it has given,
where ``<number>.compact`` holds all lists before it.

A file that a start takes out of the logs goes to ``<checkpoint>/tailrace-backup/``, where Spark does not look; what an
earlier start left there is replaced. Beside a local file lies Hadoop's checksum of it: it goes first, since a file
without one is read unchecked, but one with another file's is refused. In an object store there are none, and nothing
can be moved: a copy is put there, then the object is deleted. A crash in between leaves it where it was, for the next
start.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tailrace.env.files.disk import Disk
from tailrace.env.stores.local_store import LocalStore
from tailrace.env.stores.object_store import ObjectStore
from tailrace.errors import CheckpointError

BACKUP = "tailrace-backup"
METADATA = "metadata"

_NUMBER = re.compile(r"(?:^|/)(\d+)$")
_SOURCE_FILE = re.compile(r"(sources/\d+)/(\d+)(\.compact)?")
_EPOCH_FILE = re.compile(r"(offsets|commits)/\d+")


class SparkLogFolder:
    """The logs of a checkpoint on a disk. Stateless: safe from any thread."""

    def __init__(self, root: Path, disk: Disk | None = None) -> None:
        self.root = root
        self._disk = disk or Disk()

    @property
    def files(self) -> SparkLogFolder:
        return self

    def epochs(self, log: str) -> list[int]:
        """What is listed lasts. A start that was killed in its rewind may have moved a file and not synced that: the
        next one would go on from there, and a loss of power would bring the file back."""
        try:
            self._disk.sync_folder(self.root / log)
        except FileNotFoundError:
            return []  # there is no checkpoint yet
        return spark_epochs(LocalStore(self.root, self._disk), log)

    def source_files(self) -> dict[str, dict[int, str]]:
        """By source's folder, the paths of its files by their numbers."""
        return by_sources(path.relative_to(self.root).as_posix() for path, _ in self._disk.files(self.root / "sources"))

    def read(self, path: str) -> bytes | None:
        """The file's bytes; ``None`` where there is none."""
        try:
            return self._disk.read(self.root / path)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise CheckpointError(
                f"Cannot read {self.root / path} of Spark's checkpoint: {error.strerror or error}. Look after that "
                "disk, then start the query again."
            ) from error

    def write(self, path: str, data: bytes) -> None:
        """Put the file in place of what is there, whole and durably."""
        target, backup = self.root / path, self.root / BACKUP
        temporary = backup / f"{path.replace('/', '-')}.tmp"
        why = "Spark's checkpoint is not what the state says, and its files must be written anew"
        with _needing_a_writable_folder(f"write {target}", why):
            self._disk.make_folder(backup)
            self._disk.make_folder(target.parent)
            self._disk.remove(temporary)
            self._disk.write_synced(temporary, [data])
            self._disk.remove(_checksum_of(target))
            self._disk.replace(temporary, target)
            self._disk.sync_folder(target.parent)

    def remove_checksums(self) -> None:
        """So that Spark reads what is there. Those of files that were lost would be taken for those of new ones."""
        for log in ("offsets", "commits", "sources"):
            for path, _ in list(self._disk.files(self.root / log)):
                if path.name.startswith(".") and path.name.endswith(".crc"):
                    self._disk.remove(path)
        self._disk.remove(_checksum_of(self.root / METADATA))

    def move_to_backup(self, path: str) -> None:
        """Take the file out of the log, durably. One that is gone already is fine."""
        source, target = self.root / path, self.root / BACKUP / path
        with _needing_a_writable_folder(
            f"move {source} to {target.parent}", "Spark's checkpoint is ahead of the state"
        ):
            self._disk.make_folder(target.parent)
            for one, other in ((_checksum_of(source), _checksum_of(target)), (source, target)):
                if self._disk.exists(one):
                    self._disk.replace(one, other)
            self._disk.sync_folder(target.parent)
            self._disk.sync_folder(source.parent)


@contextmanager
def _needing_a_writable_folder(what: str, why: str) -> Iterator[None]:
    """Around what a start does to the checkpoint. ``why`` it has to be done."""
    try:
        yield
    except OSError as error:
        raise CheckpointError(
            f"Cannot {what}: {error.strerror or error}. {why}; make its folder writable, then start the query again."
        ) from error


class SparkLogObjects:
    """The logs of a checkpoint in an object store. Stateless: safe from any thread."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    @property
    def root(self) -> str:
        return self._store.uri.rstrip("/")

    @property
    def files(self) -> SparkLogObjects:
        return self

    def epochs(self, log: str) -> list[int]:
        return spark_epochs(self._store, log)

    def source_files(self) -> dict[str, dict[int, str]]:
        """By source's folder, the paths of its files by their numbers."""
        return by_sources(each.name for each in self._store.list("sources/"))

    def read(self, path: str) -> bytes | None:
        """The object's bytes; ``None`` where there is none."""
        try:
            return self._store.get(path)
        except FileNotFoundError:
            return None

    def write(self, path: str, data: bytes) -> None:
        """Put the object in place of what is there."""
        self._store.put(path, [data])

    def remove_checksums(self) -> None:
        """There are none."""

    def move_to_backup(self, path: str) -> None:
        """Take the object out of the log. One that is gone already is fine."""
        try:
            data = self._store.get(path)
        except FileNotFoundError:
            return
        self._store.put(f"{BACKUP}/{path}", [data])
        self._store.delete([path])


SparkLogPlace = SparkLogFolder | SparkLogObjects


def by_sources(paths: Iterable[str]) -> dict[str, dict[int, str]]:
    """Of these paths, the files of sources: by source, by number."""
    found: dict[str, dict[int, str]] = {}
    for match in filter(None, map(_SOURCE_FILE.fullmatch, paths)):
        numbers = found.setdefault(match.group(1), {})
        # A number may have a plain file and a compact one where Spark was killed between the two.
        if match.group(3) or int(match.group(2)) not in numbers:
            numbers[int(match.group(2))] = match.group(0)
    return found


def spark_epochs(store: ObjectStore, log: str) -> list[int]:
    """The epochs that have a file in ``commits`` or ``offsets``; empty where there is no checkpoint yet."""
    return numbers_of(stored.name for stored in store.list(f"{log}/"))


def numbers_of(names: Iterable[str]) -> list[int]:
    """Of files or their paths; Hadoop's checksums and what is half-written are none."""
    return sorted(int(found.group(1)) for name in names if (found := _NUMBER.search(name)))


def is_log_path(path: str) -> bool:
    """Whether a file of the logs may have this path: a start writes where the state says, and nowhere else."""
    return path == METADATA or any(kind.fullmatch(path) for kind in (_EPOCH_FILE, _SOURCE_FILE))


def is_whole(data: bytes | None) -> bool:
    """Whether a commit entry ends where Spark ended it: a version, then JSON. A loss of power may have cut it off."""
    if data is None:
        return False
    version, _, rest = data.partition(b"\n")
    return version.startswith(b"v") and _parsed(rest) is not None


def is_first_offsets(path: str, data: bytes | None) -> bool:
    """Whether a source's file says, whole, where the source began, as Kafka's does, and lists no files."""
    if not path.endswith("/0") or data is None:
        return False
    found = _parsed(data.lstrip(b"\0").partition(b"\n")[2])
    return found is not None and not (isinstance(found, dict) and "batchId" in found)


def logged_offsets(data: bytes) -> list[int]:
    """Of an entry in ``offsets``, the numbers of the newest lists of files that the epoch reads."""
    found = [_parsed(line) for line in data.split(b"\n")[2:]]
    numbers = [each["logOffset"] for each in found if isinstance(each, dict) and "logOffset" in each]
    return [number for number in numbers if isinstance(number, int) and number >= 0]


def query_id(metadata: bytes | None) -> str | None:
    """The query's id in Spark's ``metadata``; ``None`` where there is none that can be read."""
    found = _parsed(metadata or b"")
    return str(found["id"]) if isinstance(found, dict) and "id" in found else None


def _parsed(data: bytes) -> object | None:
    try:
        found: object = json.loads(data)
    except ValueError:
        return None
    return found


def _checksum_of(path: Path) -> Path:
    return path.with_name(f".{path.name}.crc")
