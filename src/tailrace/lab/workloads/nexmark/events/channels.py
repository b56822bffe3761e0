"""The channels that bids come by: four hot ones and ten thousand others, each with an url fixed by the seed."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.lab.workloads.nexmark.events.draws import below, draw, event_keys
from tailrace.lab.workloads.nexmark.events.strings import random_strings

HOT_CHANNELS = ("Google", "Facebook", "Baidu", "Apple")
COLD_CHANNELS = 10_000

_CHANNEL_SEED = 0x6368616E6E656C
"""Keeps the channels' draws apart from the events' draws of the same seed."""
_PATH_PARTS = 3
_HAS_ID = 0


def _reversed_bits(values: np.ndarray) -> np.ndarray:
    """Absolute value of the 32-bit reversal, read as a signed number."""
    turned = np.zeros(len(values), np.int64)
    for bit in range(32):
        turned |= (values >> bit & 1) << (31 - bit)
    signed = np.where(turned >= 1 << 31, turned - (1 << 32), turned)
    return np.abs(signed)


@lru_cache(maxsize=8)
def channel_table(seed: int) -> dict[str, pa.Array]:
    """``channel`` and ``url``: the hot ones first, then ``channel-0`` and so on."""
    total = len(HOT_CHANNELS) + COLD_CHANNELS
    number = np.arange(total, dtype=np.int64) - len(HOT_CHANNELS)
    keys = event_keys(seed ^ _CHANNEL_SEED, np.arange(total, dtype=np.int64))
    parts = [random_strings(keys, 100 * (part + 1), 5, filler="_") for part in range(_PATH_PARTS)]
    url = pc.binary_join_element_wise("https://www.nexmark.com", *parts, "item.htm?query=1", "/")
    marked = (number >= 0) & (below(draw(keys, _HAS_ID), 10) > 0)
    ids = pa.array(_reversed_bits(np.maximum(number, 0))).cast(pa.string())
    suffix = pc.if_else(pa.array(marked), pc.binary_join_element_wise("&channel_id", ids, "="), "")
    cold = pc.binary_join_element_wise("channel", pa.array(number).cast(pa.string()), "-").slice(len(HOT_CHANNELS))
    return {
        "channel": pa.concat_arrays([pa.array(HOT_CHANNELS, pa.string()), cold]),
        "url": pc.binary_join_element_wise(url, suffix, ""),
    }
