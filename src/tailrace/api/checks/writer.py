"""Checks of what a query writes to: which formats can be written epoch by epoch, and what ``foreach`` takes."""

from __future__ import annotations

from tailrace.api.table_options import TABLE_FORMATS
from tailrace.errors import AnalysisError

FILE_FORMATS = ("parquet", "json", "csv", "orc", "text", "avro", "xml")
"""Those whose output is a folder of files: an epoch is a folder of its own, published by one step."""
OWN_FORMATS = ("memory", "console", "noop")

_MERGE = "merge or overwrite by the epoch's number there"
_ADVICE = {
    "delta": "use .foreachBatch(function) and there rows.write.format('delta').option('txnAppId', query).option("
    "'txnVersion', epoch).mode('append').save(path): Delta passes over an epoch that it has",
    "iceberg": f"use .foreachBatch(function) and {_MERGE}",
    "hudi": "use .foreachBatch(function) and upsert there, with the group columns as record key",
    "jdbc": "use .format('postgresql') for that database, .format('dbapi') with the Python module of another one, or "
    ".foreachBatch(function), and write rows and epoch in one transaction there",
    "kafka": "use .foreachBatch(function) and rows.write.format('kafka') there, where readers can bear them twice",
}


def check_format(name: str, place: str, *, tables: bool = False) -> None:
    """Refuses what is no format of files, nor of ``tables``. ``place``: the user's call, for the error."""
    known = (*FILE_FORMATS, *OWN_FORMATS, *(TABLE_FORMATS if tables else ()))
    if name.lower() in known:
        return
    advice = _ADVICE.get(name.lower(), f"use .foreachBatch(function) and {_MERGE}")
    raise AnalysisError(
        f"{place}: format {name!r} writes no plain files, and Tailrace would make a table of its own of every epoch, "
        f"or write an epoch twice when it is replayed: {advice}. Formats that Tailrace writes itself: "
        f"{', '.join(known)}"
    )


def check_row_writer(writer: object) -> None:
    """Refuses what ``foreach`` cannot take, as PySpark does."""
    if callable(writer):
        return
    if not hasattr(writer, "process"):
        raise AnalysisError(
            f"foreach takes a function of a row, or an object with a method process(row) and perhaps "
            f"open(partition, epoch) and close(error), but got {writer!r}"
        )
    for name in ("open", "process", "close"):
        if not callable(getattr(writer, name, len)):
            raise AnalysisError(f"foreach: {name} of {writer!r} must be a method")
