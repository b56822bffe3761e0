"""Every query as one SQL text over the whole input, with the columns of its answer.

The texts are for DuckDB and see three views (``oracle`` makes them): ``person``, ``auction`` and ``bid`` with the
columns of ``schema``, but with times as integers (milliseconds; ``t`` instead of ``dateTime``) and with ``number``, the
place in the stream. ``{p.window_ms}`` and the like are filled from ``Params``.

Where engines differ, these rules hold here. Windows are [start, end), aligned to the epoch. A session is [first row,
last row + gap), and rows belong to one session if less than the gap lies between neighbours. Order of arrival is
``number``: of equal bids the earlier wins (Q9, Q19), of equal times the later (Q18). Averages of cents are cut to whole
cents unless said otherwise. Where the suites differ, the plain name is Flink's rule and ``-beam`` is Beam's; the plain
Q7 is FlowKV's, and Q8 is Beam's alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.errors import TailraceError
from tailrace.lab.workloads.nexmark.events.schema import AUCTION_SCHEMA, BID_SCHEMA, TIME

_LONG, _TEXT = pa.int64(), pa.string()
_MONEY = pa.decimal128(23, 3)
_WINDOW = {"window_start": TIME, "window_end": TIME}
_BID_NUMBERS = {"auction": _LONG, "bidder": _LONG, "price": _LONG}
_BID = {**_BID_NUMBERS, "dateTime": TIME, "extra": _TEXT}
_ALL_OF_BID = {field.name: field.type for field in BID_SCHEMA}
_DAY_MS = 86_400_000


@dataclass(frozen=True)
class Answer:
    sql: str
    columns: pa.Schema

    @property
    def windowed(self) -> bool:
        return "window_end" in self.columns.names


def _answer(sql: str, **columns: pa.DataType) -> Answer:
    return Answer(sql, pa.schema(columns))


_EURO = "CAST(price * CAST('0.908' AS DECIMAL(4, 3)) AS DECIMAL(23, 3))"
_TUMBLING = "{0} - {0} % {{p.window_ms}} AS window_start, {0} - {0} % {{p.window_ms}} + {{p.window_ms}} AS window_end"
_SLIDING = "unnest(range({0} - {0} % {{p.slide_ms}}, {0} - {{p.window_ms}}, -{{p.slide_ms}}))"
"""Starts of the windows that hold a time, the last one first."""

_SESSIONS = """
    marked AS (
        SELECT *, coalesce(t - lag(t) OVER by_time >= {p.gap_ms}, true) AS opens
        FROM bid WINDOW by_time AS (PARTITION BY bidder ORDER BY t, number)
    ),
    numbered AS (
        SELECT *, sum(opens::INT) OVER (PARTITION BY bidder ORDER BY t, number ROWS UNBOUNDED PRECEDING) AS session
        FROM marked
    )
"""

_BEAM_WINNERS = """
    SELECT a.*, b.auction, b.bidder, b.price, b.t AS bid_t, b.extra AS bid_extra
    FROM auction a JOIN bid b ON b.auction = a.id AND b.t < a.expires AND b.price >= a.reserve
    QUALIFY row_number() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.t, b.number) = 1
"""
_FLINK_WINNERS = """
    SELECT a.*, b.auction, b.bidder, b.price, b.t AS bid_t, b.extra AS bid_extra
    FROM auction a JOIN bid b ON b.auction = a.id AND b.t BETWEEN a.t AND a.expires
    QUALIFY row_number() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.t, b.number) = 1
"""
_WINNER_COLUMNS = {
    **{field.name: field.type for field in AUCTION_SCHEMA},
    **_BID_NUMBERS,
    "bid_dateTime": TIME,
    "bid_extra": _TEXT,
}
_WINNERS = """
    SELECT id, itemName, description, initialBid, reserve, t AS dateTime, expires, seller, category, extra,
           auction, bidder, price, bid_t AS bid_dateTime, bid_extra
    FROM ({0})
"""

_Q5 = (
    """
    WITH panes AS (  -- of the greatest width that no window edge cuts
        SELECT auction, t - t % gcd({p.window_ms}, {p.slide_ms}) AS pane, count(*) AS n FROM bid GROUP BY ALL
    ),
    placed AS (SELECT auction, n, """
    + _SLIDING.format("pane")
    + """ AS window_start FROM panes),
    counts AS (SELECT auction, window_start, sum(n)::BIGINT AS num FROM placed GROUP BY ALL)
    SELECT auction, num, window_start, window_start + {p.window_ms} AS window_end
    FROM counts QUALIFY num = max(num) OVER (PARTITION BY window_start)
"""
)

_RANKS = {1: "price < 10000", 2: "price >= 10000 AND price < 1000000", 3: "price >= 1000000"}


def _counts(what: str, name: str) -> str:
    ranks = [f"count({what}) FILTER ({condition}) AS rank{rank}_{name}" for rank, condition in _RANKS.items()]
    return ", ".join([f"count({what}) AS total_{name}", *ranks])


_FIGURES = ", ".join(
    [_counts("*", "bids"), _counts("DISTINCT bidder", "bidders"), _counts("DISTINCT auction", "auctions")]
)
_FIGURE_COLUMNS = {
    f"{rank}_{name}": _LONG for name in ("bids", "bidders", "auctions") for rank in ("total", "rank1", "rank2", "rank3")
}
_DAY = f"strftime(make_timestamp_ms(t - t % {_DAY_MS}), '%Y-%m-%d') AS day"

_Q20 = _answer(
    "SELECT b.auction, b.bidder, b.price, b.channel, b.url, b.t AS bid_dateTime, b.extra AS bid_extra, "
    "a.itemName, a.description, a.initialBid, a.reserve, a.t AS auction_dateTime, a.expires, a.seller, a.category, "
    "a.extra AS auction_extra FROM bid b JOIN auction a ON b.auction = a.id WHERE a.category = {p.category}",
    **{name: _ALL_OF_BID[name] for name in ("auction", "bidder", "price", "channel", "url")},
    bid_dateTime=TIME,
    bid_extra=_TEXT,
    itemName=_TEXT,
    description=_TEXT,
    initialBid=_LONG,
    reserve=_LONG,
    auction_dateTime=TIME,
    expires=TIME,
    seller=_LONG,
    category=_LONG,
    auction_extra=_TEXT,
)

ANSWERS: dict[str, Answer] = {
    "q0": _answer("SELECT auction, bidder, price, t AS dateTime, extra FROM bid", **_BID),
    "q1": _answer(
        f"SELECT auction, bidder, {_EURO} AS price, t AS dateTime, extra FROM bid", **{**_BID, "price": _MONEY}
    ),
    "q2": _answer("SELECT auction, price FROM bid WHERE auction % {p.auction_skip} = 0", auction=_LONG, price=_LONG),
    "q3": _answer(
        "SELECT name, city, state, a.id FROM auction a JOIN person p ON a.seller = p.id "
        "WHERE category = {p.category} AND state IN ('OR', 'ID', 'CA')",
        name=_TEXT,
        city=_TEXT,
        state=_TEXT,
        id=_LONG,
    ),
    # The average of what auctions fetched so far, whether or not they have closed.
    "q4": _answer(
        f"SELECT category, (sum(price) // count(*))::BIGINT AS price FROM ({_FLINK_WINNERS}) GROUP BY category",
        category=_LONG,
        price=_LONG,
    ),
    # The mean of what auctions fetched that closed within a sliding window, rounded.
    "q4-beam": _answer(
        f"""
        WITH winners AS ({_BEAM_WINNERS}),
             closed AS (SELECT category, price, {_SLIDING.format("(expires - 1)")} AS window_start FROM winners)
        SELECT category, ((2 * sum(price) + count(*)) // (2 * count(*)))::BIGINT AS price,
               window_start, window_start + {{p.window_ms}} AS window_end
        FROM closed GROUP BY category, window_start
        """,
        category=_LONG,
        price=_LONG,
        **_WINDOW,
    ),
    "q5": _answer(_Q5, auction=_LONG, num=_LONG, **_WINDOW),
    "q5-append": _answer(_Q5, auction=_LONG, num=_LONG, **_WINDOW),
    # Each bidder's highest bids in a window; all of them when several are equal.
    "q7": _answer(
        f"SELECT auction, bidder, price, t AS dateTime, extra, {_TUMBLING.format('t')} FROM bid "
        "QUALIFY price = max(price) OVER (PARTITION BY bidder, window_start)",
        **_BID,
        **_WINDOW,
    ),
    # The window's highest bids, of any bidder.
    "q7-beam": _answer(
        f"SELECT auction, bidder, price, t AS dateTime, extra, {_TUMBLING.format('t')} FROM bid "
        "QUALIFY price = max(price) OVER (PARTITION BY window_start)",
        **_BID,
        **_WINDOW,
    ),
    "q7-session": _answer(
        f"""
        WITH {_SESSIONS}
        SELECT auction, bidder, price, t AS dateTime, extra,
               min(t) OVER whole AS window_start, max(t) OVER whole + {{p.gap_ms}} AS window_end
        FROM numbered WINDOW whole AS (PARTITION BY bidder, session) QUALIFY price = max(price) OVER whole
        """,
        **_BID,
        **_WINDOW,
    ),
    # A row for each auction that a new person opened in the window of joining.
    "q8": _answer(
        f"""
        WITH joined AS (SELECT id, name, {_TUMBLING.format("t")} FROM person),
             opened AS (SELECT seller, reserve, t - t % {{p.window_ms}} AS window_start FROM auction)
        SELECT id, name, reserve, j.window_start, window_end
        FROM joined j JOIN opened o ON j.id = o.seller AND j.window_start = o.window_start
        """,
        id=_LONG,
        name=_TEXT,
        reserve=_LONG,
        **_WINDOW,
    ),
    "q9": _answer(_WINNERS.format(_FLINK_WINNERS), **_WINNER_COLUMNS),
    "q9-beam": _answer(_WINNERS.format(_BEAM_WINNERS), **_WINNER_COLUMNS),
    "q11": _answer(
        f"""
        WITH {_SESSIONS}
        SELECT bidder, count(*) AS num, min(t) AS window_start, max(t) + {{p.gap_ms}} AS window_end
        FROM numbered GROUP BY bidder, session
        """,
        bidder=_LONG,
        num=_LONG,
        **_WINDOW,
    ),
    # With an even number of bids, the mean of the two in the middle.
    "q11-median": _answer(
        f"""
        WITH {_SESSIONS}
        SELECT bidder, median(price) AS price, min(t) AS window_start, max(t) + {{p.gap_ms}} AS window_end
        FROM numbered GROUP BY bidder, session
        """,
        bidder=_LONG,
        price=pa.float64(),
        **_WINDOW,
    ),
    # One window over everything: its rows are the last ones that an updating engine gives.
    "q12": _answer("SELECT bidder, count(*) AS num FROM bid GROUP BY bidder", bidder=_LONG, num=_LONG),
    "q13": _answer(
        "SELECT auction, bidder, price, t AS dateTime, (auction % {p.side_rows})::VARCHAR AS value FROM bid",
        **_BID_NUMBERS,
        dateTime=TIME,
        value=_TEXT,
    ),
    "q14": _answer(
        f"""
        SELECT auction, bidder, {_EURO} AS price,
               CASE WHEN t // 3600000 % 24 BETWEEN 8 AND 18 THEN 'dayTime'
                    WHEN t // 3600000 % 24 <= 6 OR t // 3600000 % 24 >= 20 THEN 'nightTime'
                    ELSE 'otherTime' END AS bidTimeType,
               t AS dateTime, extra, length(extra) - length(replace(extra, 'c', '')) AS c_counts
        FROM bid WHERE {_EURO} > 1000000 AND {_EURO} < 50000000
        """,
        auction=_LONG,
        bidder=_LONG,
        price=_MONEY,
        bidTimeType=_TEXT,
        dateTime=TIME,
        extra=_TEXT,
        c_counts=_LONG,
    ),
    "q15": _answer(f"SELECT {_DAY}, {_FIGURES} FROM bid GROUP BY day", day=_TEXT, **_FIGURE_COLUMNS),
    "q16": _answer(
        f"SELECT channel, {_DAY}, max(strftime(make_timestamp_ms(t), '%H:%M')) AS minute, {_FIGURES} "
        "FROM bid GROUP BY channel, day",
        channel=_TEXT,
        day=_TEXT,
        minute=_TEXT,
        **_FIGURE_COLUMNS,
    ),
    "q17": _answer(
        f"SELECT auction, {_DAY}, {_counts('*', 'bids')}, min(price) AS min_price, max(price) AS max_price, "
        "(sum(price) // count(*))::BIGINT AS avg_price, sum(price)::BIGINT AS sum_price FROM bid GROUP BY auction, day",
        auction=_LONG,
        day=_TEXT,
        **dict.fromkeys(("total_bids", "rank1_bids", "rank2_bids", "rank3_bids"), _LONG),
        **dict.fromkeys(("min_price", "max_price", "avg_price", "sum_price"), _LONG),
    ),
    "q18": _answer(
        "SELECT auction, bidder, price, channel, url, t AS dateTime, extra FROM bid "
        "QUALIFY row_number() OVER (PARTITION BY bidder, auction ORDER BY t DESC, number DESC) = 1",
        **_ALL_OF_BID,
    ),
    "q19": _answer(
        "SELECT auction, bidder, price, channel, url, t AS dateTime, extra, "
        "row_number() OVER (PARTITION BY auction ORDER BY price DESC, number) AS rank_number "
        "FROM bid QUALIFY rank_number <= {p.top}",
        **_ALL_OF_BID,
        rank_number=_LONG,
    ),
    "q20": _Q20,
    "q20-kept": _Q20,
    "q21": _answer(
        """
        SELECT * FROM (
            SELECT auction, bidder, price, channel,
                   CASE lower(channel) WHEN 'apple' THEN '0' WHEN 'google' THEN '1' WHEN 'facebook' THEN '2'
                        WHEN 'baidu' THEN '3' ELSE nullif(regexp_extract(url, 'channel_id=([^&]*)', 1), '') END
                   AS channel_id
            FROM bid
        ) WHERE channel_id IS NOT NULL
        """,
        **_BID_NUMBERS,
        channel=_TEXT,
        channel_id=_TEXT,
    ),
    "q22": _answer(
        "SELECT auction, bidder, price, channel, split_part(url, '/', 4) AS dir1, split_part(url, '/', 5) AS dir2, "
        "split_part(url, '/', 6) AS dir3 FROM bid",
        **_BID_NUMBERS,
        channel=_TEXT,
        dir1=_TEXT,
        dir2=_TEXT,
        dir3=_TEXT,
    ),
}


def closed(rows: pa.Table, watermark_ms: int, column: str = "window_end") -> pa.Table:
    """Of a windowed answer, the rows of windows that the watermark has closed: those that end at or before it.

    ``column`` is where a row's window ends; it may also be an auction's ``expires``. Right for a stream that
    dropped no row as late.
    """
    if column not in rows.column_names:
        raise TailraceError(f"no column {column} in {', '.join(rows.column_names)}: the answer has no windows to close")
    limit = pa.scalar(watermark_ms, pa.timestamp("ms", tz="UTC")).cast(rows.schema.field(column).type)
    return rows.filter(pc.less_equal(rows[column], limit))
