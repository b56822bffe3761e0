"""Sensor files: five minutes of the DEBS 2012 challenge's machine, real or synthetic, with a workplace as last column.

A row is text of 56 columns, tab separated: time, index, mf01 to mf03 (power of three phases), pc13 to pc15 (current
drops), and what is constant nearly always. The synthetic machine has the published queries' selectivities: of 30,000
rows, 126 have an mf01 above 14963, and 8.8 % an mf03 below 8105.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.errors import TailraceError

ROWS = 30_000
"""Five minutes at 100 Hz."""
WINDOW = 500
"""Files are looped: a length that is no multiple of the count windows would let windows cross the loop's end."""
HIGH_MF01, HIGH_SHARE = 14_963, 0.0042
LOW_MF03, LOW_SHARE = 8_105, 0.088
COLUMNS = 56

_START = np.datetime64("2012-02-22T16:46:28.967032000", "ns")
_FIRST_INDEX = 2_556_001
_ALWAYS_SET = (33, 34, 41, 44)
_RARELY_CHANGED = range(12, 18)  # bm05 to bm10


def synthetic_rows(seed: int, rows: int = ROWS) -> pa.StringArray:
    """The machine's rows without a workplace."""
    signals = Machine(np.random.default_rng(seed), rows).signals()
    times = pa.array(np.datetime_as_string(signals.times, "ns"))
    fields: list[pa.Array] = [pc.binary_join_element_wise(pc.utf8_slice_codeunits(times, 0, 27), "+00:00", "")]
    fields.append(pa.array(_FIRST_INDEX + np.arange(rows)).cast(pa.string()))
    fields += [_digits(values) for values in (*signals.power, *signals.current)]
    fields += [pa.repeat("0000", rows)] * 4
    for column in range(len(fields), COLUMNS):
        if column in _RARELY_CHANGED:
            fields.append(pa.array(signals.bits[column - _RARELY_CHANGED.start]).cast(pa.string()))
        else:
            fields.append(pa.repeat("1" if column in _ALWAYS_SET else "0", rows))
    return pc.binary_join_element_wise(*fields, "\t")


def real_rows(path: Path, rows: int = ROWS, skip: int = 0) -> pa.StringArray:
    """Rows of a DEBS 2012 file as it was published, Windows' line ends or not: at most ``rows``, a multiple of 500."""
    with path.open(newline="") as file:
        lines = [line.rstrip("\r\n") for number, line in zip(range(skip + rows), file) if number >= skip]
    kept = len(lines) // WINDOW * WINDOW
    if not kept:
        raise TailraceError(f"{path}: {len(lines)} rows behind the first {skip}; a sensor file needs at least {WINDOW}")
    for number, line in enumerate(lines[:kept], skip + 1):
        if line.count("\t") != COLUMNS - 1:
            found = line.count("\t") + 1
            raise TailraceError(
                f"{path}, line {number}: {found} columns, not {COLUMNS}; is it a DEBS 2012 file, tab separated?"
            )
    return pa.array(lines[:kept])


def of_workplace(rows: pa.StringArray, workplace: int) -> pa.StringArray:
    return pc.binary_join_element_wise(rows, str(workplace), "\t")


@dataclass(frozen=True)
class Signals:
    times: np.ndarray
    power: tuple[np.ndarray, ...]
    current: tuple[np.ndarray, ...]
    bits: tuple[np.ndarray, ...]


class Machine:
    """A level with slow drift, noise, and pulses of load, fitted to a real fragment of the challenge's file."""

    def __init__(self, rng: np.random.Generator, rows: int) -> None:
        self._rng = rng
        self._rows = rows

    def signals(self) -> Signals:
        mf01 = self._mf01()
        noise = self._rng.normal(0, 31, self._rows)
        mf02 = np.rint(-398 + 1.132 * mf01 + noise).astype(np.int64)
        means = ((70.2, 4.5), (189.9, 3.9), (152.1, 4.3))
        current = (np.rint(self._rng.normal(mean, sd, self._rows)).astype(np.int64).clip(0) for mean, sd in means)
        steps = np.rint(self._rng.normal(0, 40_000, self._rows) / 100).astype(np.int64) * 100  # 100 ns are the smallest
        times = _START + np.arange(self._rows) * 10_000_000 + steps
        bits = tuple(self._bit() for _ in _RARELY_CHANGED)
        return Signals(times, (mf01, mf02, self._mf03()), tuple(current), bits)

    def _mf01(self) -> np.ndarray:
        base = 13_050 + self._correlated(500, 90) + self._correlated(3, 10)
        pulses = self._pulses(every=1_500, widths=(30, 90), heights=self._rng.lognormal(0, 0.7, self._rows))
        wanted = round(HIGH_SHARE * self._rows)
        low, high = 0.0, 20_000.0
        for _ in range(60):  # the height at which just as many rows are above the threshold as wanted
            scale = (low + high) / 2
            above = int((np.rint(base + scale * pulses) > HIGH_MF01).sum())
            low, high = (scale, high) if above < wanted else (low, scale)
        values: np.ndarray = np.rint(np.minimum(base + high * pulses, 18_300)).astype(np.int64)
        surplus = np.argsort(values)[::-1][wanted : int((values > HIGH_MF01).sum())]
        values[surplus] = HIGH_MF01  # several rows may pass the threshold with one step of the height
        return values

    def _mf03(self) -> np.ndarray:
        bumps = self._pulses(every=8_000, widths=(100, 200), heights=np.full(self._rows, 1_275))
        dips = self._pulses(every=6_000, widths=(130, 190), heights=np.full(self._rows, 800))
        values = self._correlated(150, 9) + self._correlated(4, 2) + bumps - dips
        rank = round(LOW_SHARE * self._rows)
        ordered = np.sort(values)
        # Between the ranks, so that rounding moves none of them over the threshold ...
        shifted = np.rint(values - ordered[rank] + LOW_MF03).astype(np.int64)
        below, order = shifted < LOW_MF03, np.argsort(values, kind="stable")
        should = np.zeros(self._rows, bool)
        should[order[:rank]] = True
        shifted[should & ~below] = LOW_MF03 - 1  # ... and those that it does move, move back
        shifted[~should & below] = LOW_MF03
        limited: np.ndarray = np.clip(shifted, 7_275, 9_390)
        return limited

    def _correlated(self, rows: int, deviation: float) -> np.ndarray:
        """Noise that remembers so many rows, the last ones of the file also in the first, since the file is looped."""
        decay = np.exp(-1.0 / rows)
        kernel = decay ** np.arange(min(self._rows, 8 * rows))
        white = np.fft.rfft(self._rng.normal(size=self._rows))
        signal: np.ndarray = np.fft.irfft(white * np.fft.rfft(kernel, self._rows), self._rows)
        signal *= deviation / signal.std()
        return signal

    def _pulses(self, every: int, widths: tuple[int, int], heights: np.ndarray) -> np.ndarray:
        """Raised cosines of random width, at random times: one in ``every`` rows."""
        signal = np.zeros(self._rows)
        count = max(1, self._rows // every)
        centres = (np.arange(count) + self._rng.random(count)) * every
        for number, centre in enumerate(centres):
            width = int(self._rng.integers(*widths))
            first = int(centre)
            shape = (1 - np.cos(2 * np.pi * (np.arange(width) + 0.5) / width)) / 2
            places = (first + np.arange(width)) % self._rows
            signal[places] += heights[number] * shape
        return signal

    def _bit(self) -> np.ndarray:
        changed = self._rng.random(self._rows) < 2 / ROWS
        return (np.cumsum(changed) % 2).astype(np.int64)


def _digits(values: np.ndarray) -> pa.Array:
    return pc.utf8_lpad(pa.array(values).cast(pa.string()), 4, "0")
