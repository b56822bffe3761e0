"""Query 5's updates, set by set or one by one: what each system that runs Python calls for its records."""

from __future__ import annotations

import psycopg
import pyarrow as pa

COLUMNS = {1: "POL_START_TS", 0: "POL_END_TS"}
"""By the flag: production begins, production ends."""
_STAGE = "CREATE TEMP TABLE IF NOT EXISTS stage (o_id int, ol_number int, number int, flag int) ON COMMIT DELETE ROWS"
_KEY = '("POL_O_ID", "POL_OL_NUMBER", "POL_NUMBER")'
_NOW = "clock_timestamp() AT TIME ZONE 'UTC'"


class Production:
    """Sets timestamps of production order lines to the database's clock. One connection; not thread-safe."""

    def __init__(self, database: str, set_wise: bool = True) -> None:
        self._connection = psycopg.connect(database, autocommit=True)
        self._set_wise = set_wise

    def update(self, rows: pa.Array) -> None:
        """``rows``: as they came, order, line, number and flag, tab separated."""
        if self._set_wise:
            self._update_set(rows)
        else:
            self._update_each(rows)

    def _update_set(self, rows: pa.Array) -> None:
        if not len(rows):
            return
        with self._connection.transaction(), self._connection.cursor() as cursor:
            cursor.execute(_STAGE)
            with cursor.copy("COPY stage FROM STDIN") as copy:
                copy.write("\n".join(rows.to_pylist()) + "\n")
            for flag, column in COLUMNS.items():
                cursor.execute(
                    f'UPDATE production_order_line SET "{column}" = {_NOW} FROM stage '
                    f"WHERE {_KEY} = (o_id, ol_number, number) AND flag = {flag}"
                )

    def _update_each(self, rows: pa.Array) -> None:
        for row in rows.to_pylist():
            *key, flag = (int(value) for value in row.split("\t"))
            update = f'UPDATE production_order_line SET "{COLUMNS[flag]}" = {_NOW} WHERE {_KEY} = (%s, %s, %s)'
            self._connection.execute(update, key)

    def close(self) -> None:
        self._connection.close()
