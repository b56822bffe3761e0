"""Going back to a retained epoch, when that is asked for: because objects of newer ones are gone or wrong.

The log gets one more entry: the manifest of the epoch *n* once more, now the newest. It lists the entries of the epochs
behind it, ``replays``, and what was recorded of Spark's logs of one that was not durable by then, ``replay_logs``.
A sink has seen these epochs. So each is run again exactly as it was, one after the other: a start makes Spark's logs
end with *n* committed and *n + 1* planned as its manifest says, and gives the driver that manifest, to repeat what it
holds. Spark replays one epoch and plans the next one afresh. That plan is refused before anything of it is recorded;
the query starts again, from the new manifest of *n + 1*, which lists what is left. So it does not matter when this is
interrupted, nor how often the query goes back.

A run that was replaced and wakes up may still clean up: down to what its own newest manifest keeps. So a manifest says
from which epoch on no run so far deletes anything, ``kept_from``, and nobody goes back behind that.

The put of that entry is the one step that decides; a start that dies before it has changed nothing.

Functions here hold no state.
"""

from __future__ import annotations

from dataclasses import replace

from tailrace.commit.log import CommitLog, History
from tailrace.commit.manifest import NO_ENTRY, Manifest
from tailrace.commit.spark_logs.records import fence_of, newest_record
from tailrace.env.stores.object_store import ObjectStore
from tailrace.errors import CheckpointError


def gone_back(log: CommitLog, store: ObjectStore, history: History, epoch: int, run: str) -> Manifest | None:
    """The manifest to append so that a start lands on ``epoch``; ``None`` where that is the newest one."""
    if history.damaged:
        raise history.damaged[0].error  # it may be an epoch that a sink has seen, and nobody knows what it was
    newest = history.newest
    chain = [] if newest is None else _kept(log, newest)
    target = next((each for each in chain if each.epoch == epoch), None)
    if newest is None or target is None:
        kept = ", ".join(f"epoch {each.epoch}" for each in chain) or "none"
        raise CheckpointError(
            f"The query cannot go back to epoch {epoch}: it is not kept at {store.uri}; kept: {kept}. How many "
            "are kept says the query's option retain."
        )
    if not newest.spark_logs:
        raise CheckpointError(
            f"The query cannot go back to epoch {epoch}: Spark's logs were not recorded with the state at {store.uri}, "
            "as Tailrace could not write to Spark's checkpoint. Use a checkpointLocation where it can."
        )
    if target is newest:
        return None
    logs = newest.replay_logs
    if newest.replayed_until == newest.epoch:
        record = newest_record(store, newest.epoch + 1, fence_of(newest.spark_logs, newest.epoch))
        logs = {} if record is None else record.listing
    behind = tuple(each.number for each in reversed(chain) if each.epoch > epoch)
    return replace(
        target,
        run=run,
        number=NO_ENTRY,
        floor=newest.floor,
        kept_from=newest.kept_from,
        replays=(*behind, *newest.replays),
        replay_logs=logs,
    )


def _kept(log: CommitLog, newest: Manifest) -> list[Manifest]:
    """The newest durable manifest and its predecessors, as far as they are kept.

    One that is not may be there all the same: it is to be deleted, or a put that was sent twice has brought it back.
    """
    chain = [newest]
    while chain[-1].epoch > newest.kept_from and (parent := chain[-1].parent) != NO_ENTRY:
        try:
            entry = log.entry(parent)
        except FileNotFoundError:
            break
        if not isinstance(entry, Manifest):
            break
        chain.append(entry)
    return chain
