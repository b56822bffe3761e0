"""Which engine can run which query, and how: an entry for every query of ``answers.ANSWERS``, a version or a reason."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pyspark.sql import DataFrame

from tailrace.lab.workloads.nexmark.params import Params
from tailrace.lab.workloads.nexmark.queries import joins, lookups, rolling, sessions, stateless, windows
from tailrace.lab.workloads.nexmark.queries.version import Impossible, Mode, Version

_LISTS = (
    "keeps every row of the window in one list a key; reads and writes the whole list in every batch that adds to it"
)
_FOREVER = "keeps both sides for ever"
_READS_THE_DAY = "counts what is distinct from the rows of the day, which it reads again in every epoch"


def _auction_life_ms(params: Params) -> int:
    """A join that forgets rows gives the next operator a watermark that is behind by as much as it keeps."""
    return params.auction_life_ms


def _a_millisecond(params: Params) -> int:
    """Spark's windows close with their end, sessions of no length just after it."""
    return 1


def _update(build: Callable[[DataFrame, Params], Any], *keys: str, **more: Any) -> Version:
    return Version(build, Mode.UPDATE, keys, **more)


def _windowed(build: Callable[[DataFrame, Params], Any], **more: Any) -> Version:
    return Version(build, closes_by="window_end", **more)


SPARK: Mapping[str, Version | Impossible] = {
    "q0": Version(stateless.q0),
    "q1": Version(stateless.q1),
    "q2": Version(stateless.q2),
    "q3": Version(joins.q3_spark, note=_FOREVER),
    "q4": Impossible(
        "a join and two aggregations in a row run in append mode only, and the last of them has no window"
    ),
    "q4-beam": _windowed(joins.q4_beam_spark, holds_back_ms=_auction_life_ms),
    "q5": _windowed(
        windows.q5_spark,
        finish=windows.flat,
        note="the second stage lists all counts of a window",
    ),
    "q5-append": _windowed(windows.q5_spark, finish=windows.flat),
    "q7": _windowed(windows.q7_spark, finish=windows.flat, note=_LISTS),
    "q7-beam": _windowed(windows.q7_beam_spark, finish=windows.flat, note=_LISTS),
    "q7-session": _windowed(sessions.q7_session_spark, finish=sessions.ends_given_back, note=_LISTS),
    "q8": Version(windows.q8_spark, finish=windows.flat),
    "q9": Version(
        joins.q9_spark,
        closes_by="expires",
        holds_back_ms=_auction_life_ms,
        note="says the winner after the close, not every leader before it",
    ),
    "q9-beam": Version(joins.q9_beam_spark, closes_by="expires", holds_back_ms=_auction_life_ms),
    "q11": _windowed(sessions.q11_spark, finish=sessions.ends_given_back),
    "q11-median": _windowed(
        sessions.q11_median_spark,
        finish=sessions.ends_given_back,
        note="counts of all prices in one map a key",
    ),
    "q12": _update(rolling.q12_spark, "bidder"),
    "q13": Version(stateless.q13_spark, note="the table is broadcast to every task"),
    "q14": Version(stateless.q14),
    "q15": _update(rolling.q15_spark, "day", note="eight sets in one row of state"),
    "q16": _update(rolling.q16_spark, "channel", "day", note="eight sets in one row of state"),
    "q17": _update(rolling.q17_spark, "auction", "day"),
    "q18": _update(rolling.q18_spark, "bidder", "auction"),
    "q19": _update(
        rolling.q19_spark, "auction", "rank_number", note="says the whole list again when one bid enters it"
    ),
    "q20": Version(joins.q20_spark, note=_FOREVER),
    "q20-kept": Version(joins.q20_spark, note=_FOREVER),
    "q21": Version(stateless.q21),
    "q22": Version(stateless.q22),
}


_STATELESS = Impossible("it keeps no state, so there is nothing to compare: Spark does all of it on both")

TAILRACE: Mapping[str, Version | Impossible] = {
    "q0": _STATELESS,
    "q1": _STATELESS,
    "q2": _STATELESS,
    "q3": Version(joins.q3_tailrace, finish=joins.without_seller, note=_FOREVER),
    "q4": _update(joins.q4_tailrace, "category", rest=joins.divided, note="the sink divides"),
    "q4-beam": _windowed(
        joins.q4_beam_tailrace,
        holds_back_ms=_a_millisecond,
        rest=joins.shifted_back,
        note="the sink divides",
    ),
    "q5": _windowed(windows.q5_tailrace, finish=windows.flat),
    "q5-append": _windowed(windows.q5_append_tailrace, finish=windows.flat, note="keeps the bids, not the counts"),
    "q7": _windowed(windows.q7_tailrace, finish=windows.flat),
    "q7-beam": _windowed(windows.q7_beam_tailrace, finish=windows.flat),
    "q7-session": _windowed(sessions.q7_session_tailrace, finish=sessions.ends_given_back),
    "q8": _windowed(
        joins.q8_tailrace,
        finish=joins.without_times,
        note="says pairs when the window ends, Spark at once",
    ),
    "q9": _update(joins.q9_tailrace, "id", finish=joins.winners, note="says every leader, Spark the winner"),
    "q9-beam": Version(
        joins.q9_beam_tailrace, closes_by="expires", holds_back_ms=_a_millisecond, finish=joins.beam_winners
    ),
    "q11": _windowed(sessions.q11_tailrace, finish=sessions.ends_given_back),
    "q11-median": _windowed(sessions.q11_median_tailrace, finish=sessions.ends_given_back),
    "q12": _update(rolling.q12_tailrace, "bidder"),
    "q13": Version(
        lookups.q13_tailrace, finish=lookups.without_key, note="the table is looked up, and not held by every task"
    ),
    "q14": _STATELESS,
    "q15": _update(rolling.q15_tailrace, "day", rest=rolling.of_the_day, note=_READS_THE_DAY),
    "q16": _update(rolling.q16_tailrace, "channel", "day", rest=rolling.of_the_day, note=_READS_THE_DAY),
    "q17": _update(rolling.q17_tailrace, "auction", "day", rest=rolling.with_mean, note="the sink divides"),
    "q18": _update(rolling.q18_tailrace, "bidder", "auction", finish=rolling.without_rank),
    "q19": _update(
        rolling.q19_tailrace,
        "auction",
        "rank_number",
        finish=rolling.with_long_rank,
        note="says the whole list again when one bid enters it",
    ),
    "q20": Version(joins.q20_tailrace, note=_FOREVER),
    "q20-kept": Version(joins.q20_kept_tailrace, note="keeps auctions alone; a bid must come after its auction"),
    "q21": _STATELESS,
    "q22": _STATELESS,
}
