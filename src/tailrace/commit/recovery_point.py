"""The recovery point, where a start resumes: a pure decision from Spark's logs and ours.

``c`` is Spark's newest commit, ``d`` our newest durable epoch, -1 where there is none. The start resumes after the
smaller:

- ``d = c``: go on after ``c``.
- ``d = c + 1``: the crash came after our entry and before Spark's commit. Open the manifest of ``c``; Spark replays
  epoch ``c + 1`` with the same offsets. What was recorded for it (rows, epoch config) goes to the driver, to repeat and
  compare.
- ``c = d + 1``: the crash came after Spark's commit and before our entry, which the asynchronous modes allow. Spark is
  **rewound**: offsets of ``c + 1`` first, then the commit of ``c``, are moved to a backup, so that it replays epoch
  ``c`` with the same offsets. Epoch ``c + 1``, whose rows reached no sink, is planned afresh. The order matters: with
  commit ``c`` gone and offsets ``c + 1`` there, Spark would take ``c`` for done, and skip its rows without an error.
  Between the two moves the case is the same, so that a start which crashes there is simply repeated.

Anything else is refused, with an error that says which epochs are where.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from tailrace.commit.log import History
from tailrace.commit.manifest import EMPTY, NO_ENTRY, Manifest
from tailrace.errors import CheckpointError
from tailrace.ids import NO_EPOCH


class SparkLogs(Protocol):
    """Spark's own logs of a query, ``commits`` and ``offsets``."""

    def epochs(self, log: str) -> Sequence[int]: ...

    def move_to_backup(self, log: str, epoch: int) -> None:
        """Take the epoch's file out of the log, durably. One that is gone already is fine."""


@dataclass(frozen=True)
class Step:
    """One file that a rewind moves to the backup."""

    log: str
    epoch: int


@dataclass(frozen=True)
class RecoveryPoint:
    """``manifest``: the state to open, that of ``epoch``. ``replay``: what was recorded of the next epoch, if any.

    ``planned``: the newest epoch that Spark had planned. A sink may have seen those up to it.
    """

    epoch: int
    manifest: Manifest
    replay: Manifest | None
    rewind: tuple[Step, ...]
    planned: int


@dataclass(frozen=True)
class RecoveryDecision:
    """The decision before the manifest of ``c`` is read:

    ``parent`` is the number of its entry, where it must be read.
    """

    epoch: int
    manifest: Manifest | None
    parent: int
    replay: Manifest | None
    planned: int
    rewind: tuple[Step, ...] = ()


def decide(
    commits: Sequence[int], offsets: Sequence[int], history: History, uri: str, reread: bool = True
) -> RecoveryDecision:
    """Which manifest to resume from, or the refusal.

    ``reread``: the sources give an epoch again that Spark has committed.

    ``history`` is read after the new run's fence.
    """
    c, o = max(commits, default=NO_EPOCH), max(offsets, default=NO_EPOCH)
    newest = history.newest
    d = newest.epoch if newest is not None else NO_EPOCH
    where = _where(c, o, d, uri)
    if o not in (c, c + 1):
        raise CheckpointError(
            f"Spark's own checkpoint does not fit together: {where} The newest offset must be that of the newest "
            "commit or of the next epoch. Restore Spark's checkpoint from a copy, or start with new locations."
        )
    if history.damaged and d != c:
        # The damaged entry may be the one of epoch c, or a fence: only where the entry below it is exactly c is it
        # clear that nothing is missed (the damaged one is then epoch c + 1, which Spark replays, or a fence).
        raise history.damaged[0].error
    if d == c:
        return RecoveryDecision(c, newest if newest is not None else EMPTY, NO_ENTRY, None, o)
    if d == c + 1 and o == d:
        assert newest is not None
        if c == NO_EPOCH:
            return RecoveryDecision(c, EMPTY, NO_ENTRY, newest, o)
        return RecoveryDecision(c, None, newest.parent, newest, o)
    if c == d + 1 and reread and (newest is not None or len(history.numbers) > 1):  # more than our own fence
        steps = (*((Step("offsets", o),) if o > c else ()), Step("commits", c))
        return RecoveryDecision(d, newest if newest is not None else EMPTY, NO_ENTRY, None, o, steps)
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
    return RecoveryPoint(decision.epoch, manifest, decision.replay, decision.rewind, decision.planned)


def _where(c: int, o: int, d: int, uri: str) -> str:
    def said(epoch: int) -> str:
        return "none" if epoch == NO_EPOCH else f"epoch {epoch}"

    return (
        f"Spark's newest commit: {said(c)}; Spark's newest offset: {said(o)}; newest durable state at {uri}: {said(d)}."
    )
