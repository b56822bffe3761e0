"""What a start decides, from the log, the plan and Spark's logs as they are at that moment. It changes nothing.

A start decides twice: before its fence, so that one which must be refused does not end a query that runs, and after it,
when what it reads cannot be overtaken any more. Only the second decision counts.

Stateless: safe from any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tailrace.commit.log import CommitLog, History
from tailrace.commit.manifest import Manifest
from tailrace.commit.plan_file import plan_digest, read_plan
from tailrace.commit.recovery.go_back import gone_back
from tailrace.commit.recovery.rebuild import LogsEnd, logs_end, refuse_other_query
from tailrace.commit.recovery.recovery_point import RecoveryDecision, RecoveryPoint, SparkLogs, decide, resolve
from tailrace.env.stores.object_store import ObjectStore, locate
from tailrace.errors import CheckpointError, CorruptionError
from tailrace.log import filenames
from tailrace.log.format import damaged

_NO_FENCE = -1
_LOOKS_MAX = 3
"""So often a start reads a log that changes meanwhile, before it believes what it finds wrong."""

ComparePlans = Callable[[Mapping[str, Any], Mapping[str, Any]], None]
"""Stored plan, plan now; raises where the state cannot serve the query."""

CheckManifest = Callable[[Manifest], None]
"""Gets the newest durable manifest that the start goes by; raises where the query may not go on from it."""


@dataclass(frozen=True)
class StartRequest:
    """What is started. ``reread``: the sources give an epoch again that Spark has committed.

    ``go_back_to``: a retained epoch that the start is to land on, and not on the newest one.
    """

    fingerprint: Mapping[str, Any]
    compare: ComparePlans
    reread: bool
    check: CheckManifest
    go_back_to: int | None = None


@dataclass(frozen=True)
class Start:
    """What a start has decided. ``end``: where the state says that Spark's logs end, where it does."""

    history: History
    decision: RecoveryDecision
    point: RecoveryPoint
    end: LogsEnd | None


def look_first(log: CommitLog, store: ObjectStore, spark_logs: SparkLogs, request: StartRequest) -> None:
    """Refuse before the fence what would be refused after it: a query that runs goes on then.

    A query that runs changes what is read here, so what a look finds wrong may come of that: then it looks again. In
    doubt the start is refused. One that was refused wrongly can be repeated; a query that was fenced is dead.
    """
    for looks_left in reversed(range(_LOOKS_MAX)):
        before = log.numbers()
        try:
            decide_start(log, store, spark_logs, request)
            return
        except CheckpointError as error:
            unchanged = log.numbers() == before
            if not unchanged and not looks_left:
                error.add_note("Another query works there: if this one is to replace it, stop that first.")
            if unchanged or not looks_left:
                raise


def decide_start(
    log: CommitLog, store: ObjectStore, spark_logs: SparkLogs, request: StartRequest, fence: int = _NO_FENCE
) -> Start:
    """``fence``: the number of the start's own, once it has one."""
    history = log.read().without(fence)
    if request.go_back_to is not None and (manifest := gone_back(log, store, history, request.go_back_to, "")):
        history = History(history.numbers, (manifest,))
    _check_plan(store, history, request)
    folder = spark_logs.files
    end = None if folder is None else logs_end(folder, store, history, request.reread)
    if end is None:
        commits, offsets = spark_logs.epochs("commits"), spark_logs.epochs("offsets")
    else:
        assert folder is not None
        if folder.epochs("commits"):
            # A query that has done nothing may be that of a first start which was replaced: two machines had started
            # at once, and the other one's query has got the state.
            refuse_other_query(folder, store, end.listing)
        commits, offsets = [end.committed], [end.planned]
    decision = decide(commits, offsets, history, store.uri, request.reread)
    if end is not None and end.replay is not None:
        decision = replace(decision, replay=end.replay)
    manifest = decision.manifest if decision.manifest is not None else log.manifest(decision.parent)
    point = resolve(decision, manifest, store.uri)
    _refuse_missing(store, manifest)
    request.check(decision.replay or manifest)
    return Start(history, decision, point, end)


def _check_plan(store: ObjectStore, history: History, request: StartRequest) -> None:
    """Only where there is state: a plan that never made an epoch durable binds nobody."""
    newest = history.newest
    if newest is None:
        return
    where = locate(store, filenames.PLAN_NAME)
    stored = read_plan(store, newest.plan)
    if stored is None:
        raise CorruptionError(damaged(where, "it is missing, and there is state of a query"))
    if plan_digest(stored) != newest.plan:
        raise CorruptionError(damaged(where, f"it is not the plan of durable epoch {newest.epoch}"))
    request.compare(stored, request.fingerprint)


def _refuse_missing(store: ObjectStore, manifest: Manifest) -> None:
    """Refuse where an object is gone or cut off. That its bytes are right, the servers see who read them."""
    if not manifest.objects:
        return
    stored = {each.name: each.bytes for each in store.list(filenames.OBJECT_PREFIX)}
    for ref in manifest.objects:
        if (found := stored.get(ref.name)) != ref.bytes:
            how = "it is missing" if found is None else f"it has {found} bytes and should have {ref.bytes}"
            raise CorruptionError(damaged(locate(store, ref.name), how))
