"""Randomness as a function of (seed, event id, number of the draw): no state, so any event can be made anywhere, alone.

An event's key is a mix of seed and id; its draws are the splitmix64 stream that begins at the key. Every field owns
fixed draw numbers, so that a field has the same value whether or not other fields are made. Only integer arithmetic and
single IEEE operations are used: the values do not depend on the processor or on a mathematics library.
"""

from __future__ import annotations

from decimal import Decimal, localcontext
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Words = NDArray[np.uint64]

_GAMMA = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1
_M1 = np.uint64(0xBF58476D1CE4E5B9)
_M2 = np.uint64(0x94D049BB133111EB)
_S30, _S27, _S31, _S32 = (np.uint64(bits) for bits in (30, 27, 31, 32))

_PRICE_BITS = 12
_PRICE_DECADES = 6


def _mix(words: Words) -> Words:
    """The finisher of splitmix64, in place."""
    words ^= words >> _S30
    words *= _M1
    words ^= words >> _S27
    words *= _M2
    words ^= words >> _S31
    return words


def event_keys(seed: int, event_ids: Ints) -> Words:
    start = _mix(np.array([seed & _MASK], np.uint64))[0]
    keys = event_ids.astype(np.uint64) * np.uint64(_GAMMA)
    keys += start
    return _mix(keys)


def draw(keys: Words, number: int) -> Words:
    """One 64-bit draw for each key."""
    return _mix(keys + np.uint64((number + 1) * _GAMMA & _MASK))


def draw_words(keys: Words, first: int, count: int) -> Words:
    """``count`` draws for each key, with the numbers from ``first`` on: one row a key."""
    steps = np.array([(first + i + 1) * _GAMMA & _MASK for i in range(count)], np.uint64)
    return _mix(keys[:, None] + steps)


def below(words: Words, bound: int | Ints) -> Ints:
    """Uniform in 0 .. bound-1, for bounds below 2^32: the draw's upper half, scaled."""
    scale = np.uint64(bound) if isinstance(bound, int) else bound.astype(np.uint64)
    return ((words >> _S32) * scale >> _S32).view(np.int64)


def below_long(words: Words, bounds: Ints) -> Ints:
    """Uniform in 0 .. bound-1 for any bound; slower."""
    return (words % bounds.astype(np.uint64)).view(np.int64)


@lru_cache(maxsize=1)
def _powers() -> tuple[NDArray[np.float64], ...]:
    """100 * 10^(6u) as a product of three factors, each looked up by twelve bits of u."""
    tables = []
    with localcontext() as context:
        context.prec = 50
        for digit in (1, 2, 3):
            step = Decimal(10) ** (Decimal(_PRICE_DECADES) / (Decimal(2) ** (_PRICE_BITS * digit)))
            power = Decimal(100) if digit == 1 else Decimal(1)
            table = []
            for _ in range(1 << _PRICE_BITS):
                table.append(float(power))
                power *= step
            tables.append(np.array(table))
    return tuple(tables)


def prices(words: Words) -> Ints:
    """Log-uniform on 100 .. 100,000,000 cents."""
    mask = np.uint64((1 << _PRICE_BITS) - 1)
    high, middle, low = _powers()
    value = high[(words >> np.uint64(64 - _PRICE_BITS)).view(np.int64)]
    value = value * middle[(words >> np.uint64(64 - 2 * _PRICE_BITS) & mask).view(np.int64)]
    value *= low[(words >> np.uint64(64 - 3 * _PRICE_BITS) & mask).view(np.int64)]
    return np.floor(value + 0.5).astype(np.int64)
