"""Shards that move between two epochs: to servers that have joined, from those that leave, until all have their share.

At an epoch's begin a few shards get another owner. The epoch's tasks send their rows to the new one at once. Meanwhile
the epoch before becomes durable, and the new owners load the shards as they are after it. Before the epoch's first step
on any server all of that is done: its steps, and its commit, find the new placement, and the commit before has found
the old one. What goes wrong gives the epoch another try, in which nothing moves.

So the move costs an epoch only what takes longer than its ingest does. How many shards move at once is bounded by what
loading one has taken before.

Threads: the epoch's; one of our own waits and loads, while the epoch's waits for its tasks.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from tailrace.commit.manifest import Manifest
from tailrace.env import clock, tasks
from tailrace.server.transport.server_config import ServerAddress
from tailrace.spark.commit.commits import Commits
from tailrace.spark.servers.fleet import Fleet
from tailrace.spark.servers.placement import Placement

_log = logging.getLogger("tailrace")

_SHARE = 0.5
"""Of an epoch: so long may loading take. Behind the ingest, with which it begins, little of it is left."""
_LEAST_S = 0.1
_NEWEST = 0.5
"""The share of the newest measurement in what loading a shard takes."""
_LEAVING_EPOCHS = 4
"""A server that leaves has given all its shards away after so many epochs: nobody knows how long it will stay."""


@dataclass(frozen=True)
class ShardMove:
    """What has moved at the begin of an epoch, and why. ``waited_s``: of ``seconds``, until the epoch before was
    durable."""

    version: int
    shards: int = 0
    reason: str = ""
    seconds: float = 0.0
    waited_s: float = 0.0

    def to_json(self) -> dict[str, Any]:
        return {
            "version": self.version,
            "numMovedShards": self.shards,
            "reason": self.reason,
            "moveMs": round(self.seconds * 1e3, 3),
            "waitMs": round(self.waited_s * 1e3, 3),
        }


NOT_MOVED = ShardMove(0)


class ShardMoves:
    def __init__(self, fleet: Fleet, commits: Commits) -> None:
        self._fleet = fleet
        self._commits = commits
        self._worker = tasks.worker("tailrace-move")
        self._shard_s: float | None = None
        self.last = NOT_MOVED
        """Of the epoch that runs."""

    @contextmanager
    def during(self, epoch: int, try_: int, epoch_s: float) -> Iterator[None]:
        """Around an epoch's ingest. Where shards move, they have moved when it is over.

        ``epoch_s``: how long an epoch takes in which none do.
        """
        before = self._fleet.placement
        self.last = ShardMove(before.version)
        target = before.balanced(self._fleet.wanted) if try_ == 0 else before
        if target is before:
            yield
            return
        after = before.toward(target, self._shards_max(before, epoch_s))
        self._fleet.begin_move(after)
        moving = self._worker.submit(self._move, self._commits.durable_later(epoch - 1), before, after)
        try:
            try:
                yield
            except BaseException:
                with suppress(BaseException):  # a server that is lost here is met again by the next try
                    moving.result()
                raise
            self.last = moving.result()
        finally:
            self._fleet.end_move()
        _log.info(
            "epoch %d: %d shards have moved in %.2f s, since %s; placement %d: %s",
            epoch,
            self.last.shards,
            self.last.seconds,
            self.last.reason,
            after.version,
            _shown(after),
        )

    def close(self) -> None:
        self._worker.shutdown(wait=False)

    def _move(self, durable: Callable[[], Manifest], before: Placement, after: Placement) -> ShardMove:
        began = clock.monotonic()
        manifest = durable()
        waited_s = clock.monotonic() - began
        self._fleet.move(manifest)
        seconds = clock.monotonic() - began
        shards = after.gained(before)
        shard_s = (seconds - waited_s) / shards
        self._shard_s = shard_s if self._shard_s is None else _NEWEST * shard_s + (1 - _NEWEST) * self._shard_s
        return ShardMove(after.version, shards, self._reason(before, after), seconds, waited_s)

    def _shards_max(self, placement: Placement, epoch_s: float) -> int:
        """How many shards may move with the epoch that begins."""
        fitting = 1 if self._shard_s is None else int(max(_LEAST_S, _SHARE * epoch_s) / max(self._shard_s, 1e-6))
        wanted = {server.server for server in self._fleet.wanted}
        leaving = [server for server in placement.servers if server.server not in wanted]
        owned = sum(len(placement.shards_of(server)) for server in leaving)
        return max(fitting, -(-owned // _LEAVING_EPOCHS))

    def _reason(self, before: Placement, after: Placement) -> str:
        wanted = {server.server for server in self._fleet.wanted}
        joined = [f"{_name(server)} has joined" for server in after.servers if server not in before.servers]
        leaving = [f"{_name(server)} leaves" for server in before.servers if server.server not in wanted]
        return "; ".join([*joined, *leaving]) or "servers are to own equally many"


def _shown(placement: Placement) -> str:
    return ", ".join(
        f"{_name(server)} {low}-{high - 1}"
        for server, (low, high) in zip(placement.servers, placement.ranges, strict=True)
    )


def _name(server: ServerAddress) -> str:
    return f"{server.server} on {server.host}" + (f" (executor {server.executor})" if server.executor else "")
