"""In which order servers are told to apply the rows of an epoch's tasks."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from tailrace.server.transport.stage_messages import CommittedAttempt, StageReceipt
from tailrace.spark.epoch.operator_chain import EpochTry, OperatorChain
from tailrace.spark.tasks.ingest import Receipt


class Fleet:
    """Servers that note which attempts they are told of. ``access``: nobody asks it anything."""

    access = None

    def __init__(self, count: int) -> None:
        self.servers = tuple(range(count))
        self.told: list[list[CommittedAttempt]] = [[] for _ in self.servers]

    def each(self, call: Callable[[Any, int], Any]) -> list[Any]:
        def prepare(number: int, committed: list[CommittedAttempt] | None) -> None:
            if committed is not None:
                self.told[number] = committed

        def client(number: int) -> Any:
            return SimpleNamespace(
                prepare=lambda epoch, try_, committed, operator: prepare(number, committed),
                run_epoch=lambda epoch, try_, committed, *_, **__: prepare(number, committed),
            )

        return [call(client(number), number) for number in self.servers]


def receipt(partition: int, checksum: int, servers: int) -> Receipt:
    staged = tuple(StageReceipt(1, 5, 40, 7 + number) for number in range(servers))
    return Receipt("op", partition, 100 - partition, 5, 0, 0, 5, 0, 0, (), 0.0, 0.0, staged, checksum)


@pytest.mark.parametrize("servers", [1, 2])
@pytest.mark.parametrize(
    ("checksums", "order"),
    [
        ([0, 0, 0, 0], [0, 1, 2, 3]),  # Spark numbers them alike in a replay
        ([40, 2**63, 40, 3], [3, 0, 2, 1]),  # two have equal rows: their order makes no difference
    ],
)
def test_tasks_come_by_their_numbers_or_by_their_rows(servers: int, checksums: list[int], order: list[int]) -> None:
    operator = SimpleNamespace(name="op", waits_outside=False, has_user_code=False)
    stage: Any = SimpleNamespace(operator=operator, by_spark=False, before=())
    plan: Any = SimpleNamespace(stages=[stage], options=SimpleNamespace(function_timeout=60_000_000))
    time: Any = SimpleNamespace(
        late_before=lambda _: 0,
        watermark_of=lambda _: 0,
        times=SimpleNamespace(now=0, expired_by=lambda _: 0),
    )
    fleet: Any = Fleet(servers)
    receipts = [receipt(partition, checksums[partition], servers) for partition in (2, 0, 3, 1)]
    nowhere: Any = None
    OperatorChain(plan, fleet, None).run(EpochTry(0, 0, time, time), receipts, False, nowhere)
    assert [[each.partition for each in told] for told in fleet.told] == [order] * servers
    assert [[each.attempt for each in told] for told in fleet.told] == [[100 - each for each in order]] * servers
