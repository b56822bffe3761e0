"""Names of what lies in a state location. docs/reference/log-format.md lists them; stored data holds them, so they
may not change.

Numbers are zero-padded so that names sort as the numbers do. Pure functions.
"""

from __future__ import annotations

import re

LOG_PREFIX = "log/"
OBJECT_PREFIX = "objects/"
ROWS_PREFIX = "rows/"
EPOCH_CONFIG_PREFIX = "epoch-config/"
PLAN_NAME = "plan.json"
COUNTS_PREFIX = "row-counts/"
SINKS_PREFIX = "sinks/"
SPARK_RECORD_PREFIX = "spark-logs/"
SAVEPOINT_PREFIX = "savepoints/"

_ENTRY = re.compile(r"log/(\d{20})\.json")
_DELTA = re.compile(r"objects/(\d{20})-[0-9a-f]{16}-\d{4}-.+\.delta")
_ROWS = re.compile(r"rows/(\d{20})-([0-9a-f]{16})-[0-9-]+\.rows")
_EPOCH_CONFIG = re.compile(r"epoch-config/(\d{20})\.json")
_SINK_MANIFEST = re.compile(r"sinks/[a-z]+/(\d{20})\.json")
_SPARK_RECORD = re.compile(r"spark-logs/(\d{20})-(\d{20})\.json")
_SAVEPOINT = re.compile(r"savepoints/(.+)-[0-9a-f]{8}\.json")
_SERVER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_RUN = re.compile(r"[0-9a-f]{16}")


def entry_name(number: int) -> str:
    return f"{LOG_PREFIX}{number:020d}.json"


def entry_number(name: str) -> int | None:
    """The number of a log entry; ``None`` where the name is not one."""
    found = _ENTRY.fullmatch(name)
    return int(found.group(1)) if found else None


def delta_name(epoch: int, run: str, try_: int, server: str | int) -> str:
    """One server's object of one epoch and try. Writing it twice writes the same bytes."""
    return f"{OBJECT_PREFIX}{epoch:020d}-{_checked(run, server)}-{try_:04d}-{server}.delta"


def delta_epoch(name: str) -> int | None:
    """The epoch of a delta; ``None`` where the name is not one."""
    found = _DELTA.fullmatch(name)
    return int(found.group(1)) if found else None


def compaction_name(first: int, last: int, run: str, server: str | int, unique: str) -> str:
    """A merge of several objects. ``unique``: one run may compact the same epochs twice, for other shards."""
    return f"{OBJECT_PREFIX}{last:020d}-{_checked(run, server)}-{server}-from{first:020d}-{unique}.compacted"


def rows_name(epoch: int, run: str, try_: int, partition: int, attempt: int, piece: int) -> str:
    """Some of the rows that one attempt of a task set aside: an attempt writes each piece once."""
    if not _RUN.fullmatch(run):
        raise ValueError(f"not a run id: {run!r}")
    return f"{ROWS_PREFIX}{epoch:020d}-{run}-{try_:04d}-{partition:08d}-{attempt}-{piece:06d}.rows"


def rows_of(name: str) -> tuple[int, str] | None:
    """The epoch and the run of an object of rows; ``None`` where the name is not one."""
    found = _ROWS.fullmatch(name)
    return (int(found.group(1)), found.group(2)) if found else None


def epoch_config_name(epoch: int) -> str:
    """The config of an epoch whose manifest comes later than its rows."""
    return f"{EPOCH_CONFIG_PREFIX}{epoch:020d}.json"


def epoch_config_epoch(name: str) -> int | None:
    """The epoch of such a record; ``None`` where the name is not one."""
    found = _EPOCH_CONFIG.fullmatch(name)
    return int(found.group(1)) if found else None


def counts_name(fence: int) -> str:
    """How many rows epochs had, as the run counts them whose fence has this number."""
    return f"{COUNTS_PREFIX}{fence:020d}.json"


def sink_prefix(sink: str) -> str:
    """Where the manifests of one of a query's sinks lie."""
    return f"{SINKS_PREFIX}{sink}/"


def sink_manifest_name(sink: str, epoch: int) -> str:
    """Which files a file sink publishes of an epoch."""
    return f"{sink_prefix(sink)}{epoch:020d}.json"


def sink_manifest_epoch(name: str) -> int | None:
    """The epoch of a sink's manifest; ``None`` where the name is not one."""
    found = _SINK_MANIFEST.fullmatch(name)
    return int(found.group(1)) if found else None


def spark_record_name(epoch: int, fence: int) -> str:
    """What Spark's own logs hold of an epoch, as recorded by the run whose fence has this number."""
    return f"{SPARK_RECORD_PREFIX}{epoch:020d}-{fence:020d}.json"


def spark_record_parts(name: str) -> tuple[int, int] | None:
    """Epoch and fence of such a record; ``None`` where the name is not one."""
    found = _SPARK_RECORD.fullmatch(name)
    return (int(found.group(1)), int(found.group(2))) if found else None


def savepoint_name(name: str, unique: str) -> str:
    """``unique``: a savepoint that is deleted and made again is another one."""
    return f"{SAVEPOINT_PREFIX}{name}-{unique}.json"


def savepoint_of(name: str) -> str | None:
    """The savepoint's own name; ``None`` where the object is none."""
    found = _SAVEPOINT.fullmatch(name)
    return found.group(1) if found else None


def _checked(run: str, server: str | int) -> str:
    if not _RUN.fullmatch(run):
        raise ValueError(f"not a run id: {run!r}")
    if not _SERVER.fullmatch(str(server)):
        raise ValueError(f"not a server's name: {server!r}")
    return run
