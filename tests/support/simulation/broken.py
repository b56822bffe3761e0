"""Each rule of the commit, taken away: what the simulator must notice, or it proves nothing.

A variant changes the code under test, or the disk, and nothing of the simulator's checks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from support.simulation.disk import SimDisk
from support.simulation.store import SimStore
from tailrace.commit import controller as controllers
from tailrace.commit import manifest as manifests
from tailrace.commit.compaction.shard_snapshot import ShardSnapshot
from tailrace.commit.controller import Controller
from tailrace.commit.epoch_config import put_epoch_config
from tailrace.commit.log import CommitLog
from tailrace.commit.manifest import Manifest
from tailrace.commit.max_pane import MaxPane, is_dead
from tailrace.commit.phases import Phases
from tailrace.commit.recovery import go_back, rebuild
from tailrace.commit.recovery import start as starts
from tailrace.commit.spark_logs import records as spark_records
from tailrace.commit.spark_logs.log_files import SparkLogObjects
from tailrace.env import clock
from tailrace.env.stores.local_store import LocalStore
from tailrace.env.stores.object_store import StoredObject
from tailrace.errors import CheckpointError, FencedError, QueryStopped, StateServerError
from tailrace.ids import NO_EPOCH, Attempt
from tailrace.log import filenames
from tailrace.operators.base import Operator
from tailrace.server.checkpoint.deltas import Sealed, Sealing
from tailrace.server.epoch.engine import Engine
from tailrace.spark.commit.commits import Commits
from tailrace.spark.epoch.time.epoch_clock import EpochClock
from tailrace.spark.epoch.tries import EpochTries
from tailrace.spark.query import query
from tailrace.spark.servers.fleet import Fleet
from tailrace.spark.servers.losses import RetryBudget
from tailrace.state.sections.epoch_sections import EpochSections

Break = Callable[[pytest.MonkeyPatch], None]


def no_gate(patch: pytest.MonkeyPatch) -> None:
    """Rows reach the sink whatever is durable. Also without the check at run time, which would stop it at once."""
    patch.setattr(Phases, "_check_begin", lambda *_: None)
    patch.setattr(Commits, "gate", lambda *_: None)


def acknowledged_before_it_is_synced(patch: pytest.MonkeyPatch) -> None:
    """A write that is acknowledged as durable, and that a loss of power may still take."""
    patch.setattr(SimDisk, "sync_file", lambda *_: None)
    patch.setattr(SimDisk, "sync_folder", lambda *_: None)


def folder_not_synced(patch: pytest.MonkeyPatch) -> None:
    """The bytes last, and the name may not."""
    patch.setattr(SimDisk, "sync_folder", lambda *_: None)


def acknowledged_before_it_is_stored(patch: pytest.MonkeyPatch) -> None:
    """An upload that is acknowledged while it is still on its way."""

    def put(self: SimStore, name: str, parts: Any) -> int:
        data = b"".join(bytes(part) for part in parts)
        self._scheduler.point(f"put {name}")

        def arrives() -> None:
            self.objects[name] = data
            self._changed(name)

        self._scheduler.later(self._scheduler.random.random(), arrives)
        return len(data)

    patch.setattr(SimStore, "put", put)


def listed_and_not_synced(patch: pytest.MonkeyPatch) -> None:
    """A start goes by what it lists in a folder, and its writer may have been killed before it was synced."""

    def believed(self: LocalStore, prefix: str) -> list[StoredObject]:
        files = self._disk.files(self.root / prefix)
        return sorted((StoredObject(path.relative_to(self.root).as_posix(), size) for path, size in files), key=str)

    patch.setattr(LocalStore, "list", believed)


def put_over_others(patch: pytest.MonkeyPatch) -> None:
    """Log entries are put whether or not their number is free."""

    def put(self: CommitLog, number: int, data: bytes) -> bool:
        self._store.put(filenames.entry_name(number), [data])
        return True

    patch.setattr(CommitLog, "_put", put)


def not_behind_the_fence(patch: pytest.MonkeyPatch) -> None:
    """A run appends at whatever number is free, past the fence of a newer one."""
    append = CommitLog.append_durable

    def anywhere(self: CommitLog, run: str, manifest: Manifest) -> Manifest:
        self._next = max(self.numbers()) + 1
        return append(self, run, manifest)

    patch.setattr(CommitLog, "append_durable", anywhere)


def no_rewind(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Controller, "_move_to_backup", lambda *_: None)


def spark_logs_recorded_behind_the_sink(patch: pytest.MonkeyPatch) -> None:
    """A sink may see an epoch whose offsets lie on the driver's disk only."""

    def config_alone(self: Commits, epoch: int) -> None:
        if self._recorded is not None and (error := self._ended(self._recorded, "The config was not recorded")):
            raise error

    patch.setattr(Commits, "await_records", config_alone)


def sources_not_recorded(patch: pytest.MonkeyPatch) -> None:
    """The offsets are recorded, and not the lists of files that they speak of."""
    needed = spark_records._needed

    def without(folder: Any, epoch: int) -> list[str]:
        return [path for path in needed(folder, epoch) if not path.startswith("sources/")]

    patch.setattr(spark_records, "_needed", without)


def half_files_trusted(patch: pytest.MonkeyPatch) -> None:
    """A start writes the files of Spark's that are missing, and takes those that are there for whole."""

    def missing(folder: Any, end: Any) -> list[str]:
        return [path for path in end.listing if folder.read(path) is None]

    patch.setattr(controllers, "differing", missing)


def half_commits_trusted(patch: pytest.MonkeyPatch) -> None:
    """A commit of Spark's that is there counts, whole or not."""
    patch.setattr(rebuild, "is_whole", lambda data: data is not None)


def spark_records_taken_for_orphans(patch: pytest.MonkeyPatch) -> None:
    """Cleaning keeps what the newest manifests list of the state, and not what they list of Spark's logs."""
    delete = Controller._delete_orphans

    def too_much(self: Controller) -> None:
        delete(self)
        self._store.delete(spark_records.record_names(self._store))

    patch.setattr(Controller, "_delete_orphans", too_much)


def record_of_any_run_counts(patch: pytest.MonkeyPatch) -> None:
    """Also that of a run which planned the epoch behind one that was run again."""
    newest = rebuild.newest_record
    patch.setattr(rebuild, "newest_record", lambda store, epoch, _: newest(store, epoch, 0))


def sleeper_records_and_releases(patch: pytest.MonkeyPatch) -> None:
    """A run that was replaced on another machine records an epoch, and does not look whether it was replaced."""

    def unchecked(self: Controller, epoch: int) -> None:
        if self._spark_logs.files is not None and epoch not in self._listings:
            before = self._listings.get(epoch - 1, {})
            record = spark_records.take_record(self._spark_logs.files, epoch, self._fence, before)
            spark_records.put_record(self._store, record)
            self._listings[epoch] = record.listing

    patch.setattr(Controller, "record_spark_logs", unchecked)


def fresh_plan_accepted(patch: pytest.MonkeyPatch) -> None:
    """Behind the first epoch that is run again after going back, Spark's fresh plan is taken for what it was."""
    patch.setattr(Controller, "refuse_fresh_plan", lambda *_: None)


def last_replay_forgotten(patch: pytest.MonkeyPatch) -> None:
    """Who goes back knows the durable epochs behind, and not the one that a sink has seen and that was not durable."""

    def forgetful(*about: Any) -> Manifest | None:
        manifest = go_back.gone_back(*about)
        return None if manifest is None else replace(manifest, replay_logs={})

    patch.setattr(starts, "gone_back", forgetful)
    patch.setattr(controllers, "gone_back", forgetful)


def cleaned_before_it_is_replayed(patch: pytest.MonkeyPatch) -> None:
    """Cleaning keeps the newest manifests, and not the entries of epochs that are to be run again."""
    chain = Controller._chain

    def without(self: Controller) -> list[Manifest]:
        return [replace(each, replays=()) for each in chain(self)]

    patch.setattr(Controller, "_chain", without)


def far_checkpoint_not_recorded(patch: pytest.MonkeyPatch) -> None:
    """Spark's logs in an object store last, so they are believed: whatever a driver that was replaced does to them."""
    patch.setattr(SparkLogObjects, "files", None)


def one_version_kept(patch: pytest.MonkeyPatch) -> None:
    """Cleaning passes the epoch that Spark has committed."""
    start = Controller.start.__func__  # type: ignore[attr-defined]

    def fewer(cls: type[Controller], *args: Any, **more: Any) -> Controller:
        made: Controller = start(cls, *args, **{**more, "retain": 2})
        made._retain = 1
        return made

    patch.setattr(Controller, "start", classmethod(fewer))


def sealed_too_late(patch: pytest.MonkeyPatch) -> None:
    """The delta is taken when it is written: the next epoch may have changed the state by then."""
    seal = Engine._seal

    def open_still(self: Engine, at: Attempt) -> Any:
        sealed = replace(seal(self, at), sections=_Now(self, at))
        self._sealing._sealed[at] = sealed
        return sealed

    patch.setattr(Engine, "_seal", open_still)


def snapshotted_as_before(patch: pytest.MonkeyPatch) -> None:
    """Shards are given as they were an epoch before."""
    take = Sealing._take_snapshot

    def an_epoch_late(self: Sealing, sealed: Sealed, operators: Mapping[str, Operator]) -> ShardSnapshot | None:
        given = take(self, sealed, operators)
        before, self.__dict__["before"] = self.__dict__.get("before", given), given
        return before if given is not None else None

    patch.setattr(Sealing, "_take_snapshot", an_epoch_late)


class _Now(Mapping[str, Any]):
    """Deltas as they are at the moment."""

    def __init__(self, engine: Engine, at: Attempt) -> None:
        self._engine = engine
        self._at = at

    def __getitem__(self, name: str) -> Any:
        delta = self._engine._runners[name].operator.delta(self._at.epoch)
        return EpochSections(delta.items())

    def __iter__(self) -> Iterator[str]:
        return iter(self._engine._runners)

    def __len__(self) -> int:
        return len(self._engine._runners)


def applied_twice(patch: pytest.MonkeyPatch) -> None:
    """A start recovers one epoch too late and replays what is in the state already."""
    decide = starts.decide

    def late(commits: Sequence[int], offsets: Sequence[int], *rest: Any) -> Any:
        wanted = decide(commits, offsets, *rest)
        if wanted.replay is not None and wanted.epoch != NO_EPOCH:
            return replace(wanted, manifest=replace(wanted.replay, epoch=wanted.epoch))
        return wanted

    patch.setattr(starts, "decide", late)


def no_record(patch: pytest.MonkeyPatch) -> None:
    """The epoch config is not known to the run that replays the epoch."""
    patch.setattr(Commits, "record_config", lambda *_: None)


def old_record_overlooked(patch: pytest.MonkeyPatch) -> None:
    """What an earlier run has recorded is read for epochs that are replayed, not for one that a rewind took back."""

    def recorded(self: Commits, epoch: int) -> Any:
        return (
            self._controller.recorded_epoch_config(epoch) if epoch <= self._controller.recovery_point.planned else None
        )

    patch.setattr(Commits, "recorded_config", recorded)
    patch.setattr(Commits, "record_config", _record_if_other)


def record_put_by_a_sleeper(patch: pytest.MonkeyPatch) -> None:
    """A run records the epoch config, and does not check whether it was replaced."""

    def put(self: Controller, epoch: int, epoch_config: Any, before: Any) -> Any:
        return epoch_config if epoch_config == before else put_epoch_config(self._store, epoch, epoch_config)

    patch.setattr(Controller, "record_epoch_config", put)


def _record_if_other(self: Commits, epoch: int, epoch_config: Any, before: Any) -> None:
    if self.sink_before_durable:
        self._recorded = self._recorder.submit(self._record, epoch, dict(epoch_config), dict(before))


def objects_deleted_first(patch: pytest.MonkeyPatch) -> None:
    """Cleaning takes the objects of the manifest before the newest."""
    clean = Controller.clean

    def too_much(self: Controller) -> None:
        clean(self)
        chain = self._chain()
        if len(chain) > 1:
            gone = {ref.name for ref in chain[1].objects} - {ref.name for ref in chain[0].objects}
            self._store.delete(sorted(gone))

    patch.setattr(Controller, "clean", too_much)


def closed_too_early(patch: pytest.MonkeyPatch) -> None:
    """An object leaves the manifest while rows of its last pane may still come."""

    def sooner(max_pane: MaxPane | None, horizons: Mapping[str, int]) -> bool:
        return is_dead(max_pane, {operator: horizon + 1 for operator, horizon in horizons.items()})

    patch.setattr(manifests, "is_dead", sooner)


def gone_with_its_manifest(patch: pytest.MonkeyPatch) -> None:
    """The files of a dropped object go at once, and not when no start can recover from a manifest that lists it."""
    commit = Controller.commit

    def and_delete(self: Controller, *about: Any, **more: Any) -> Manifest:
        before = self._newest
        manifest = commit(self, *about, **more)
        listed = {ref.name for ref in manifest.objects}
        self._store.delete([ref.name for ref in before.objects if ref.name not in listed] if before else [])
        return manifest

    patch.setattr(Controller, "commit", and_delete)


def clock_believed(patch: pytest.MonkeyPatch) -> None:
    """An epoch's time is what the wall clock shows, wherever somebody has set it."""
    patch.setattr(EpochClock, "next", lambda self, last: max(last, int(clock.now() * 1e6)))


def loss_counted_too_late(patch: pytest.MonkeyPatch) -> None:
    """A job that was cancelled for a silent server is a loss only where that happened after the try had begun."""
    run_tries = EpochTries.run

    def run(self: EpochTries, epoch: int, try_once: Callable[[int], Any]) -> Any:
        def counting(try_: int) -> Any:
            self._cancels_known = self._fleet.cancels
            return try_once(try_)

        return run_tries(self, epoch, counting)

    patch.setattr(EpochTries, "run", run)


def not_called_again(patch: pytest.MonkeyPatch) -> None:
    """A call whose answer was lost is a loss of its server."""
    patch.setattr(Fleet, "_answered", lambda self, server, call, number: call(self.client(server), number))


def waits_for_the_only_server(patch: pytest.MonkeyPatch) -> None:
    """A single server is called without a look at the heartbeat."""
    each = Fleet.each

    def alone(self: Fleet, call: Callable[[Any, int], Any]) -> list[Any]:
        if len(self.servers) > 1:
            return each(self, call)
        return [self._answered(self.servers[0], call, 0)]

    patch.setattr(Fleet, "each", alone)


def cancelled_once(patch: pytest.MonkeyPatch) -> None:
    """Jobs that begin when a server has been given up already wait for it."""
    patch.setattr(Fleet, "raise_given_up", lambda self: None)
    patch.setattr(Fleet, "_cancel_until_replaced", lambda self, server: None)


def ended_by_what_others_write(patch: pytest.MonkeyPatch) -> None:
    """Spark finds an entry in its logs that the JVM of a driver before it has written meanwhile."""
    patch.setattr(query, "written_by_others", lambda error: False)


def tried_under_the_old_number(patch: pytest.MonkeyPatch) -> None:
    """A new try of an epoch has the number of the one before."""
    run = EpochTries.run

    def same(self: EpochTries, epoch: int, try_once: Callable[[int], Any]) -> Any:
        return run(self, epoch, lambda try_: try_once(0))

    recover = Fleet.recover
    patch.setattr(EpochTries, "run", same)
    patch.setattr(Fleet, "recover", lambda self, manifest, try_: recover(self, manifest, 0))


def tries_counted(patch: pytest.MonkeyPatch) -> None:
    """A query ends after three losses without an epoch between them, however quickly they came."""
    patch.setattr(RetryBudget, "spent", property(lambda self: self._losses >= 3))


def loss_in_a_start_ends_the_query(patch: pytest.MonkeyPatch) -> None:
    """A server that is lost while the query starts again."""
    patch.setattr(query, "started_again", lambda check_newest, start, budget: start())


def late_end_taken_for_a_timeout(patch: pytest.MonkeyPatch) -> None:
    """A commit that ends after the wait for it and before the look at it."""

    def ended(self: Commits, call: Any, what: str) -> BaseException | None:
        while True:
            try:
                call.result(0.1)
                return None
            except TimeoutError:
                if call.done():
                    raise
                if self._stopping.is_set():
                    raise QueryStopped(what) from None
            except (StateServerError, CheckpointError, FencedError, OSError) as error:
                return error

    patch.setattr(Commits, "_ended", ended)


def moved_as_before(patch: pytest.MonkeyPatch) -> None:
    """Shards that move come without what the last epoch has changed."""
    later = Commits.durable_later

    def older(self: Commits, epoch: int) -> Callable[[], Manifest]:
        durable, manifest = later(self, epoch), self._durable[min(self._durable)]

        def wait() -> Manifest:
            durable()
            return replace(manifest, epoch=epoch)

        return wait

    patch.setattr(Commits, "durable_later", older)
