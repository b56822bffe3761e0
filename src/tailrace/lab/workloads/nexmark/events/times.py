"""Event numbers to event times, ids and back: arithmetic over whole arrays, nothing random.

A *sequence number* counts all events of all generators in the order they are output. A generator's *event number*
counts its own. The *adjusted* number is the event number after the out-of-order rule; it decides the event's id and
time. All functions are pure; arrays are int64 and are not kept.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from tailrace.lab.workloads.nexmark.events.config import SCATTER, Config, RateShape

Ints = NDArray[np.int64]

_MICROS = 1_000_000
_SINE_STEPS = 10


def delay_us(rate: int, generators: int) -> int:
    """Event time between two events of one generator."""
    return (_MICROS + rate // 2) // rate * generators


@dataclass(frozen=True, eq=False)
class Timeline:
    """Steps of constant delay that repeat; one endless step when the rate does not change."""

    delays_us: Ints
    first_events: Ints
    """The event number, within a period, that each step begins with."""
    offsets_ms: Ints
    """Where each step begins, within a period."""
    period_events: int
    period_ms: int


@lru_cache(maxsize=64)
def timeline(config: Config) -> Timeline:
    first, then, generators = config.first_event_rate, config.next_event_rate, config.num_event_generators
    if first == then:
        delays, step_sec = [delay_us(first, generators)], 0
    else:
        if config.rate_shape is RateShape.SQUARE:
            rates = [first, then]
        else:
            mid, amplitude = (first + then) / 2, (first - then) / 2
            angles = [2 * math.pi * step / _SINE_STEPS for step in range(_SINE_STEPS)]
            rates = [math.floor(mid + amplitude * math.cos(angle) + 0.5) for angle in angles]
        delays = [delay_us(rate, generators) for rate in rates]
        step_sec = -(-config.rate_period_sec // len(rates))
    events = [step_sec * _MICROS // delay for delay in delays]
    lengths_ms = [count * delay // 1000 for count, delay in zip(events, delays)]
    return Timeline(
        delays_us=np.array(delays, np.int64),
        first_events=np.cumsum([0, *events[:-1]], dtype=np.int64),
        offsets_ms=np.cumsum([0, *lengths_ms[:-1]], dtype=np.int64),
        period_events=sum(events),
        period_ms=sum(lengths_ms),
    )


def event_times_ms(config: Config, numbers: Ints) -> Ints:
    """Event times, in milliseconds since 1970, of (adjusted) event numbers of one generator."""
    line = timeline(config)
    if len(line.delays_us) == 1:
        times: Ints = config.base_time_ms + numbers * line.delays_us[0] // 1000
        return times
    period = numbers // line.period_events
    inside = numbers - period * line.period_events
    step = np.searchsorted(line.first_events, inside, side="right") - 1
    within_step_ms = (inside - line.first_events[step]) * line.delays_us[step] // 1000
    return np.int64(config.base_time_ms) + period * line.period_ms + line.offsets_ms[step] + within_step_ms


def adjusted_numbers(config: Config, numbers: Ints) -> Ints:
    """The out-of-order rule: inside each group, numbers come scattered."""
    group = config.out_of_order_group_size
    if group == 1:
        return numbers
    return numbers // group * group + numbers * SCATTER % group


def located(config: Config, sequence: Ints) -> tuple[Ints, Ints]:
    """(adjusted event number, event id) of sequence numbers: the generators take turns.

    Each generator owns a block of event ids and begins at event number 0, so all cover the same time. The last one
    also owns what is left over by the division, and emits it when the others have ended.
    """
    generators = config.num_event_generators
    if generators == 1:
        numbers = adjusted_numbers(config, sequence)
        return numbers, numbers
    assert config.events is not None  # checked by Config
    block = config.events // generators
    number = sequence // generators
    generator = sequence - number * generators
    rest = sequence >= block * generators
    if rest.any():
        generator = np.where(rest, generators - 1, generator)
        number = np.where(rest, sequence - block * (generators - 1), number)
    number = adjusted_numbers(config, number)
    return number, generator * block + number
