"""What must hold at every step of a simulation. Each is looked at whenever something changes that it speaks of.

| invariant | looked at |
|---|---|
| a start, now, would recover an exact prefix, and not be refused | a log changes, an object goes, power is lost |
| so it would with the driver's disk lost, and Spark would replay what a sink may have seen | likewise |
| no durable epoch is lost: what was acknowledged is in the log, and its objects are whole | likewise |
| of the epochs in Spark's log at most one is not durable | likewise |
| a log entry never changes, and none is put by a run that another one has fenced | an entry is put |
| what an entry lists is exactly the oracle's state after its epoch: no row is missing, none applied twice | likewise |
| rows reach the sink when the gate allows it, and are exactly the oracle's | the sink is called |
| an epoch that reaches the sink again has the same rows | likewise |
| servers open exactly the oracle's state | a start has landed |
| a query that has started never ends by itself: not by losses of servers, nor by errors of its own | a driver ends |
| no start is refused but where the store does not answer, or for what the user has asked | likewise |
| no call waits for a server that the heartbeat has given up | calls to servers have ended |
| nor does a task | the job of an ingest has ended |
| a call that fails once costs neither a try nor a restart, where it may be made again | a loss is counted |

That nothing hangs, the scheduler sees. Reading here is no operation of the simulation: nothing else happens meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from support.simulation.fleet import SimFleet
from support.simulation.rows import OPERATOR, STATES, State, emitted, left_by, records_of
from support.simulation.scheduler import Process, Violation
from support.simulation.spark import (
    COMMITS,
    OFFSETS,
    SOURCE_LOG,
    Batch,
    Files,
    SparkFailed,
    epochs,
    resume,
    source_number,
    source_paths,
)
from tailrace.api.options import CommitMode
from tailrace.commit import shard_ranges as ranges
from tailrace.commit.log import Damaged, Entry, Fence, History, _entry
from tailrace.commit.manifest import Manifest
from tailrace.commit.objects import ObjectRef, open_object
from tailrace.commit.recovery.rebuild import behind, differing, logs_end
from tailrace.commit.recovery.recovery_point import RecoveryDecision, RecoveryPoint, decide
from tailrace.commit.spark_logs.log_files import SparkLogFolder
from tailrace.commit.spark_logs.records import recorded_bytes
from tailrace.env.stores.object_store import StoredObject
from tailrace.errors import (
    CheckpointError,
    CorruptionError,
    FencedError,
    QueryStopped,
    RewindNeeded,
    StateServerError,
    UnansweredError,
)
from tailrace.log import filenames
from tailrace.log.format import decode_entry

if TYPE_CHECKING:
    from support.simulation.driver import Driver
    from support.simulation.world import World

ACT_S = 5.0
"""A few looks at the heartbeat later the last call to a silent server has been left."""
_MAY_BE_SAID = ("injected", "did not become durable within", "was not recorded within", "cannot go back to epoch")
"""By errors that end a query or a start: the store does not answer, or the user has asked for what is not kept."""
CANCEL_S = 13.0
"""So long later its job has been cancelled, whenever it began: a cancel may come ten seconds late."""
Sunk = dict[int, tuple[int, int]]


class Checks:
    def __init__(self, world: World) -> None:
        self._world = world
        self._acknowledged = -1  # the newest epoch that some run knew to be durable
        self._entries: dict[bytes, Entry] = {}
        self._log: dict[str, bytes] = {}  # every entry that was ever seen
        self._deleted: set[str] = set()  # of those
        self._known: History | None = None  # as it is now
        self._spark: Files | None = None  # likewise: Spark's logs
        self._objects: dict[str, tuple[bytes, dict[int, State]]] = {}
        self._ends: dict[tuple[str, int], int] = {}  # of epochs, by run, in rows of the source
        self.sink: dict[int, tuple[Batch, Sunk]] = {}

    # Events of the simulation ---------------------------------------------------------------------------------------

    def changed(self, name: str) -> None:
        """An object of the state store, or a file of Spark's logs, is new, other, or gone."""
        if name.startswith(filenames.LOG_PREFIX):
            self._known = None
            self._entry_changed(name)
        elif name.startswith(filenames.OBJECT_PREFIX):
            if name not in self._objects:
                return  # a new one, which no entry lists
        elif name.startswith((COMMITS, OFFSETS, SOURCE_LOG)):
            self._spark = None
            if name.startswith((COMMITS, OFFSETS)) and name.rpartition("/")[2].isdigit():
                self.recoverable(disk_lost=False)  # without them nothing is different
            return
        elif not name.startswith(filenames.SPARK_RECORD_PREFIX):
            return
        self.recoverable()

    def runs(self, run: str, batch: Batch) -> None:
        """Spark gives an epoch to a run."""
        self._ends[run, batch.epoch] = batch.end

    def forget(self) -> None:
        """Power was lost: whatever was not acknowledged may be gone, and its place free again."""
        self._known = self._spark = None
        if self._world.far is None:
            self._log = {name: data for name, data in self._log.items() if self._world.stored(name) == data}
            self._deleted &= self._log.keys()

    def acknowledged(self, manifest: Manifest) -> None:
        """This epoch has been acknowledged as durable."""
        self._acknowledged = max(self._acknowledged, manifest.epoch)
        self.recoverable()

    def recovered(self, recovery_point: RecoveryPoint, fleet: SimFleet) -> None:
        self._acknowledged = max(self._acknowledged, recovery_point.epoch)
        wanted = STATES[self._end(recovery_point.manifest)]
        found = fleet.state()
        if found != wanted:
            raise self._failed(
                f"a start lands on epoch {recovery_point.epoch} with other sums: {_difference(found, wanted)}"
            )

    def released(self, batch: Batch, rows: Sunk, mode: CommitMode) -> None:
        """The sink gets an epoch's rows."""
        epoch = batch.epoch
        durable = _reached(self._history())
        if durable < (epoch if mode is CommitMode.SYNC else epoch - 1):
            raise self._failed(f"epoch {epoch} reaches the sink in mode {mode} and epoch {durable} is durable")
        way = next(iter(rows.values()))[1] if rows else 0
        wanted = emitted(batch.start, batch.end, way)
        if rows != wanted:
            raise self._failed(f"epoch {epoch} reaches the sink with other rows: {_difference(rows, wanted)}")
        before = self.sink.get(epoch - 1)
        if batch.start != (before[0].end if before is not None else 0):
            raise self._failed(f"epoch {epoch} begins at row {batch.start} of the source, and the one before: {before}")
        if self.sink.setdefault(epoch, (batch, rows)) != (batch, rows):
            raise self._failed(f"epoch {epoch} reaches the sink again, as {batch} {rows}; it was {self.sink[epoch]}")

    def lost(self, fleet: SimFleet, error: Exception) -> None:
        """A loss is counted. (Servers of another driver may remove what its own have saved: that costs a restart.)"""
        again = isinstance(error, UnansweredError) or (
            isinstance(error, RewindNeeded) and len(self._world.drivers) == 1
        )
        if again and not self._world.network and not fleet.troubled:
            raise self._failed(f"every server lives, and a call that may be made again counts as a loss: {error}")

    def called(self, fleet: SimFleet, process: Process, began: float) -> None:
        """Calls to the fleet's servers have ended, or are not waited for any longer."""
        now = self._world.scheduler.now
        last = max(began, *(fleet.given_up_at.get(server.server, now) for server in fleet.servers))
        if now - last > ACT_S and not process.stood_still:
            raise self._failed(f"every server was given up by {last:.2f}, and they were waited for until now")

    def staged(self, fleet: SimFleet, process: Process, began: float) -> None:
        """The job of an epoch's ingest has ended."""
        now = self._world.scheduler.now
        first = max(began, min(fleet.given_up_at.get(server.server, now) for server in fleet.servers))
        if now - first > CANCEL_S and not process.stood_still:
            raise self._failed(f"a server was given up by {first:.2f}, and tasks were waiting for it until now")

    def ended(self, driver: Driver, error: BaseException) -> None:
        """A driver ends by an error: a store that does not answer, a fence and the user may end it."""
        asked = isinstance(error, CheckpointError) and any(each in str(error) for each in _MAY_BE_SAID)
        right = asked or isinstance(error, FencedError | QueryStopped)
        # A start may also find no servers, or no disk where another driver was.
        if not driver.has_started and isinstance(error, StateServerError | OSError):
            right = True
        if driver is self._world.drivers[-1] and not right:
            raise self._failed(f"the query ended by itself: {type(error).__name__}: {error}")

    def at_end(self) -> None:
        """A driver says that all is done."""
        reached = self.sink[max(self.sink)][0].end if self.sink else 0
        if sorted(self.sink) != list(range(len(self.sink))) or reached != self._world.rows:
            raise self._failed(f"the query has ended and the sink has epochs {sorted(self.sink)}, rows up to {reached}")
        if self._acknowledged != max(self.sink, default=-1):
            raise self._failed(f"the query has ended and only epoch {self._acknowledged} is durable")

    def recoverable(self, disk_lost: bool = True) -> None:
        """If everything stopped now, a start would recover exactly the rows up to its epoch."""
        history = self._history()
        durable = _reached(history)
        files = self._spark_files()
        if durable < self._acknowledged:
            raise self._failed(f"epoch {self._acknowledged} was durable, and the log's newest is {durable}")
        if (committed := max(epochs(files, COMMITS), default=-1)) > durable + 1:
            raise self._failed(f"Spark has committed epoch {committed}, and only {durable} is durable")
        self._would_start(history, files)
        if disk_lost:
            self._would_start(history, {})

    def _would_start(self, history: History, files: Files) -> None:
        """A start that finds these files of Spark's would continue exactly."""
        try:
            wanted, left = self._decided(history, files)
            resumed = resume(left)
        except (CheckpointError, CorruptionError) as error:
            raise self._failed(f"a start would be refused: {error}") from None
        except SparkFailed as error:
            raise self._failed(f"a start would leave Spark logs that it cannot read: {error}") from None
        epoch = wanted.epoch + 1
        if resumed.epoch != epoch or resumed.done != self._end(self._manifest(wanted)):
            raise self._failed(f"a start would land on epoch {wanted.epoch}, and Spark would go on with {resumed}")
        seen = self.sink.get(epoch)
        if seen is not None and resumed.planned != seen[0]:
            raise self._failed(f"the sink has {seen[0]}, and a start would have Spark run {resumed.planned}")
        self._objects_are_there(wanted)

    def _decided(self, history: History, files: Files) -> tuple[RecoveryDecision, Files]:
        """What a start decides, and the files of Spark's that it leaves."""
        left = dict(files)
        folder, store = _Snapshot(files), _Stored(self._world)
        end = logs_end(folder, store, history, True)
        if end is None:
            wanted = decide(epochs(files, COMMITS), epochs(files, OFFSETS), history, "the state", reread=True)
            moved = list(wanted.rewind)
        else:
            wanted = decide([end.committed], [end.planned], history, "the state", reread=True)
            moved = behind(folder, end)
            wrong = differing(folder, end)
            left = {path: data for path, data in left.items() if not path.endswith(".crc")}
            left |= recorded_bytes(store, end.listing, wrong)
        for path in moved:
            left.pop(path, None)
            left.pop(_checksum_of(path), None)
        return wanted, left

    def _manifest(self, wanted: RecoveryDecision) -> Manifest:
        if wanted.manifest is not None:
            return wanted.manifest
        entry = self._entry(wanted.parent)
        if not isinstance(entry, Manifest) or entry.epoch != wanted.epoch:
            raise self._failed(f"a start would need epoch {wanted.epoch} in entry {wanted.parent}: {entry}")
        return entry

    def _objects_are_there(self, wanted: RecoveryDecision) -> None:
        manifest = self._manifest(wanted)
        for ref in manifest.objects:
            if self._world.stored(ref.name) != self._objects[ref.name][0]:
                raise self._failed(f"a start would land on epoch {manifest.epoch}, and {ref.name} is gone or damaged")

    def kept_epochs(self) -> list[int]:
        """To which a start may go back."""
        manifest, kept = self._history().newest, []
        kept_from = 0 if manifest is None else manifest.kept_from
        while isinstance(manifest, Manifest) and manifest.epoch >= kept_from:
            kept.append(manifest.epoch)
            manifest = self._entry(manifest.parent) if manifest.parent >= 0 else None
        return kept

    def _failed(self, why: str) -> Violation:
        return self._world.scheduler.failed(why)

    # Reading ---------------------------------------------------------------------------------------------------------

    def _entry_changed(self, name: str) -> None:
        data = self._world.stored(name)
        if data is None:
            self._deleted.add(name)
            return
        number = filenames.entry_number(name)
        assert number is not None
        if name in self._deleted:
            return  # a put that was sent twice has come again: what a start makes of it, ``recoverable`` says
        if self._log.setdefault(name, data) != data:
            raise self._failed(f"{name} was put over another entry")
        entry = self._entry(number)
        if not isinstance(entry, Manifest):
            return
        fences = {at: each for at in self._numbers() if isinstance(each := self._entry(at), Fence)}
        last = fences[max(fences)]
        if last.run != entry.run or last.number > number:
            raise self._failed(f"run {entry.run} has put {name} behind the fence {last.number} of run {last.run}")
        found, wanted = self._state(entry), STATES[self._end(entry)]
        if found != wanted:
            raise self._failed(f"entry {number} of epoch {entry.epoch} lists other sums: {_difference(found, wanted)}")

    def _spark_files(self) -> Files:
        if self._spark is None:
            self._spark = self._world.spark_files()
        return self._spark

    def _history(self) -> History:
        if self._known is not None:
            return self._known
        numbers = self._numbers()
        entries: list[Entry] = []
        for number in reversed(numbers):
            entry = self._entry(number)
            assert entry is not None
            entries.append(entry)
            if isinstance(entry, Manifest):
                break
        self._known = History(tuple(numbers), tuple(entries))
        return self._known

    def _numbers(self) -> list[int]:
        found = (filenames.entry_number(name) for name in self._world.stored_names(filenames.LOG_PREFIX))
        return sorted(number for number in found if number is not None)

    def _entry(self, number: int) -> Entry | None:
        data = self._world.stored(filenames.entry_name(number))
        if data is None:
            return None
        found = self._entries.get(data)
        if found is None:
            try:
                found = _entry(*decode_entry(data, str(number)), number, str(number))
            except CorruptionError as error:
                found = Damaged(number, error)
            self._entries[data] = found
        return found

    def _state(self, manifest: Manifest) -> State:
        """What the manifest's objects hold, read from their bytes."""
        found: State = {}
        for ref in sorted(manifest.objects, key=lambda ref: (ref.first_epoch, ref.last_epoch)):
            for shard, records in self._records(ref, manifest).items():
                if ranges.contains(ref.shards, shard):
                    found |= records
        return left_by(found, manifest.horizons[OPERATOR])

    def _records(self, ref: ObjectRef, manifest: Manifest) -> dict[int, State]:
        data = self._world.stored(ref.name)
        if data is None:
            raise self._failed(f"entry {manifest.number}, epoch {manifest.epoch}, lists {ref.name}, which is not there")
        known = self._objects.get(ref.name)
        if known is None or known[0] != data:
            try:
                reader = open_object(_Bytes(ref.name, data), ref)
                by_shard = {shard: reader.section(OPERATOR, shard) for shard in ranges.members(ref.shards)}
            except CorruptionError as error:
                raise self._failed(f"entry {manifest.number} lists {ref.name}: {error}") from None
            known = data, {shard: _joined(batches) for shard, batches in by_shard.items()}
            self._objects[ref.name] = known
        return known[1]

    def _end(self, manifest: Manifest) -> int:
        """Up to which row of the source a durable epoch goes, as the Spark of its run has given it."""
        if manifest.epoch < 0:
            return 0
        if manifest.replayed_until > manifest.epoch and (manifest.run, manifest.epoch) not in self._ends:
            return self._end(self._as_it_was(manifest))
        if (manifest.run, manifest.epoch) not in self._ends:
            raise self._failed(f"epoch {manifest.epoch} is durable, and its run has not run it")
        return self._ends[manifest.run, manifest.epoch]

    def _as_it_was(self, copy: Manifest) -> Manifest:
        """The manifest that a run has put once more, to go back to it."""
        return next(
            each
            for each in self._entries.values()
            if isinstance(each, Manifest)
            and (each.epoch, each.objects, each.parent) == (copy.epoch, copy.objects, copy.parent)
            and (each.run, each.epoch) in self._ends
        )


class _Snapshot(SparkLogFolder):
    """Spark's logs as they were at a moment. Reading is no operation of the simulation."""

    def __init__(self, files: Files) -> None:
        super().__init__(Path("/spark"))
        self._files = files

    def epochs(self, log: str) -> list[int]:
        return epochs(self._files, log)

    def source_files(self) -> dict[str, dict[int, str]]:
        return {SOURCE_LOG: {source_number(path): path for path in source_paths(self._files)}}

    def read(self, path: str) -> bytes | None:
        return self._files.get(path)


class _Stored:
    """The state store as it is now."""

    uri = "the state"

    def __init__(self, world: World) -> None:
        self._world = world

    def get(self, name: str) -> bytes:
        data = self._world.stored(name)
        if data is None:
            raise FileNotFoundError(name)
        return data

    def list(self, prefix: str) -> list[StoredObject]:
        return [StoredObject(name, 0) for name in self._world.stored_names(prefix)]

    def get_range(self, name: str, start: int, length: int) -> bytes:
        raise NotImplementedError

    put = put_if_absent = delete = sweep = get_range


def _checksum_of(path: str) -> str:
    folder, _, name = path.rpartition("/")
    return f"{folder}/.{name}.crc"


class _Bytes:
    """A store with one object, for the reader of objects."""

    uri = "the state"

    def __init__(self, name: str, data: bytes) -> None:
        self._data = {name: data}

    def get_range(self, name: str, start: int, length: int) -> bytes:
        return self._data[name][start : start + length]

    def get(self, name: str) -> bytes:
        return self._data[name]

    def list(self, prefix: str) -> list[StoredObject]:
        raise NotImplementedError

    put = put_if_absent = delete = sweep = list


def _reached(history: History) -> int:
    """The newest epoch that is durable, also where the query has gone back and will run it again."""
    newest = history.newest
    return -1 if newest is None else newest.epoch + len(newest.replays)


def _joined(batches: list) -> State:
    found: State = {}
    for batch in batches:
        found |= records_of(batch)
    return found


def _difference(found: Mapping, wanted: Mapping) -> str:
    keys = sorted(key for key in {*found, *wanted} if found.get(key) != wanted.get(key))
    return "; ".join(f"key {key}: {found.get(key)} instead of {wanted.get(key)}" for key in keys[:4])
