"""What Tailrace's versions do with bids that have met their auctions: functions over Arrow tables. Pure.

They run in the state servers, which import this module by its name: so it knows pyarrow and numpy alone.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def gains(rows: pa.Table, state: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Q4: of each auction, how much its best price has grown, and whether it has its first bid.

    State is the best price of each auction so far.
    """
    ids, place = np.unique(state["id"].to_numpy(), return_index=True)
    place = place[np.searchsorted(ids, rows["id"].to_numpy())]
    known = pc.is_valid(state["best"]).to_numpy()
    before = pc.fill_null(state["best"], 0).to_numpy()
    best = before.copy()
    np.maximum.at(best, place, rows["price"].to_numpy())
    category = np.zeros(len(best), np.int64)
    category[place] = rows["category"].to_numpy()
    changed = np.flatnonzero((best > before) | ~known)
    columns = {
        "category": category[changed],
        "gain": (best - before)[changed],
        "auctions": (~known)[changed].astype(np.int64),
    }
    return pa.table(columns), pa.table({"id": state["id"], "best": pa.array(best)})


def with_auctions(rows: pa.Table, state: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Q20: bids with their auctions. State is each auction; rows are bids, and auctions where ``seller`` is there.

    A bid whose auction is not known is left out, and nothing is kept of it.
    """
    ids = state["auction"].to_numpy()
    place = np.searchsorted(ids, rows["auction"].to_numpy())
    opened = pc.is_valid(rows["seller"]).to_numpy()
    known = pc.is_valid(state["seller"]).to_numpy()
    source = np.where(known, np.arange(len(ids)), -1)
    source[place[opened]] = len(ids) + np.flatnonzero(opened)
    whole = pa.concat_tables([state, rows.select(state.column_names).cast(state.schema)])
    bids = np.flatnonzero(~opened & (source[place] >= 0))
    of_bid = rows.drop_columns([name for name in state.column_names if name != "auction"]).take(pa.array(bids))
    of_auction = whole.take(pa.array(source[place[bids]]))
    columns = {**{name: of_bid[name] for name in of_bid.column_names}, **{n: of_auction[n] for n in state.column_names}}
    return pa.table(columns), whole.take(pa.array(source[source >= 0]))


def winners(bids: pa.Table) -> pa.Table:
    """Q9 of Beam: of each auction the highest bid, of equal ones the first, where that has reached the reserve."""
    kept = bids.take(pa.array(_best(bids)))
    return kept.filter(pa.array(kept["price"].to_numpy() >= kept["reserve"].to_numpy()))


def closing_prices(bids: pa.Table) -> pa.Table:
    """Q4 of Beam: the same, of which only the price is asked."""
    return winners(bids)


def _best(bids: pa.Table) -> np.ndarray:
    """The place of each auction's best bid."""
    ids, price, number = (bids[name].to_numpy() for name in ("id", "price", "number"))
    times = bids["bid_dateTime"].cast(pa.int64()).to_numpy()
    order = np.lexsort((number, times, -price, ids))
    sorted_ids = ids[order]
    first = np.ones(len(order), bool)
    first[1:] = sorted_ids[1:] != sorted_ids[:-1]
    best: np.ndarray = order[first]
    return best
