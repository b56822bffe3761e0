"""What the validator asks the database: downtimes, and when production times were set."""

from __future__ import annotations

import psycopg
import pyarrow as pa

from tailrace.errors import TailraceError
from tailrace.lab.espbench.envelope import taken_apart
from tailrace.lab.espbench.validator.compare import Results
from tailrace.lab.espbench.validator.downtimes import Downtime

_DOWNTIMES = """
    SELECT "WP_ID", extract(epoch FROM "WP_DOWNTIME_START") * 1000, extract(epoch FROM "WP_DOWNTIME_END") * 1000
    FROM workplace ORDER BY "WP_ID", "WP_DT_ID" DESC
"""
_SET = """
    SELECT w.place, extract(epoch FROM CASE w.flag WHEN 1 THEN "POL_START_TS" ELSE "POL_END_TS" END) * 1000
    FROM wanted w JOIN production_order_line l
    ON (l."POL_O_ID", l."POL_OL_NUMBER", l."POL_NUMBER") = (w.o_id, w.ol_number, w.number)
    ORDER BY w.place
"""


def downtimes(url: str) -> dict[int, Downtime]:
    """The first one of each workplace, as it is now."""
    with _connected(url) as connection:
        rows = connection.execute(_DOWNTIMES).fetchall()
    return {place: Downtime(int(start), int(end)) for place, start, end in rows}


def production_times(url: str, stream: pa.Table) -> Results:
    """Of each message whose column is set: its id, its row as it came, and the moment that the column has."""
    parts = taken_apart(stream["value"].combine_chunks(), "stream 3")
    rows, ids = parts["row"].to_pylist(), parts["id"].to_pylist()
    with _connected(url) as connection, connection.cursor() as cursor:
        cursor.execute(
            "CREATE TEMP TABLE wanted (place int, o_id int, ol_number int, number int, flag int) ON COMMIT DROP"
        )
        with cursor.copy("COPY wanted FROM STDIN") as copy:
            copy.write("".join(f"{place}\t{row}\n" for place, row in enumerate(rows)))
        cursor.execute("ANALYZE wanted")
        found = [(place, int(at)) for place, at in cursor.execute(_SET).fetchall() if at is not None]
    return Results([rows[place] for place, _ in found], [ids[place] for place, _ in found], [at for _, at in found])


def _connected(url: str) -> psycopg.Connection:
    try:
        connection = psycopg.connect(url, options="-c timezone=UTC")
    except psycopg.Error as error:
        raise TailraceError(f"the database does not answer: {error}") from error
    return connection
