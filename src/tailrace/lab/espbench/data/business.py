"""The business data: TPC-C's tables without its warehouses and districts, and those of production.

``as_original`` keeps what the original generator does and its paper does not say: carriers are never known, customers
of orders are small numbers that repeat and are nobody's, and the table of histories is made although nothing reads it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tailrace.lab.espbench.data.columns import DIGITS, decimals, same, texts, texts_with_word

DISTRICTS = 10
"""Of a warehouse."""
CUSTOMERS = 3_000
"""Of a district, and as many orders."""
ITEMS = 100_000
DELIVERED = 2_100
"""The first orders of a district are delivered."""
SYLLABLES = ("BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING")
ALWAYS_DOWN, NEVER_DOWN = 2, 1
"""Workplaces: machine 2 is in its planned downtime for the whole run, machine 1 never is."""
DOWNTIME_S = 2_000_000
"""Before and after now: 23 days."""

_SECONDS = pa.timestamp("s")


@dataclass(frozen=True)
class Business:
    """What the tables are made from. ``now``: seconds since 1970; dates of orders are this moment, in UTC."""

    scale: int = 3
    seed: int = 0
    now: int = 0
    as_original: bool = False

    @property
    def workplaces(self) -> int:
        return 10 * self.scale + 1

    def tables(self) -> Iterator[tuple[str, pa.Table]]:
        """Each table's name and rows, one after the other: no two of them need to be in memory at once."""
        rng = np.random.default_rng(self.seed)
        yield "customer", self._customers(rng)
        if self.as_original:
            yield "history", self._histories(rng)
        yield "item", self._items(rng)
        lines_of_order = rng.integers(5, 16, len(self.order_ids()))
        yield "order", self._orders(rng, lines_of_order)
        yield from self._lines(rng, lines_of_order)
        yield "workplace", self._workplaces(rng)

    def order_ids(self) -> np.ndarray:
        """Ids of orders and of customers: the number in the district, the district, the warehouse."""
        warehouse, district, number = np.meshgrid(
            np.arange(1, self.scale + 1), np.arange(1, DISTRICTS + 1), np.arange(1, CUSTOMERS + 1), indexing="ij"
        )
        return (number + 10_000 * district + 1_000_000 * warehouse).ravel().astype(np.int32)

    def _date(self, rows: int) -> pa.Array:
        return same(self.now, rows, pa.int64()).cast(_SECONDS)

    def _customers(self, rng: np.random.Generator) -> pa.Table:
        ids = self.order_ids()
        rows = len(ids)
        credit = pa.array(["GC", "BC"]).take(pa.array(rng.integers(0, 2, rows)))
        return pa.table(
            {
                "C_ID": ids,
                "C_FIRST": texts(rng, rows, 8, 16),
                "C_MIDDLE": same("OE", rows, pa.string()),
                "C_LAST": _last_names(rng, ids % 10_000),
                "C_STREET_1": texts(rng, rows, 10, 20),
                "C_STREET_2": texts(rng, rows, 10, 20),
                "C_CITY": texts(rng, rows, 10, 20),
                "C_STATE": texts(rng, rows, 2, 2),
                "C_ZIP": texts(rng, rows, 9, 9),
                "C_PHONE": pa.compute.binary_join_element_wise("0", texts(rng, rows, 15, 15, DIGITS), ""),
                "C_SINCE": self._date(rows),
                "C_CREDIT": credit,
                "C_CREDIT_LIM": decimals(np.full(rows, 5_000_000), 12),
                "C_DISCOUNT": decimals(rng.integers(0, 5_001, rows), 4, 4),
                "C_BALANCE": decimals(np.full(rows, -1_000), 12),
                "C_YTD_PAYMENT": decimals(np.full(rows, 1_000), 12),
                "C_PAYMENT_CNT": same(1, rows, pa.int32()),
                "C_DELIVERY_CNT": same(0, rows, pa.int32()),
                "C_DATA": texts(rng, rows, 300, 500),
            }
        )

    def _histories(self, rng: np.random.Generator) -> pa.Table:
        ids = self.order_ids()
        rows = len(ids)
        amount = decimals(np.full(rows, 1_000), 6)
        return pa.table(
            {"H_C_ID": ids, "H_DATE": self._date(rows), "H_AMOUNT": amount, "H_DATA": texts(rng, rows, 12, 24)}
        )

    def _items(self, rng: np.random.Generator) -> pa.Table:
        return pa.table(
            {
                "I_ID": np.arange(1, ITEMS + 1, dtype=np.int32),
                "I_IM_ID": rng.integers(1, 10_001, ITEMS, dtype=np.int32),
                "I_NAME": texts(rng, ITEMS, 14, 24),
                "I_PRICE": decimals(rng.integers(100, 10_001, ITEMS), 5),
                "I_DATA": texts_with_word(rng, ITEMS, 26, 50, b"original", 10),
            }
        )

    def _orders(self, rng: np.random.Generator, lines: np.ndarray) -> pa.Table:
        ids = self.order_ids()
        rows = len(ids)
        if self.as_original:
            customers, delivered = rng.integers(1, CUSTOMERS + 1, rows, dtype=np.int32), np.zeros(rows, bool)
        else:
            of_district = rng.permuted(ids.reshape(-1, CUSTOMERS), axis=1)
            customers, delivered = of_district.ravel(), ids % 10_000 <= DELIVERED
        return pa.table(
            {
                "O_ID": ids,
                "O_C_ID": customers,
                "O_ENTRY_D": self._date(rows),
                "O_CARRIER_ID": pa.array(rng.integers(1, 11, rows, dtype=np.int32), mask=~delivered),
                "O_OL_CNT": lines.astype(np.int32),
                "O_ALL_LOCAL": same(1, rows, pa.int32()),
            }
        )

    def _lines(self, rng: np.random.Generator, lines_of_order: np.ndarray) -> Iterator[tuple[str, pa.Table]]:
        orders = np.repeat(self.order_ids(), lines_of_order)
        numbers = line_numbers(lines_of_order)
        rows = len(orders)
        items = rng.integers(1, ITEMS + 1, rows, dtype=np.int32)
        delivered = orders % 10_000 <= DELIVERED
        dates = pa.array(np.full(rows, self.now), mask=~delivered).cast(_SECONDS)
        amounts = np.where(delivered, rng.integers(10, 10_001, rows), 0)
        line = {"OL_O_ID": orders, "OL_NUMBER": numbers, "OL_I_ID": items, "OL_SUPPLY_W_ID": orders // 1_000_000}
        more = {"OL_DELIVERY_ID": dates, "OL_QUANTITY": same(5, rows, pa.int32()), "OL_AMOUNT": decimals(amounts, 6)}
        yield "order_line", pa.table({**line, **more, "OL_DIST_INFO": texts(rng, rows, 24, 24)})
        yield (
            "production_order",
            pa.table({"PO_O_ID": orders, "PO_OL_NUMBER": numbers, "PO_DATE": self._date(rows)}),
        )
        never = pa.nulls(rows, _SECONDS)
        yield (
            "production_order_line",
            pa.table(
                {
                    "POL_O_ID": orders,
                    "POL_OL_NUMBER": numbers,
                    "POL_NUMBER": same(1, rows, pa.int32()),
                    "POL_I_ID": items,
                    "POL_QUANTITY": same(1, rows, pa.int32()),
                    "POL_WP_ID": rng.integers(0, self.workplaces, rows, dtype=np.int32),
                    "POL_START_TS": never,
                    "POL_END_TS": never,
                }
            ),
        )

    def _workplaces(self, rng: np.random.Generator) -> pa.Table:
        ids = np.arange(self.workplaces, dtype=np.int32)
        down = rng.integers(0, 5, len(ids)) < 2
        down[ALWAYS_DOWN], down[NEVER_DOWN] = True, False
        around = np.where(down, DOWNTIME_S, 0)
        start, end = (pa.array(self.now + sign * around).cast(_SECONDS) for sign in (-1, 1))
        number = same(0, len(ids), pa.int32())
        return pa.table({"WP_ID": ids, "WP_DT_ID": number, "WP_DOWNTIME_START": start, "WP_DOWNTIME_END": end})


def line_numbers(lines_of_order: np.ndarray) -> np.ndarray:
    """1 to n for each order of n lines, one order after the other."""
    starts = np.repeat(np.cumsum(lines_of_order) - lines_of_order, lines_of_order)
    numbers: np.ndarray = np.arange(1, len(starts) + 1) - starts
    return numbers.astype(np.int32)


def _last_names(rng: np.random.Generator, numbers: np.ndarray) -> pa.Array:
    """The first thousand customers of a district have each name once; the others' names are not uniform."""
    rows = len(numbers)
    constant = rng.integers(0, 256)
    uneven = ((rng.integers(0, 256, rows) | rng.integers(0, 1_000, rows)) + constant) % 1_000
    chosen = np.where(numbers <= 1_000, numbers - 1, uneven)
    names = [SYLLABLES[n // 100] + SYLLABLES[n // 10 % 10] + SYLLABLES[n % 10] for n in range(1_000)]
    return pa.array(names).take(pa.array(chosen))
