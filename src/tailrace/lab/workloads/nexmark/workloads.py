"""Every NEXMark query as a workload of the lab, ``nexmark-q5`` and so on: generated events, each engine's version, the
oracle's answer cut down to what the stream can have said.

One feed of wide events with the columns of the kinds that the query asks about. What the generator and the queries must
agree on (how late events come, how long auctions live) follows from the parameters, and is none itself. Some queries
have a second workload, ``nexmark-q13-json`` and so on, whose events come as texts that engines parse; the files hold
the columns too, for the oracle alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyspark.sql import DataFrame

from tailrace.lab.registry import OURS, Batch, Files, Parameter, Settings, Value, Workload, register
from tailrace.lab.workloads.nexmark.answers import ANSWERS, closed
from tailrace.lab.workloads.nexmark.events.config import AUCTION_ID_LEAD, Config
from tailrace.lab.workloads.nexmark.events.generator import events as make_events
from tailrace.lab.workloads.nexmark.events.json_texts import with_texts
from tailrace.lab.workloads.nexmark.events.schema import (
    EVENT_SCHEMA,
    SCHEMAS,
    TEXT_SCHEMA,
    Kind,
    spark_schema,
    wide_name,
)
from tailrace.lab.workloads.nexmark.oracle import answer
from tailrace.lab.workloads.nexmark.params import Params
from tailrace.lab.workloads.nexmark.queries.registry import SPARK, TAILRACE
from tailrace.lab.workloads.nexmark.queries.texts import SPARK_TEXTS, TAILRACE_TEXTS
from tailrace.lab.workloads.nexmark.queries.version import Impossible, Version

FEED = "events"
PREFIX = "nexmark-"
AS_TEXTS = "-json"
Versions = Mapping[str, Version | Impossible]
VERSIONS: dict[str, Versions] = {OURS: TAILRACE, "spark-rocksdb": SPARK, "spark-memory": SPARK}
TEXT_VERSIONS: dict[str, Mapping[str, Version]] = {
    OURS: TAILRACE_TEXTS,
    "spark-rocksdb": SPARK_TEXTS,
    "spark-memory": SPARK_TEXTS,
}

_DEFAULTS = Params()
PARAMETERS = {
    "rate": Parameter(10_000, "events of a second of event time"),
    "out_of_order": Parameter(1, "events come scattered within groups of so many"),
    "window_ms": Parameter(_DEFAULTS.window_ms, "length of windows"),
    "slide_ms": Parameter(_DEFAULTS.slide_ms, "slide of the sliding ones"),
    "gap_ms": Parameter(_DEFAULTS.gap_ms, "gap that ends a session"),
    "active_people": Parameter(1_000, "people who bid at the same time"),
    "auctions_in_flight": Parameter(100, "auctions that are open at the same time"),
    "hot_auctions": Parameter(50, "of a hundred bids, those on the hot auction"),
    "hot_bidders": Parameter(75, "of a hundred bids, those of the hot bidder"),
    "hot_auction_batch": Parameter(100, "after so many auctions another one is hot"),
    "hot_bidder_batch": Parameter(100, "after so many people another one is hot"),
    "auctions": Parameter(3, "auctions that open for each person who joins"),
    "bids": Parameter(46, "bids for each person who joins"),
    "auction_lead": Parameter(AUCTION_ID_LEAD, "so many auctions that are yet to open may be bid on"),
    "bid_bytes": Parameter(100, "size of a bid, beside its channel and url"),
    "side_rows": Parameter(_DEFAULTS.side_rows, "rows of the bounded table that q13 joins with"),
    "first_event": Parameter(0, "number of the first event: as if the stream had run for so long before"),
}

_DESCRIPTIONS = {
    "q0": "bids as they are",
    "q1": "bids in another currency",
    "q2": "bids on some auctions",
    "q3": "who sells in a category, from some states: auctions meet people, for ever",
    "q4": "mean price that auctions of a category fetched",
    "q4-beam": "mean price that auctions of a category fetched, in sliding windows",
    "q5": "auctions with the most bids in sliding windows: counts, then the largest of a window",
    "q5-append": "auctions with the most bids in sliding windows, counted from rows that are kept",
    "q7": "each bidder's highest bids in tumbling windows",
    "q7-beam": "the highest bids of all in tumbling windows",
    "q7-session": "each bidder's highest bids in sessions",
    "q8": "people who sold in the window in which they joined",
    "q9": "winning bids of auctions",
    "q9-beam": "winning bids of auctions that reached their reserve",
    "q11": "bids of each bidder in sessions",
    "q11-median": "median price of each bidder's bids in sessions",
    "q12": "bids of each bidder, in update mode",
    "q13": "bids joined with a bounded table",
    "q14": "bids filtered and computed with",
    "q15": "bids, bidders and auctions of each day by price, in update mode",
    "q16": "bids, bidders and auctions of each day and channel by price, in update mode",
    "q17": "bids and prices of each auction and day, in update mode",
    "q18": "last bid of each bidder on each auction, in update mode",
    "q19": "highest bids of each auction, in update mode",
    "q20": "bids with their auctions of a category, for ever",
    "q20-kept": "bids with their auctions of a category, each when it comes: auctions alone are kept",
    "q21": "bids with the id of their channel",
    "q22": "bids with the parts of their url",
}

_KINDS = {
    "q3": (Kind.PERSON, Kind.AUCTION),
    "q8": (Kind.PERSON, Kind.AUCTION),
    **dict.fromkeys(("q4", "q4-beam", "q9", "q9-beam", "q20", "q20-kept"), (Kind.AUCTION, Kind.BID)),
}
"""What a query asks about, where that is not bids alone."""
_ENDING = ("q4-beam", "q9", "q9-beam")
"""Where auctions have their end as event time, if anything waits for the watermark."""


_OWN_DEFAULTS: Mapping[str, Mapping[str, Value]] = {"q20-kept": {"auction_lead": 0}}
"""Where a query's parameters begin elsewhere: a bid that is joined when it comes must come after its auction."""


def _parameters(query: str) -> dict[str, Parameter]:
    own = _OWN_DEFAULTS.get(query, {})
    return {name: replace(one, default=own.get(name, one.default)) for name, one in PARAMETERS.items()}


def params_of(values: Mapping[str, Value]) -> Params:
    """What the queries are asked with; right for events that ``config_of`` makes from the same values."""
    rate, group = int(values["rate"]), int(values["out_of_order"])
    config = config_of(values, seed=0)
    # Bids come for auctions that are yet to open, as many as the lead says.
    ahead = (-(-config.auction_id_lead // config.auction_proportion) + 1) * config.total_proportion + group
    return Params(
        window_ms=int(values["window_ms"]),
        slide_ms=int(values["slide_ms"]),
        gap_ms=int(values["gap_ms"]),
        side_rows=int(values["side_rows"]),
        watermark_delay_ms=-(-group * 1_000 // rate) + 1 if group > 1 else 0,
        # The generator draws lives of up to twice the time until all auctions in flight are replaced.
        auction_life_ms=2 * -(-(config.num_events_for_auctions + group) * 1_000 // rate) + 2 - (-ahead * 1_000 // rate),
    )


def config_of(values: Mapping[str, Value], seed: int) -> Config:
    return Config(
        seed=seed,
        first_event_rate=int(values["rate"]),
        next_event_rate=int(values["rate"]),
        out_of_order_group_size=int(values["out_of_order"]),
        num_active_people=int(values["active_people"]),
        num_in_flight_auctions=int(values["auctions_in_flight"]),
        hot_auction_percent=int(values["hot_auctions"]),
        hot_bidder_percent=int(values["hot_bidders"]),
        hot_auction_batch=int(values["hot_auction_batch"]),
        hot_bidder_batch=int(values["hot_bidder_batch"]),
        auction_proportion=int(values["auctions"]),
        bid_proportion=int(values["bids"]),
        auction_id_lead=int(values["auction_lead"]),
        avg_bid_byte_size=int(values["bid_bytes"]),
    )


def _schema(query: str) -> pa.Schema:
    kinds = _KINDS.get(query, (Kind.BID,))
    own = {wide_name(kind, name) for kind in kinds for name in SCHEMAS[kind].names}
    return pa.schema([field for field in EVENT_SCHEMA if field.name in own | {"number", "event_type", "dateTime"}])


def _inputs(query: str, settings: Settings) -> Iterator[Batch]:
    config, columns = config_of(settings.values, settings.seed), _schema(query).names
    first = int(settings.values["first_event"])
    for begin in range(0, settings.events, settings.rows):
        end = min(begin + settings.rows, settings.events)
        yield {FEED: make_events(config, first + begin, first + end, columns)}


def _text_inputs(query: str, settings: Settings) -> Iterator[Batch]:
    for batch in _inputs(query, settings):
        yield {FEED: with_texts(batch[FEED])}


def _run(version: Version, feeds: Mapping[str, DataFrame], values: Mapping[str, Value]) -> Any:
    return version.build(feeds[FEED], params_of(values)).writeStream.outputMode(version.mode.value)


def whole_answer(query: str, files: Files, values: Mapping[str, Value]) -> pa.Table:
    """What an engine must have said after these files and infinitely many more that add nothing."""
    return answer(query, _dataset(query, files), params_of(values))


def _dataset(query: str, files: Files) -> ds.Dataset:
    return ds.dataset([str(path) for path in files[FEED]], schema=_schema(query), format="parquet")


def watermark_ms(query: str, files: Files, values: Mapping[str, Value]) -> int:
    """By which windows have closed once these files are seen: the least of those of the query's kinds."""
    marks = []
    for kind in _KINDS.get(query, (Kind.BID,)):
        column = "auction_expires" if kind is Kind.AUCTION and query in _ENDING else "dateTime"
        rows = _dataset(query, files).to_table(columns=[column], filter=ds.field("event_type") == int(kind))
        marks.append(pc.max(rows[column].cast(pa.int64())).as_py() or 0)
    return int(min(marks)) - params_of(values).watermark_delay_ms


def _oracle(query: str, version: Version, files: Files, settings: Settings) -> pa.Table:
    """What this version must have said: engines may wait for different things before they say a row."""
    rows = whole_answer(query, files, settings.values)
    if version.closes_by is None:
        return rows
    held_back_ms = version.holds_back_ms(params_of(settings.values))
    return closed(rows, watermark_ms(query, files, settings.values) - held_back_ms, version.closes_by)


def _rest(version: Version, rows: DataFrame, values: Mapping[str, Value]) -> DataFrame:
    assert version.rest is not None
    return version.rest(rows, params_of(values))


def _finish(version: Version, rows: pa.Table, values: Mapping[str, Value]) -> pa.Table:
    return _newest(version.keys, version.finish(rows, params_of(values)))


def _newest(keys: tuple[str, ...], rows: pa.Table) -> pa.Table:
    """The last word on each key; all rows where there are no keys."""
    if not keys:
        return rows
    rows = rows.sort_by([("epoch", "ascending")])
    rows = rows.append_column("place", pa.array(np.arange(rows.num_rows)))
    places = rows.group_by(list(keys)).aggregate([("place", "max")])["place_max"]
    return rows.take(places).drop_columns(["place"])


def _workload(query: str) -> Workload:
    of_engine = {engine: versions[query] for engine, versions in VERSIONS.items()}
    able = {engine: one for engine, one in of_engine.items() if isinstance(one, Version)}
    return Workload(
        name=f"{PREFIX}{query}",
        description=f"NEXMark: {_DESCRIPTIONS[query]}",
        feeds={FEED: spark_schema(_schema(query))},
        inputs=partial(_inputs, query),
        queries={engine: partial(_run, one) for engine, one in able.items()},
        cannot={engine: one.why for engine, one in of_engine.items() if isinstance(one, Impossible)},
        oracles={engine: partial(_oracle, query, one) for engine, one in able.items()},
        rests={engine: partial(_rest, one) for engine, one in able.items() if one.rest is not None},
        finish={engine: partial(_finish, one) for engine, one in able.items()},
        parameters=_parameters(query),
        rows=200_000,
    )


def _text_workload(query: str) -> Workload:
    """The same question, of texts."""
    of_columns = _workload(query)
    return replace(
        of_columns,
        name=of_columns.name + AS_TEXTS,
        description=f"{of_columns.description}; events are texts of JSON, parsed by the engine",
        feeds={FEED: spark_schema(TEXT_SCHEMA)},
        inputs=partial(_text_inputs, query),
        queries={engine: partial(_run, versions[query]) for engine, versions in TEXT_VERSIONS.items()},
    )


register(*(_workload(query) for query in ANSWERS))
register(*(_text_workload(query) for query in TAILRACE_TEXTS))
