"""The recovery point, where a start resumes: a pure decision from Spark's logs and ours.

``c`` is Spark's newest commit, ``d`` our newest durable epoch, -1 where there is none. The start resumes after the
smaller:

- ``d = c``: go on after ``c``.
- ``d = c + 1``: the crash came after our entry and before Spark's commit. Open the manifest of ``c``; Spark replays
  epoch ``c + 1`` with the same offsets. What was recorded for it (rows, epoch config) goes to the driver, to repeat and
  compare.
- ``c = d + 1``: the crash came after Spark's commit and before our entry, which the asynchronous modes allow. Spark is
  **rewound**, so that it replays epoch ``c`` with the same offsets: the commit of ``c`` is moved to a backup.

An epoch that Spark has planned behind the one that is replayed has reached no sink: its offsets are moved away first,
whoever wrote them (an earlier run, or a JVM that outlives its driver), and it is planned afresh. The order matters:
with commit ``c`` gone and offsets ``c + 1`` there, Spark would take ``c`` for done, and skip its rows without an error.
Between the moves the case is the same, so that a start which crashes there is simply repeated.

Anything else is refused, with an error that says which epochs are where. Where the state has recorded Spark's logs,
they are first made again what it says (``commit.recovery.rebuild``), and the decision is made from those.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from tailrace.commit.log import History
from tailrace.commit.manifest import EMPTY, NO_ENTRY, Manifest
from tailrace.commit.spark_logs.log_files import SparkLogPlace
from tailrace.errors import CheckpointError
from tailrace.ids import NO_EPOCH


class SparkLogs(Protocol):
    """Spark's own logs of a query, ``commits`` and ``offsets``."""

    @property
    def files(self) -> SparkLogPlace | None:
        """Where they are recorded with the state, since they may be lost or changed by others; None where Tailrace
        cannot write to them."""

    def epochs(self, log: str) -> Sequence[int]: ...

    def move_to_backup(self, path: str) -> None:
        """Take the file out of the logs, durably. One that is gone already is fine."""


@dataclass(frozen=True)
class RecoveryPoint:
    """``manifest``: the state to open, that of ``epoch``. ``replay``: what was recorded of the next epoch, if any.

    ``committed``, ``planned``: the newest epochs that Spark's logs have when it starts.
    """

    epoch: int
    manifest: Manifest
    replay: Manifest | None
    committed: int
    planned: int

    @property
    def released(self) -> int:
        """A sink may have seen epochs up to this one, and none behind it."""
        return max(self.epoch, self.planned, self.manifest.replayed_until)


@dataclass(frozen=True)
class RecoveryDecision:
    """The decision before the manifest of ``c`` is read:

    ``parent`` is the number of its entry, where it must be read. ``rewind``: the files that leave Spark's logs first.
    """

    epoch: int
    manifest: Manifest | None
    parent: int
    replay: Manifest | None
    committed: int
    planned: int
    rewind: tuple[str, ...] = ()


def decide(
    commits: Sequence[int], offsets: Sequence[int], history: History, uri: str, reread: bool = True
) -> RecoveryDecision:
    """Which manifest to resume from, or the refusal.

    ``reread``: the sources give an epoch again that Spark has committed.

    ``history`` is read before the new run's fence, or without it. An earlier fence alone says that some run has begun.
    """
    c, o = max(commits, default=NO_EPOCH), max(offsets, default=NO_EPOCH)
    newest = history.newest
    d = newest.epoch if newest is not None else NO_EPOCH
    where = _where(c, o, d, uri)
    if history.damaged and d != c:
        # The damaged entry may be the one of epoch c, or a fence: only where the entry below it is exactly c is it
        # clear that nothing is missed (the damaged one is then epoch c + 1, which Spark replays, or a fence).
        raise history.damaged[0].error
    if c <= d or (c == d + 1 and reread and history.numbers):
        committed = min(c, d)
        planned = max((epoch for epoch in offsets if epoch <= committed + 1), default=NO_EPOCH)
        if planned < committed or o > d + 2:  # no run has planned more than two epochs behind the newest durable one
            raise CheckpointError(
                f"Spark's own checkpoint does not fit together: {where} The newest offset must be that of the newest "
                "commit or of the next epoch. Restore Spark's checkpoint from a copy, or start with new locations."
            )
        rewind = (
            *(f"offsets/{epoch}" for epoch in sorted(offsets, reverse=True) if epoch > planned),
            *(f"commits/{epoch}" for epoch in sorted(commits, reverse=True) if epoch > committed),
        )
        if committed == d:
            manifest = newest if newest is not None else EMPTY
            return RecoveryDecision(d, manifest, NO_ENTRY, None, committed, planned, rewind)
        if committed == d - 1 and planned == d:
            assert newest is not None
            if committed == NO_EPOCH:
                return RecoveryDecision(committed, EMPTY, NO_ENTRY, newest, committed, planned, rewind)
            return RecoveryDecision(committed, None, newest.parent, newest, committed, planned, rewind)
    if d == NO_EPOCH:
        raise CheckpointError(
            f"There is no state for the epochs that Spark has committed: {where} The state location is empty, was "
            "moved, or belongs to another query. Set the option stateLocation to the right place, or start with new "
            "locations."
        )
    if o == NO_EPOCH:
        raise CheckpointError(
            f"There is state but Spark's checkpoint is empty: {where} Set checkpointLocation to the checkpoint that "
            "belongs to this state, or start with new locations for both."
        )
    raise CheckpointError(
        f"Spark's checkpoint and the state do not belong together: {where} The state may be at the epoch of Spark's "
        "newest commit, one ahead or one behind. One of the two was restored from a copy or is another query's; use "
        "the pair that belongs together, or start with new locations."
    )


def resolve(decision: RecoveryDecision, manifest: Manifest, uri: str) -> RecoveryPoint:
    """The recovery point with its ``manifest``, which must be of the epoch that was decided on."""
    if manifest.epoch != decision.epoch:
        raise CheckpointError(
            f"The log at {uri} does not fit together: entry {manifest.number} should hold epoch {decision.epoch} and "
            f"holds epoch {manifest.epoch}. Restore the state from a copy, or start with new locations."
        )
    return RecoveryPoint(decision.epoch, manifest, decision.replay, decision.committed, decision.planned)


def _where(c: int, o: int, d: int, uri: str) -> str:
    def said(epoch: int) -> str:
        return "none" if epoch == NO_EPOCH else f"epoch {epoch}"

    return (
        f"Spark's newest commit: {said(c)}; Spark's newest offset: {said(o)}; newest durable state at {uri}: {said(d)}."
    )
