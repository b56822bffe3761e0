"""What the arrays of a table take in memory: in proportion to what it holds, not to what it has held."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import numpy as np
import pyarrow as pa

from tailrace.state.hash_table.table import Table
from tailrace.state.layout import HASH, PANE, VALID, Merge, record_layout
from tailrace.state.rows.builder import RowsBuilder
from tailrace.state.rows.rows import Rows
from tailrace.types import DataType, Field

STRING = DataType("string")
LAYOUT = record_layout([Field("k", STRING)], [(Merge.MAX, STRING)], ansi=False)
TEXT_BYTES = 4_000


def rows_of(numbers: range) -> Rows:
    """A record of some 4 kB for each number."""
    builder = RowsBuilder(len(numbers), LAYOUT)
    builder.words[:, HASH], builder.words[:, PANE] = np.arange(len(numbers)), 0
    key, largest = LAYOUT.keys[0], LAYOUT.accumulators[0]
    builder.put(pa.array([str(n) for n in numbers]), STRING, key.word, key.bit)
    builder.put(pa.array([f"{n:0{TEXT_BYTES}}" for n in numbers]), STRING, largest.word, largest.bit)
    return builder.finish()


def merged(table: Table, rows: Rows, lo: int, hi: int) -> None:
    table.begin(hi - lo)
    table.merge(rows.words, rows.heap, lo, hi)
    table.forget()


def held_bytes(make: Callable[[], object]) -> int:
    """By what ``make`` returns."""
    make()  # what is compiled and imported at the first time
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    kept = make()
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    del kept
    return after - before


def test_tables_take_no_more_room_for_a_row_because_it_came_with_many_others() -> None:
    count = 64
    rows = rows_of(range(count))

    def make() -> list[Table]:
        tables = [Table(LAYOUT) for _ in range(count)]
        for number, table in enumerate(tables):
            merged(table, rows, number, number + 1)
        return tables

    assert held_bytes(make) < 4 * count * TEXT_BYTES


def test_a_table_lets_go_of_the_room_of_strings_that_have_left() -> None:
    count, left = 4_000, 40
    rows = rows_of(range(count))

    def make() -> Table:
        table = Table(LAYOUT)
        merged(table, rows, 0, count)
        table.evict(table.all_rows()[left:])
        assert table.rows == left
        return table

    assert held_bytes(make) < 4 * left * TEXT_BYTES


def test_a_table_lets_go_of_the_room_of_strings_that_were_replaced() -> None:
    count, times = 40, 30
    rows = rows_of(range(count))

    def make() -> Table:
        table = Table(LAYOUT)
        table.begin(count)
        for _ in range(times):
            table.merge(rows.words, rows.heap, 0, count, replace=True)
        table.forget()
        table.begin(0)
        return table

    assert held_bytes(make) < 4 * count * TEXT_BYTES


def test_strings_are_whole_after_a_table_has_let_go_of_room_and_grown_again() -> None:
    table, count = Table(LAYOUT), 50
    merged(table, rows_of(range(count)), 0, count)
    table.begin(count)
    more = rows_of(range(count, 2 * count))
    table.merge(more.words, more.heap, 0, count)
    table.compact()
    table.undo()
    table.compact()
    again = rows_of(range(count, 4 * count))
    merged(table, again, 0, 3 * count)
    copies = table.copy(table.all_rows())
    word = LAYOUT.accumulators[0].word
    texts = {copies.heap[at + 4 : at + 4 + TEXT_BYTES].tobytes() for at in copies.words[:, word]}
    assert texts == {f"{n:0{TEXT_BYTES}}".encode() for n in range(4 * count)}


NUMBERS = record_layout([Field("k", DataType("bigint"))], [(Merge.ADD, DataType("bigint"))], ansi=False)


def numbers_of(count: int) -> Rows:
    words = np.zeros((count, NUMBERS.words), np.int64)
    words[:, HASH] = words[:, NUMBERS.keys[0].word] = np.arange(count)
    words[:, NUMBERS.accumulators[0].word] = 1
    words[:, VALID] = 1 << NUMBERS.keys[0].bit | 1 << NUMBERS.accumulators[0].bit
    return Rows(words, np.empty(0, np.uint8))


def test_an_undo_log_has_no_room_for_images_of_records_that_were_not_there() -> None:
    rows = numbers_of(50_000)

    def make(there: int) -> Table:
        table = Table(NUMBERS, rows_expected=65_000)
        merged(table, rows, 0, there)
        table.begin(50_000)
        table.merge(rows.words, rows.heap, 0, 50_000)
        return table

    few, all_of_them = (held_bytes(lambda there=there: make(there)) for there in (100, 50_000))
    assert all_of_them - few > 49_000 * 8 * NUMBERS.words


def test_a_log_that_takes_over_the_arrays_of_another_has_room_for_all_images() -> None:
    """The other one had made most of its records: it had room for many entries, and for few images."""
    rows, table = numbers_of(1_000), Table(NUMBERS)
    merged(table, rows, 0, 100)
    merged(table, rows, 0, 1_000)  # 900 of them new
    before = table.copy(table.all_rows()).words.copy()
    table.begin(50)
    for _ in range(2):
        table.merge(rows.words, rows.heap, 0, 500)
    table.merge(rows.words, rows.heap, 500, 1_000)
    (log,) = table._undo
    assert log.images_end == 1_000 <= len(log.images)
    table.undo()
    assert (table.copy(table.all_rows()).words == before).all()
