"""The driver's side of the commit: start, an epoch's commit, cleaning.

Order of a start, and why: the lock (so that nobody on this machine works here), the probe (so that put-if-absent can be
relied on), a first decision (so that a start which must be refused, for its plan, its checkpoint or a missing object,
does not end a query that runs), the fence (so that no older run can publish after it), *then* the decision that counts,
from what is read now (so that it cannot be overtaken), Spark's logs made to end where that says, the orphans.

Cleaning keeps the newest durable entry and its ``retain - 1`` predecessors by parent. Of what goes, log entries go
first, then objects: a crash between the two leaves objects that nobody lists, which the next start deletes. The other
way round it would leave an entry that lists missing objects. Deleting again what is gone is harmless, so a crash at any
point is too. Epoch *e* is committed here only when Spark has committed *e - 1*, and ``retain`` is at least 2: so
cleaning never passes min(c, d).

Threads: ``commit`` one at a time; ``clean`` one at a time, also beside a commit; all else any.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tailrace.commit.epoch_config import forget_epoch_configs, put_epoch_config, read_epoch_config
from tailrace.commit.lock import QueryLock
from tailrace.commit.log import CommitLog, History
from tailrace.commit.manifest import NO_ENTRY, Compaction, Manifest, next_objects
from tailrace.commit.max_pane import grown
from tailrace.commit.objects import ObjectRef
from tailrace.commit.phases import Phase, Phases
from tailrace.commit.plan_file import plan_digest, refuse_other_plan, write_plan
from tailrace.commit.recovery.go_back import gone_back
from tailrace.commit.recovery.rebuild import LogsEnd, behind, changed_at_start, differing
from tailrace.commit.recovery.recovery_point import RecoveryPoint, SparkLogs
from tailrace.commit.recovery.start import CheckManifest, ComparePlans, Start, StartRequest, decide_start, look_first
from tailrace.commit.row_counts import RowCount, put_counts, take_counts
from tailrace.commit.savepoints.savepoint import Pins
from tailrace.commit.spark_logs.records import Listing, put_record, record_names, recorded_bytes, take_record
from tailrace.env.randomness import new_run_id
from tailrace.env.stores.location import probe_put_if_absent
from tailrace.env.stores.object_store import ObjectStore
from tailrace.errors import CheckpointError, RewindNeeded
from tailrace.ids import NO_EPOCH, Attempt
from tailrace.log import filenames

_log = logging.getLogger("tailrace")

RETAIN_MIN = 2


class Controller:
    """One run of one query. Made by ``start``; ``close`` when the query stops."""

    def __init__(self, store: ObjectStore, lock: QueryLock, run: str, retain: int, spark_logs: SparkLogs) -> None:
        self._store = store
        self._lock = lock
        self._log = CommitLog(store)
        self._run = run
        self._retain = retain
        self._spark_logs = spark_logs
        self._plan = ""
        self.fence_name = ""  # of the log entry with this run's fence: who can read it sees our store
        self._phases = Phases(NO_EPOCH)
        self._guard = threading.Lock()
        self._recorded: list[int] = []  # epochs whose config was recorded
        self._fence = -1  # its number in the log
        self._counts: dict[int, RowCount] = {}  # by epoch, of the newest two
        self._pins = Pins(store)
        self._floor = 0
        self._kept_from = 0  # no run before this one deletes this epoch or a later one
        self._known: dict[int, Manifest] = {}  # durable entries that are in the log, by number
        self._newest: Manifest | None = None
        self._recovery_point: RecoveryPoint | None = None
        self._end: LogsEnd | None = None
        self._listings: dict[int, Listing] = {}  # of Spark's logs, by epoch: those that a next one is made from

    @classmethod
    def start(
        cls,
        store: ObjectStore,
        fingerprint: Mapping[str, Any],
        spark_logs: SparkLogs,
        run: str | None = None,
        retain: int = RETAIN_MIN,
        compare: ComparePlans = refuse_other_plan,
        reread: bool = True,
        check: CheckManifest = lambda _: None,
        go_back_to: int | None = None,
    ) -> Controller:
        """Take over the state location.

        ``fingerprint``: the plan as JSON-able data, kept with the state and compared. ``reread``: the sources give an
        epoch again that Spark has committed. ``check`` gets the newest durable manifest that the start goes by, and
        raises ``CheckpointError`` where the query may not go on from it. ``go_back_to``: a retained epoch to land on,
        instead of the newest one; those behind it are run again as they were (``recovery.go_back``).
        """
        if retain < RETAIN_MIN:
            raise CheckpointError(f"At least {RETAIN_MIN} durable epochs must be kept, not {retain}.")
        run = run or new_run_id()
        lock = QueryLock(store, run)
        try:
            controller = cls(store, lock, run, retain, spark_logs)
            controller._take_over(StartRequest(fingerprint, compare, reread, check, go_back_to))
        except BaseException:
            lock.release()
            raise
        return controller

    @property
    def run(self) -> str:
        return self._run

    @property
    def store(self) -> ObjectStore:
        return self._store

    @property
    def retain(self) -> int:
        """How many durable epochs are kept."""
        return self._retain

    @property
    def fence(self) -> int:
        """The number of this run's fence: greater than that of any run before."""
        return self._fence

    def query_id(self) -> str:
        """The same for every run on this state location, and for no other: its first run. Reads the log."""
        return self._log.first_run()

    @property
    def recovery_point(self) -> RecoveryPoint:
        assert self._recovery_point is not None
        return self._recovery_point

    @property
    def durable(self) -> int:
        """The newest epoch that is durable."""
        return self._phases.durable

    def check_newest(self, age_s: float = 0.0) -> None:
        """Raise ``FencedError`` where a newer run has taken over. ``age_s``: an answer so old will do."""
        if self._log.newest_for_s() > age_s:
            self._log.check_newest(self._run, appending=True)

    def record_epoch_config(
        self, epoch: int, epoch_config: Mapping[str, Any], before: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """The epoch's config, recorded before its rows reach a sink: ``epoch_config``, or what was recorded first.

        ``before``: the config of the epoch before. An epoch without a record has the same.
        """
        if epoch_config == before:
            return epoch_config
        with self._guard:
            self._recorded.append(epoch)
        found = put_epoch_config(self._store, epoch, epoch_config)
        # A run that was replaced finds the name free where the newer run has made the epoch durable and deleted its own
        # record. If nobody has fenced by now, whoever does later reads this one.
        self._log.check_newest(self._run, appending=True)
        return found

    def recorded_epoch_config(self, epoch: int) -> Mapping[str, Any] | None:
        """What an earlier run has recorded for the epoch, if it did."""
        return read_epoch_config(self._store, epoch)

    def recorded_count(self, epoch: int) -> RowCount | None:
        """Rows and tasks of an epoch that is replayed with the same offsets, where an earlier run has recorded them."""
        return self._counts.get(epoch) if epoch == self.recovery_point.epoch + 1 else None

    def record_count(self, epoch: int, count: RowCount) -> None:
        """Record how many rows and tasks the epoch has. One thread at a time."""
        self._counts = {each: n for each, n in self._counts.items() if each == epoch - 1} | {epoch: count}
        put_counts(self._store, self._fence, self._counts)

    def refuse_fresh_plan(self, epoch: int) -> None:
        """Raise ``RewindNeeded`` for an epoch that Spark has planned afresh and that must be run again as it was.

        Before anything is recorded of it. Only the first epoch of a run is given as it was planned before.
        """
        until = self.recovery_point.manifest.replayed_until
        if self.recovery_point.epoch + 1 < epoch <= until:
            raise RewindNeeded(
                f"the query has gone back, and epoch {epoch} must be run again as it was, as must all up to epoch "
                f"{until}: the query starts again, and Spark gets the plan that it had of it"
            )

    def record_spark_logs(self, epoch: int) -> None:
        """Record what Spark's logs say of the epoch that it runs, wherever we can write to them as well.

        Before the epoch's rows reach a sink, and before its commit. One thread at a time. Raises ``FencedError`` where
        this run was replaced: its successor may plan the epoch with other rows. Whoever takes over after this finds the
        epoch's plan, in the record or in the logs themselves, and keeps to it.
        """
        folder = self._spark_logs.files
        if folder is None:
            self._log.check_newest(self._run, appending=True)
            return
        if epoch in self._listings:
            return
        first, end = epoch == self.recovery_point.epoch + 1, self._end
        at_start = None if end is None else end.listing
        record = take_record(folder, epoch, self._fence, self._listings.get(epoch - 1, {}), at_start)
        if first and end is not None and (changed := changed_at_start(folder, end)):
            raise RewindNeeded(
                f"{changed} of Spark's checkpoint {folder.root} was moved or changed when Spark started: by a driver "
                "that this one has replaced, or by something else. The query starts again, and puts it right"
            )
        # A successor may have written other files while these were read: a record of both plans would be no plan.
        self._log.check_newest(self._run, appending=True)
        put_record(self._store, record)
        self._log.check_newest(self._run, appending=True)
        with self._guard:
            self._listings = {each: self._listings[each] for each in self._listings if each >= epoch - 2}
            self._listings[epoch] = record.listing

    def trim_spark_logs(self) -> None:
        """Let Spark's logs end once more where the recovery point says. Right before Spark reads them.

        The JVM of a driver that was killed may live on for a while, and have written since to logs that are ours.
        """
        point, logs = self.recovery_point, self._spark_logs
        offsets, commits = logs.epochs("offsets"), logs.epochs("commits")
        late = [f"offsets/{epoch}" for epoch in sorted(offsets, reverse=True) if epoch > point.planned]
        late += [f"commits/{epoch}" for epoch in sorted(commits, reverse=True) if epoch > point.committed]
        if self._end is not None and (files := logs.files) is not None:
            late = behind(files, self._end)
        self._move_to_backup(late)

    def was_skipped(self) -> bool:
        """Whether Spark takes the epoch that it was to replay for done: a replaced driver's JVM has committed it since.

        To be asked where Spark has run no epoch.
        """
        point = self.recovery_point
        return point.planned > point.epoch and point.planned in self._spark_logs.epochs("commits")

    def begin(self, epoch: int, try_: int) -> None:
        """The deltas of this try are sealed, or will be before the next epoch changes anything."""
        self._phases.step(Attempt(epoch, try_), Phase.SEALED)

    def saved(self, epoch: int, try_: int) -> None:
        """The deltas are on the disks of the servers' machines, and not yet in the store."""
        if self._phases.of(Attempt(epoch, try_)) is not Phase.LOCAL:  # as it is where a lost server's commit goes on
            self._phases.step(Attempt(epoch, try_), Phase.LOCAL)

    def give_up(self, epoch: int, try_: int) -> None:
        """This try will not become durable, unless it is already."""
        if self._phases.of(Attempt(epoch, try_)) is not Phase.DURABLE:
            self._phases.step(Attempt(epoch, try_), Phase.GIVEN_UP)

    def commit(
        self,
        epoch: int,
        try_: int,
        deltas: Sequence[ObjectRef] = (),
        compactions: Sequence[Compaction] = (),
        watermarks: Mapping[str, Any] | None = None,
        rows: Mapping[str, Any] | None = None,
        epoch_config: Mapping[str, Any] | None = None,
        horizons: Mapping[str, int] | None = None,
    ) -> Manifest:
        """Make the epoch durable. All deltas are already in the store. At most once per (epoch, try).

        A later try of the same epoch starts again from the manifest of the epoch before. A compaction that no longer
        fits is left out: the manifest that is returned lists those that were used. So are objects whose windows have
        all closed.
        """
        attempt = Attempt(epoch, try_)
        if self._phases.of(attempt) is None:
            self.begin(epoch, try_)
        self._phases.step(attempt, Phase.REMOTE)
        before = self._before(epoch)
        grown_horizons = grown(before.horizons, horizons or {})
        objects, _ = next_objects(before, epoch, deltas, compactions, grown_horizons)
        manifest = Manifest(
            epoch=epoch,
            run=self._run,
            try_=try_,
            objects=objects,
            watermarks=watermarks or {},
            rows=rows or {},
            epoch_config=epoch_config or {},
            horizons=grown_horizons,
            spark_logs=self._spark_listing(epoch),
            plan=self._plan,
            parent=before.number,
            floor=self._floor,
            kept_from=max(self._kept_from, epoch - self._retain + 1),
            replays=before.replays[1:],
            replay_logs=before.replay_logs if before.replays else {},
        )
        manifest = self._log.append_durable(self._run, manifest)
        self._phases.step(attempt, Phase.DURABLE)
        with self._guard:
            self._known.update((each.number, each) for each in self._log.passed_over())
            self._known[manifest.number] = manifest
            self._newest = manifest
        return manifest

    def manifest(self, epoch: int) -> Manifest:
        """The manifest of a retained epoch (or that of the recovery point)."""
        if epoch == self.recovery_point.epoch and epoch < 0:
            return self.recovery_point.manifest
        found = [each for each in self._chain() if each.epoch == epoch]
        if not found:
            raise CheckpointError(f"Epoch {epoch} is not kept at {self._store.uri}; kept: {self._kept_text()}.")
        return found[0]

    def clean(self) -> None:
        """Delete entries and objects that only older epochs need. Only savepoints are listed, where objects go."""
        self._forget_epoch_configs()
        with self._guard:
            chain = self._chain()[: self._retain]
            kept = {manifest.number for manifest in chain}.union(*(manifest.replays for manifest in chain[:1]))
            dropped = [self._known[number] for number in sorted(self._known) if number not in kept]
            needed = set().union(*(self._known[number].needs for number in kept & self._known.keys()))
        if not dropped:
            return
        unneeded = sorted(set().union(*(manifest.needs for manifest in dropped)) - needed)
        # Not under the guard: a commit that comes meanwhile lists what the kept ones do, and its own delta.
        self._log.delete([manifest.number for manifest in dropped])
        self._store.delete(self._pins.without(unneeded))
        with self._guard:
            for manifest in dropped:
                del self._known[manifest.number]
            self._floor = min(self._known)

    def _forget_epoch_configs(self) -> None:
        """A durable manifest holds its epoch's config."""
        with self._guard:
            over = [epoch for epoch in self._recorded if epoch <= self.durable]
            self._recorded = [epoch for epoch in self._recorded if epoch not in over]
        self._store.delete([filenames.epoch_config_name(epoch) for epoch in over])

    def close(self) -> None:
        """Release the lock. Idempotent."""
        self._lock.release()

    def _take_over(self, request: StartRequest) -> None:
        probe_put_if_absent(self._store)
        look_first(self._log, self._store, self._spark_logs, request)
        self._fence = self._log.fence(self._run)
        self.fence_name = filenames.entry_name(self._fence)
        self._go_back(request.go_back_to)
        try:
            self._go_on(replace(request, go_back_to=None))
        except CheckpointError:
            # What was read is a newer run's, and fits together for that one, or that one has swept what was written.
            self._log.check_newest(self._run)
            raise

    def _go_on(self, request: StartRequest) -> None:
        """From what the log says behind this run's fence."""
        start = decide_start(self._log, self._store, self._spark_logs, request, self._fence)
        self._recovery_point, self._end = start.point, start.end
        self._phases = Phases(start.point.epoch)
        self._make_logs_end(start)
        self._listings = {start.point.epoch: start.point.manifest.spark_logs}
        self._counts = self._kept_counts()
        self._newest = start.history.newest
        self._kept_from = 0 if self._newest is None else self._newest.kept_from
        self._load_known(start.history)
        if not self._known:
            self._log.check_newest(self._run)  # one that has slept must not change the plan of its successor's state
            write_plan(self._store, request.fingerprint, replace=True)
        self._plan = plan_digest(request.fingerprint) if self._newest is None else self._newest.plan
        self._delete_orphans()

    def _go_back(self, epoch: int | None) -> None:
        if epoch is None:
            return
        history = self._log.read().without(self._fence)
        if (manifest := gone_back(self._log, self._store, history, epoch, self._run)) is not None:
            self._log.append_durable(self._run, manifest)
            until = manifest.replayed_until
            _log.warning("the query goes back to epoch %d; epochs up to %d are run again as they were", epoch, until)

    def _make_logs_end(self, start: Start) -> None:
        """Let Spark's logs end where the start has decided. What the state knows of them and they lack is written."""
        folder, end = self._spark_logs.files, start.end
        if folder is None or end is None:
            self._move_to_backup(start.decision.rewind)
            return
        self._move_to_backup(behind(folder, end))
        folder.remove_checksums()  # a loss of power leaves some of them without, or with another, file
        if wrong := differing(folder, end):
            data = recorded_bytes(self._store, end.listing, wrong)
            for path in wrong:
                self._log.check_newest(self._run)
                folder.write(path, data[path])
            _log.warning(
                "%d files of Spark's checkpoint %s were missing or damaged and are written again from the state, so "
                "that Spark continues after epoch %d",
                len(wrong),
                folder.root,
                end.committed,
            )

    def _move_to_backup(self, paths: Sequence[str]) -> None:
        for path in paths:
            self._log.check_newest(self._run)  # one that has slept must not rewind a newer one's epochs
            self._spark_logs.move_to_backup(path)

    def _spark_listing(self, epoch: int) -> Listing:
        with self._guard:
            if self._spark_logs.files is not None and epoch not in self._listings:
                raise RuntimeError(f"epoch {epoch} is committed before Spark's logs of it are recorded")
            return self._listings.get(epoch, {})

    def _kept_counts(self) -> dict[int, RowCount]:
        """What was counted of an epoch that Spark replays. Of later ones nothing: they are planned afresh."""
        replayed = self.recovery_point.epoch + 1
        return take_counts(self._store, self._fence, lambda epoch: epoch == replayed <= self.recovery_point.planned)

    def _load_known(self, history: History) -> None:
        """Every durable entry that exists, by reading down to the floor of the newest one."""
        if history.newest is None:
            return
        self._known[history.newest.number] = history.newest
        for number in history.numbers:
            if history.newest.floor <= number < history.newest.number:
                try:
                    entry = self._log.entry(number)
                except FileNotFoundError:
                    continue
                if isinstance(entry, Manifest):
                    self._known[number] = entry
        self._known[self.recovery_point.manifest.number] = self.recovery_point.manifest
        self._known.pop(NO_ENTRY, None)
        self._floor = min(self._known)

    def _delete_orphans(self) -> None:
        """After the fence: what no kept entry lists was left by earlier runs.

        The check comes between listing and deleting: a run on another machine that has started since may already write
        objects, which we know nothing of. If nobody has fenced by the check, nothing listed before it is a later run's.
        """
        listed = [*self._store.list(filenames.OBJECT_PREFIX), *self._store.list(filenames.ROWS_PREFIX)]
        found = [*(each.name for each in listed), *record_names(self._store)]
        self._store.sweep(lambda: self._log.check_newest(self._run))
        self.clean()
        needed = set().union(*(manifest.needs for manifest in self._known.values()))
        if self._end is not None and self._end.record is not None:
            needed.add(self._end.record.name)  # until this run has one of its own
        self._store.delete(self._pins.without(name for name in found if name not in needed))
        forget_epoch_configs(self._store, self.recovery_point.epoch + 1)

    def _before(self, epoch: int) -> Manifest:
        """The manifest that ``epoch`` is built on."""
        if epoch == self.recovery_point.epoch + 1:
            return self.recovery_point.manifest
        if self._newest is not None:
            if self._newest.epoch == epoch - 1:
                return self._newest
            if self._newest.epoch == epoch and self._newest.parent in self._known:
                return self._known[self._newest.parent]
        raise CheckpointError(
            f"Epoch {epoch} cannot be committed: the epoch before it is not kept ({self._kept_text()})."
        )

    def _chain(self) -> list[Manifest]:
        """The newest durable manifest and its predecessors by parent, as far as they are in the log."""
        chain: list[Manifest] = []
        manifest = self._newest
        while manifest is not None:
            chain.append(manifest)
            manifest = self._known.get(manifest.parent)
        return chain

    def _kept_text(self) -> str:
        return ", ".join(f"epoch {manifest.epoch}" for manifest in self._chain()) or "none"
