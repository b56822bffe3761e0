"""Lookup tables: tables that live elsewhere and are asked for the rows of the keys that come, and for no others.

``tailrace.table.redis``, ``.parquet``, ``.sqlite`` and ``.dbapi`` describe one; ``stream.join(table, on=...)`` asks it.
A table has at most one row for a key. Descriptions are frozen, and what they hold of secrets is in no text that is made
of them. Nothing is opened here: a table is read by the state servers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from tailrace.api.duration import Duration, parse_duration
from tailrace.errors import AnalysisError
from tailrace.ids import Micros

_REDIS_PORT = 6379
_PARAM_STYLES = ("qmark", "numeric", "named", "format", "pyformat")
_LOSSES = ("wait", "fail")
KEYS_PLACE = "{keys}"


@dataclass(frozen=True)
class LookupTable:
    """``shown``: what it is called in plans and errors, without any secret. ``schema``: None where files tell it.

    ``options`` are what its backend needs, plain data; ``connect`` is the user's function, of a DB-API table.
    """

    backend: str
    keys: tuple[str, ...]
    shown: str
    retry: Micros
    max_age: Micros | None = None  # for how long a copy of an answer is used; None: for as long as it stays
    schema: object = None
    options: Mapping[str, object] = field(default_factory=dict, repr=False)
    connect: Callable[[], object] | None = field(default=None, repr=False)
    columns: tuple[str, ...] | None = None  # those that are wanted; None: all
    text_keys: bool = False  # it is asked by the text of its keys, so that types without one text cannot be keys
    one_value: str | None = None  # where a row has one column beside its keys: what to do to have more


def redis(
    url: str,
    key: str | Sequence[str],
    schema: object,
    *,
    prefix: str = "",
    separator: str = ":",
    layout: str | None = None,
    onConnectionLoss: str = "wait",
    retry: Duration = "30 seconds",
    timeout: Duration = "5 seconds",
    maxAge: Duration | None = "1 minute",
) -> LookupTable:
    """A table in Redis. A row's Redis key is ``prefix`` and the key column's text, several joined by ``separator``.

    ``schema``: the other columns, as DDL. ``layout``: ``"string"``, where the value is the text of the one column, or
    ``"hash"``, where each column is a field of a hash; by default the first for one column and the second for more.
    ``url``: ``redis://[user:password@]host[:port][/database]``, or ``rediss://`` for TLS.

    ``onConnectionLoss``: ``"wait"`` for the server to come back, at most ``retry``, or ``"fail"`` at once. A query that
    fails loses nothing: started again, it goes on. ``timeout``: of one answer. ``maxAge``: a copy of a row, or of the
    answer that there is none, is used for so long at most, then the table is asked again; None: for as long as there is
    room for it.

    >>> campaigns = tr.table.redis("redis://localhost", key="ad_id", schema="campaign_id string")
    """
    where = "table.redis"
    address = _redis_address(url)
    if layout not in (None, "string", "hash"):
        raise AnalysisError(f"{where}: layout must be 'string' or 'hash', but is {layout!r}")
    for name, text in (("prefix", prefix), ("separator", separator)):
        if not isinstance(text, str):
            raise AnalysisError(f"{where}: {name} must be a string, but is {text!r}")
    return LookupTable(
        **_common("redis", key, onConnectionLoss, retry, maxAge),
        shown=f"Redis {address['host']}:{address['port']}/{address['database']}"
        + (f", keys {prefix}..." if prefix else ""),
        schema=schema,
        options={
            **address,
            "prefix": prefix,
            "separator": separator,
            "layout": layout,
            "timeout_s": parse_duration(timeout, f"{where}: timeout") / 1e6,
        },
        text_keys=True,
        one_value="use layout='hash'" if layout == "string" else None,
    )


def parquet(
    path: str,
    key: str | Sequence[str],
    *,
    columns: Sequence[str] | None = None,
    onConnectionLoss: str = "wait",
    retry: Duration = "30 seconds",
) -> LookupTable:
    """A table in Parquet files, a file, a folder or a URI that all executors can read. ``columns``: all by default.

    Each state server brings it into the order of its keys once, when it starts, in a file of its own on disk; rows are
    looked up there. So the table is as it was when the query was started.
    """
    where = "table.parquet"
    if not isinstance(path, str) or not path:
        raise AnalysisError(f"{where}: path must be the path or URI of Parquet files, but is {path!r}")
    if columns is not None and (isinstance(columns, str) or not all(isinstance(name, str) for name in columns)):
        raise AnalysisError(f"{where}: columns takes a list of names, but got {columns!r}")
    return LookupTable(
        **_common("parquet", key, onConnectionLoss, retry),
        shown=f"Parquet {_without_user(path)}",
        options={"path": path},
        columns=None if columns is None else tuple(columns),
    )


def dbapi(
    connect: Callable[[], object],
    query: str,
    key: str | Sequence[str],
    schema: object,
    *,
    paramstyle: str = "qmark",
    batch: int = 500,
    onConnectionLoss: str = "wait",
    retry: Duration = "30 seconds",
    maxAge: Duration | None = "1 minute",
) -> LookupTable:
    """A table behind a database module (PEP 249). ``connect`` makes a connection; it is called in the state servers.

    ``query`` gives rows with the key columns and those of ``schema``, by these names. Its ``{keys}`` becomes one
    placeholder for each key that is asked for, in the module's ``paramstyle``, at most ``batch`` at a time; of several
    key columns, one ``(?, ?)`` each. ``maxAge``: as for ``redis``.

    >>> campaigns = tr.table.dbapi(
    ...     lambda: sqlite3.connect("/data/ads.db", check_same_thread=False),
    ...     "select ad_id, campaign_id from ads where ad_id in ({keys})",
    ...     key="ad_id", schema="campaign_id bigint")
    """
    where = "table.dbapi"
    if not callable(connect):
        raise AnalysisError(
            f"{where}: connect must be a function that makes a connection, but got {type(connect).__name__}: give "
            f"lambda: module.connect(...); it is called in the state servers, which have their own environment"
        )
    if not isinstance(query, str) or query.count(KEYS_PLACE) != 1:
        raise AnalysisError(
            f"{where}: query must have {KEYS_PLACE} once, where the keys that are asked for go, as in 'select id, name "
            f"from names where id in ({KEYS_PLACE})', but is {query!r}"
        )
    if paramstyle not in _PARAM_STYLES:
        raise AnalysisError(f"{where}: paramstyle must be one of {', '.join(_PARAM_STYLES)}, but is {paramstyle!r}")
    if not isinstance(batch, int) or isinstance(batch, bool) or not 1 <= batch <= 100_000:
        raise AnalysisError(f"{where}: batch must be an integer from 1 to 100000, but is {batch!r}")
    return LookupTable(
        **_common("dbapi", key, onConnectionLoss, retry, maxAge),
        shown=f"query {' '.join(query.split())}",
        schema=schema,
        options={"query": query, "paramstyle": paramstyle, "batch": batch},
        connect=connect,
    )


def sqlite(
    path: str,
    table: str,
    key: str | Sequence[str],
    schema: object,
    *,
    onConnectionLoss: str = "wait",
    retry: Duration = "30 seconds",
    maxAge: Duration | None = "1 minute",
) -> LookupTable:
    """A table of a SQLite file, at a path that all executors can read. It is opened for reading only.

    ``schema``: the other columns, as DDL. Where the key has an index in the file, a row costs a look into it; without
    one SQLite reads the whole table for every batch. Another program may write the file meanwhile: rows that are
    copied by then keep their old values for ``maxAge`` at most, as for ``redis``.

    >>> campaigns = tr.table.sqlite("/data/ads.db", "ads", key="ad_id", schema="campaign_id bigint")
    """
    where = "table.sqlite"
    for name, text in (("path", path), ("table", table)):
        if not isinstance(text, str) or not text or "{" in text:
            raise AnalysisError(f"{where}: {name} must be a name without braces, but is {text!r}")
    return LookupTable(
        **_common("sqlite", key, onConnectionLoss, retry, maxAge),
        shown=f"SQLite table {table} of {path}",
        schema=schema,
        options={"path": path, "table": table},
        text_keys=True,
    )


def _common(
    backend: str, key: object, on_loss: object, retry: Duration, max_age: Duration | None = None
) -> dict[str, Any]:
    """What all tables have, checked."""
    where = f"table.{backend}"
    return {
        "backend": backend,
        "keys": _keys(key, where),
        "retry": _retry(on_loss, retry, where),
        "max_age": None if max_age is None else parse_duration(max_age, f"{where}: maxAge"),
    }


def _keys(key: object, where: str) -> tuple[str, ...]:
    names = [key] if isinstance(key, str) else key
    if not isinstance(names, list | tuple) or not names or not all(isinstance(name, str) and name for name in names):
        raise AnalysisError(f"{where}: key names the key column, or a list of them, but is {key!r}: key='id'")
    return tuple(names)


def _retry(on_loss: object, retry: Duration, where: str) -> Micros:
    if on_loss not in _LOSSES:
        raise AnalysisError(
            f"{where}: onConnectionLoss must be 'wait' (for at most retry) or 'fail', but is {on_loss!r}"
        )
    span = parse_duration(retry, f"{where}: retry", zero_ok=True)
    return Micros(0) if on_loss == "fail" else span


def _redis_address(url: object) -> dict[str, object]:
    """Host, port, database, TLS, user and password. What is wrong is said without the URL: it may hold a password."""
    advice = "a URL such as redis://localhost:6379/0, with user:password@ before the host where there is a password"
    if not isinstance(url, str):
        raise AnalysisError(f"table.redis: url must be {advice}, but is a {type(url).__name__}")
    wrong = None
    try:
        parts = urlsplit(url)
        port = _REDIS_PORT if parts.port is None else parts.port
        given = {**{name: values[-1] for name, values in parse_qs(parts.query).items()}}
        database = int(parts.path.strip("/") or given.pop("db", "0"))
    except ValueError:
        wrong = "its port or its database is no number (a password must be percent-encoded)"
    else:
        if parts.scheme not in ("redis", "rediss"):
            wrong = "it begins neither with redis:// nor with rediss://"
        elif not parts.hostname:
            wrong = "it has no host"
        elif given:
            wrong = "it has parameters behind a question mark, and none are known but db"
    if wrong is not None:
        raise AnalysisError(f"table.redis: url must be {advice}, but {wrong}") from None
    return {
        "host": parts.hostname,
        "port": port,
        "database": database,
        "tls": parts.scheme == "rediss",
        "user": unquote(parts.username or ""),
        "password": unquote(parts.password or ""),
    }


def _without_user(path: str) -> str:
    """A URI without what may be a secret in it: user, password, and parameters."""
    head, mark, rest = path.partition("://")
    if not mark:
        return path
    place, slash, below = rest.partition("?")[0].partition("/")
    return f"{head}://{place.rpartition('@')[2]}{slash}{below}"
