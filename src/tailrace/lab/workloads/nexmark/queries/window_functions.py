"""What Tailrace's versions do with the rows of a window: functions from Arrow table to Arrow table. Pure.

They run in the state servers, which import this module by its name: so it knows pyarrow and numpy alone.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray


def most_bids(counts: pa.Table) -> pa.Table:
    """Q5: of the counts of a window, the largest; all of them when several are equal."""
    return counts.filter(pc.equal(counts["num"], pc.max(counts["num"])))


def bids_of_each_auction(bids: pa.Table) -> pa.Table:
    """Q5-Append: counts the rows themselves."""
    counts = bids.group_by("auction").aggregate([([], "count_all")])
    return counts.select(["auction", "count_all"]).rename_columns(["auction", "num"])


def highest(bids: pa.Table) -> pa.Table:
    """Q7 of Beam: the highest bids of the window, of any bidder."""
    return bids.filter(pc.equal(bids["price"], pc.max(bids["price"])))


def highest_of_each_bidder(bids: pa.Table) -> pa.Table:
    """Q7: each bidder's highest bids; all of them when several are equal."""
    return bids.filter(highest_of_each(_numbers(bids["bidder"]), bids["price"].to_numpy()))


def highest_of_each_session(bids: pa.Table) -> pa.Table:
    """Q7-Session: each session's highest bids. Its bids lie together, and a bidder's sessions begin at other times."""
    starts = pc.struct_field(bids["window"], "start").cast(pa.int64()).to_numpy()
    bidders, price = bids["bidder"].to_numpy(), bids["price"].to_numpy()
    another = (starts[1:] != starts[:-1]) | (bidders[1:] != bidders[:-1])
    session = np.concatenate([np.zeros(min(len(bids), 1), np.int64), np.cumsum(another)])
    return bids.filter(highest_of_each(session, price))


def _numbers(values: pa.Array | pa.ChunkedArray) -> NDArray[np.int64]:
    """Equal values get equal numbers, from 0 on."""
    whole = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    numbers: NDArray[np.int64] = whole.dictionary_encode().indices.to_numpy().astype(np.int64)
    return numbers


def highest_of_each(group: NDArray[np.int64], price: NDArray[np.int64]) -> pa.Array:
    """Which prices are the highest of their group; groups are small numbers."""
    best = np.full(int(group.max(initial=-1)) + 1, np.iinfo(np.int64).min)
    np.maximum.at(best, group, price)
    return pa.array(price == best[group])
