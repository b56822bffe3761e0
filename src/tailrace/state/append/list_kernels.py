"""Kernels of the unaligned store: find lists by (key, pane). Free functions over arrays.

Invariants
- A list's *order key* is made of its hash and its pane; the exact key decides (see ``arrange_kernels``). Lists of one
  order key lie side by side, in the order of their exact keys.
- ``gone`` says of each list whether it is there (0) or not: removed for good, or under an epoch that can be undone.

Threads: nothing is written but ``out``.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
# Compiled by numba, which infers every type from the arrays it is given.

from __future__ import annotations

import numpy as np

from tailrace.env.kernels.compile import inlined, kernel
from tailrace.state.layout import HASH, PANE
from tailrace.state.rows.arrange_kernels import compare_keys
from tailrace.state.rows.value_kernels import lower_bound


@kernel
def list_keys(words, instances, instance_bits, shards, shard_bits, out):
    """Order keys of (hash, pane): instance, then shard, then mixed bits."""
    for i in range(words.shape[0]):
        hash_ = words[i, HASH]
        x = np.uint64(hash_) ^ (np.uint64(words[i, PANE]) * np.uint64(0x9E3779B97F4A7C15))
        x ^= x >> np.uint64(32)
        x *= np.uint64(0xD6E8FEB86659FD93)
        x ^= x >> np.uint64(32)
        x *= np.uint64(0xD6E8FEB86659FD93)
        x ^= x >> np.uint64(32)
        key = x >> np.uint64(instance_bits + shard_bits)
        if instance_bits > 0:
            key |= (x % np.uint64(instances)) << np.uint64(64 - instance_bits)
        if shard_bits > 0:
            key |= np.uint64(hash_ % shards) << np.uint64(64 - instance_bits - shard_bits)
        out[i] = key


@inlined
def _lower_bound_near(keys, low, wanted):
    """First place from ``low`` on with a key of at least ``wanted``; near places are found fast."""
    step = 1
    high = low
    while high < keys.shape[0] and keys[high] < wanted:
        low = high + 1
        high += step
        step *= 2
    return lower_bound(keys, low, min(high, keys.shape[0]), wanted)


@kernel
def find_lists(
    keys, starts, gone, words, heap, targets, target_heap, target_keys, order, key_words, key_mask, out
):  # fmt: skip
    """For each target the number of its list, or -1. ``order``: targets by ascending order key."""
    at = 0
    for i in range(order.shape[0]):
        t = order[i]
        out[t] = -1
        at = _lower_bound_near(keys, at, target_keys[t])
        found = at
        while found < keys.shape[0] and keys[found] == target_keys[t]:
            if (
                gone[found] == 0
                and compare_keys(words, starts[found], heap, targets, t, target_heap, key_words, key_mask, True) == 0
            ):
                out[t] = found
                break
            found += 1


@kernel
def may_hold(prefixes, gone, target_keys, order, out):
    """Set ``out[t]`` where some list that is there has the upper 32 bits of target ``t``'s order key."""
    at = 0
    for i in range(order.shape[0]):
        t = order[i]
        wanted = np.uint32(target_keys[t] >> np.uint64(32))
        at = _lower_bound_near(prefixes, at, wanted)
        found = at
        while found < prefixes.shape[0] and prefixes[found] == wanted:
            if gone[found] == 0:
                out[t] = True
                break
            found += 1


@kernel
def lists_of_keys(prefixes, keys, gone, wanted, out):
    """Numbers of the lists that are there with one of these order keys (ascending, distinct), ascending.

    Searched in the upper halves of the keys, so that of ``keys``, which lie on disk, only single places are looked at.
    Returns how many there are, which may be more than ``out`` has room for.
    """
    at = 0
    count = 0
    for i in range(wanted.shape[0]):
        head = np.uint32(wanted[i] >> np.uint64(32))
        at = _lower_bound_near(prefixes, at, head)
        found = at
        while found < prefixes.shape[0] and prefixes[found] == head:
            if gone[found] == 0 and keys[found] == wanted[i]:
                if count < out.shape[0]:
                    out[count] = found
                count += 1
            found += 1
    return count
