"""The contract of sinks, the same for every kind of them.

An epoch is *begun*, *written* in pieces that nobody sees, and *published* by one step:

- A sink may get an epoch again, in another try, in another run, and also in two runs at once: a driver that stood still
  for a while does not know that another one has taken over. Its rows are the same each time.
- ``publish`` decides the epoch in one atomic step that only one of them wins, and then makes it visible. Where another
  one has won, it makes that one's rows visible, and drops its own.
- Right before the visible step a sink looks for a newer fence (``SinkRun.check_fence``). That alone proves nothing, as
  a run may stand still right after it: so what such a run does later must do no harm.

A sink that has no such step (a user's function, the console) publishes while it writes, and says so to its user.

Threads: ``clean`` runs in the thread that cleans up behind epochs, everything else in the epoch's thread.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from tailrace.env.stores.object_store import ObjectStore
from tailrace.spark.sinks.epoch_output import EpochOutput
from tailrace.spark.tasks.row_objects import RowsPlace


@dataclass(frozen=True)
class SinkRun:
    """The run that writes to a sink.

    ``retain``: so many durable epochs are kept, and a later start may continue from any of them. ``store``: where they
    are.
    """

    run: str
    retain: int
    store: ObjectStore
    check_fence: Callable[[float], None]
    """Raises ``FencedError`` where a newer run has taken over. An answer that is so many seconds old will do. Safe from
    any thread."""
    query_id: Callable[[], str] = lambda: ""
    """The same for every run on one state location, and for no other. Reads from it."""
    number: int = 0
    """Greater with each run."""
    planned: int = 0
    """The newest epoch that an earlier run may have released."""
    place: RowsPlace | None = None
    """Where tasks may set rows aside: the same store."""


@dataclass(frozen=True)
class SinkEpoch:
    """A try of an epoch. ``again``: the sink may have seen the epoch before."""

    epoch: int
    try_: int
    again: bool


class EpochSink(Protocol):
    pipelined: bool
    """Whether its job may start before the epoch's rows are there: it does nothing but read them and write them."""

    def open(self, run: SinkRun) -> None:
        """Once, after the run's fence and before its first epoch."""

    def shared_folder(self) -> str | None:
        """A folder that exists until the first epoch is done, where executors write to a disk: they must see it."""
        ...

    def begin(self, at: SinkEpoch) -> bool:
        """Whether the epoch is still to be written. Where it was decided before, it is visible when this returns."""

    def write(self, output: EpochOutput, at: SinkEpoch) -> None:
        """Write the epoch's rows where nobody sees them."""

    def publish(self, at: SinkEpoch) -> None:
        """Make them visible, all of them and once."""

    def clean(self, epoch: int) -> None:
        """The epoch is durable and visible. What fails here is tried again by a later call, or by the next start."""

    def stop(self) -> None:
        """The query is being stopped: wait for nothing any more. From any thread."""

    def close(self) -> None:
        """The run is over, or was not opened."""


def release(sink: EpochSink, output: EpochOutput, at: SinkEpoch) -> None:
    """Give an epoch's rows to a sink."""
    if sink.begin(at):
        sink.write(output, at)
        sink.publish(at)
