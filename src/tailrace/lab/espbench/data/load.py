"""Business data into PostgreSQL: tables made where they are missing, else emptied, and copied in whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import psycopg
from psycopg import sql

from tailrace.errors import TailraceError
from tailrace.lab.espbench.data.files import table_file

TABLES: dict[str, tuple[str, str]] = {
    # name: columns, key
    "customer": (
        '"C_ID" int, "C_FIRST" varchar(16), "C_MIDDLE" char(2), "C_LAST" varchar(16), "C_STREET_1" varchar(20), '
        '"C_STREET_2" varchar(20), "C_CITY" varchar(20), "C_STATE" char(2), "C_ZIP" char(9), "C_PHONE" varchar(16), '
        '"C_SINCE" timestamp, "C_CREDIT" char(2), "C_CREDIT_LIM" numeric(12,2), "C_DISCOUNT" numeric(4,4), '
        '"C_BALANCE" numeric(12,2), "C_YTD_PAYMENT" numeric(12,2), "C_PAYMENT_CNT" int, "C_DELIVERY_CNT" int, '
        '"C_DATA" varchar(500)',
        '"C_ID"',
    ),
    "item": (
        '"I_ID" int, "I_IM_ID" int, "I_NAME" varchar(24), "I_PRICE" numeric(5,2), "I_DATA" varchar(50)',
        '"I_ID"',
    ),
    "order": (
        '"O_ID" int, "O_C_ID" int, "O_ENTRY_D" timestamp, "O_CARRIER_ID" int, "O_OL_CNT" int, "O_ALL_LOCAL" int',
        '"O_ID"',
    ),
    "order_line": (
        '"OL_O_ID" int, "OL_NUMBER" int, "OL_I_ID" int, "OL_SUPPLY_W_ID" int, "OL_DELIVERY_ID" timestamp, '
        '"OL_QUANTITY" int, "OL_AMOUNT" numeric(6,2), "OL_DIST_INFO" char(24)',
        '"OL_O_ID", "OL_NUMBER"',
    ),
    "production_order": (
        '"PO_O_ID" int, "PO_OL_NUMBER" int, "PO_DATE" timestamp',
        '"PO_O_ID", "PO_OL_NUMBER"',
    ),
    "production_order_line": (
        '"POL_O_ID" int, "POL_OL_NUMBER" int, "POL_NUMBER" int, "POL_I_ID" int, "POL_QUANTITY" int, "POL_WP_ID" int, '
        '"POL_START_TS" timestamp, "POL_END_TS" timestamp',
        '"POL_O_ID", "POL_OL_NUMBER", "POL_NUMBER"',
    ),
    "workplace": (
        '"WP_ID" int, "WP_DT_ID" int, "WP_DOWNTIME_START" timestamp, "WP_DOWNTIME_END" timestamp',
        '"WP_ID", "WP_DT_ID"',
    ),
}
OF_QUERY = {"q4": ("workplace",), "q5": ("production_order_line",)}
"""What a query's run needs anew."""
_PIECE = 1 << 20


def load(url: str, folder: Path, tables: Sequence[str], progress: Callable[[str, int, int], None]) -> dict[str, int]:
    """All tables in one transaction: the rows of each. Ctrl-C leaves the database as it was."""
    for table in tables:
        if not (folder / table_file(table)).is_file():
            raise TailraceError(
                f"{folder / table_file(table)} is missing: make the files of a run by `tailrace espbench generate`"
            )
    rows: dict[str, int] = {}
    try:
        with psycopg.connect(url) as connection, connection.cursor() as cursor:
            for number, table in enumerate(tables):
                progress(f"loading {table}", number, len(tables))
                columns, key = TABLES[table]
                name = sql.Identifier(table)
                made = sql.SQL("CREATE TABLE IF NOT EXISTS {} (" + columns + ", PRIMARY KEY (" + key + "))")
                cursor.execute(made.format(name))
                cursor.execute(sql.SQL("TRUNCATE {}").format(name))
                with (
                    (folder / table_file(table)).open("rb") as file,
                    cursor.copy(sql.SQL("COPY {} FROM STDIN").format(name)) as copy,
                ):
                    while piece := file.read(_PIECE):
                        copy.write(piece)
                rows[table] = cursor.rowcount
        with psycopg.connect(url, autocommit=True) as connection:
            for table in tables:  # else the first queries plan as for an empty table
                connection.execute(sql.SQL("VACUUM ANALYZE {}").format(sql.Identifier(table)))
    except psycopg.Error as error:
        raise TailraceError(f"the business data cannot be loaded: {error}") from error
    return rows
