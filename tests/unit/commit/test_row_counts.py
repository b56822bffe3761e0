"""How many rows an epoch had: kept over a start for the epoch that is replayed, and for no other."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.models.spark_logs import spark_logs
from tailrace.commit.controller import Controller
from tailrace.commit.row_counts import RowCount, put_counts, read_counts
from tailrace.env.stores.local_store import LocalStore
from tailrace.errors import CorruptionError
from tailrace.log.filenames import COUNTS_PREFIX, counts_name


def counts_in(store: LocalStore) -> dict[int, RowCount]:
    return read_counts(store, [each.name for each in store.list(COUNTS_PREFIX)])


def recovered(store: LocalStore, commits: int, offsets: int) -> Controller:
    return Controller.start(store, {"q": 1}, spark_logs(range(commits + 1), range(offsets + 1)))


def durable_up_to(store: LocalStore, epoch: int) -> None:
    controller = Controller.start(store, {"q": 1}, spark_logs())
    for each in range(epoch + 1):
        controller.commit(each, 0, rows={"input": 100 + each})
    controller.close()


def test_the_newest_two_are_kept(tmp_path: Path) -> None:
    controller = recovered(LocalStore(tmp_path), -1, -1)
    for epoch in range(5):
        controller.record_count(epoch, RowCount(10 * epoch, epoch))
    assert counts_in(LocalStore(tmp_path)) == {3: (30, 3), 4: (40, 4)}
    controller.close()


@pytest.mark.parametrize(
    ("commits", "offsets", "kept"),
    [
        (3, 3, {3: RowCount(33, 2)}),  # Spark is rewound to replay 3
        (3, 4, {3: RowCount(33, 2)}),  # and 4 is planned afresh: it may have other rows
        (2, 3, {3: RowCount(33, 2)}),  # 3 was planned, and perhaps in its sink
        (2, 2, {}),  # 3 is not even planned: what was counted is of offsets that are gone
    ],
)
def test_a_start_keeps_the_count_of_the_epoch_that_is_replayed(
    tmp_path: Path, commits: int, offsets: int, kept: dict[int, RowCount]
) -> None:
    store = LocalStore(tmp_path)
    durable_up_to(store, 2)
    put_counts(store, 0, {3: RowCount(33, 2), 4: RowCount(44, 2)})
    for _ in range(2):  # a start that crashes changes nothing for the next
        controller = recovered(store, commits, offsets)
        assert controller.recorded_count(3) == kept.get(3)
        assert controller.recorded_count(4) is None
        assert counts_in(store) == kept
        controller.close()


def test_a_damaged_record_is_reported(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    durable_up_to(store, 2)
    put_counts(store, 0, {3: RowCount(33, 2)})
    store.put(counts_name(0), [store.get(counts_name(0))[:-3]])
    with pytest.raises(CorruptionError, match=r"counts/0+\.json"):
        recovered(store, 2, 3)


def test_a_replaced_run_does_not_change_what_its_successor_has_counted(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    durable_up_to(store, 2)
    replaced = recovered(store, 2, 2)
    replaced.close()
    successor = recovered(store, 2, 3)
    successor.record_count(3, RowCount(33, 2))
    successor.close()
    replaced.record_count(3, RowCount(44, 2))
    after = recovered(store, 3, 3)
    assert after.recorded_count(3) == (33, 2)
    after.close()
