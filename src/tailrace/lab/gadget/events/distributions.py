"""Distributions that event generators draw from: gaps between events, event keys, sizes. Each is a small frozen value.

Draws take whole columns at once. The fields of a distribution are the names of its parameters in a configuration.
``Problem`` carries what was wrong with which parameter; who knows where it was written adds the place.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any, Protocol

import numpy as np


class Problem(ValueError):
    """A parameter, and what is wrong with it."""

    def __init__(self, parameter: str, what: str) -> None:
        super().__init__(f"{parameter}: {what}")
        self.parameter = parameter
        self.what = what


class Draws(Protocol):
    def draw(self, random: np.random.Generator, rows: int) -> np.ndarray: ...


def _need(holds: bool, parameter: str, what: str) -> None:
    if not holds:
        raise Problem(parameter, what)


# Numbers: gaps in seconds, sizes in bytes.


@dataclass(frozen=True)
class Constant:
    constant: float

    def __post_init__(self) -> None:
        _need(self.constant >= 0, "constant", f"{self.constant:g} is negative")

    def draw(self, random: np.random.Generator, rows: int) -> np.ndarray:
        return np.full(rows, self.constant)


@dataclass(frozen=True)
class Exponential:
    lambda_: float
    """Its mean is 1 / lambda. Gaps of it make a Poisson process with lambda events a second."""

    def __post_init__(self) -> None:
        _need(self.lambda_ > 0, "lambda", f"{self.lambda_:g} is not above 0")

    def draw(self, random: np.random.Generator, rows: int) -> np.ndarray:
        return random.exponential(1 / self.lambda_, rows)


@dataclass(frozen=True)
class Normal:
    """Draws below 0 count as 0."""

    mean: float
    sd: float

    def __post_init__(self) -> None:
        _need(self.mean >= 0, "mean", f"{self.mean:g} is negative")
        _need(self.sd >= 0, "sd", f"{self.sd:g} is negative")

    def draw(self, random: np.random.Generator, rows: int) -> np.ndarray:
        return np.maximum(random.normal(self.mean, self.sd, rows), 0)


@dataclass(frozen=True)
class Uniform:
    a: float
    b: float

    def __post_init__(self) -> None:
        _need(self.a >= 0, "a", f"{self.a:g} is negative")
        _need(self.b >= self.a, "b", f"{self.b:g} is below a = {self.a:g}")

    def draw(self, random: np.random.Generator, rows: int) -> np.ndarray:
        return random.uniform(self.a, self.b, rows)


NUMBERS: dict[str, Callable[..., Draws]] = {
    "exponential": Exponential,
    "constant": Constant,
    "normal": Normal,
    "uniform": Uniform,
}


def sizes(of: Draws, random: np.random.Generator, rows: int) -> np.ndarray:
    """Whole bytes, at least one."""
    drawn: np.ndarray = np.clip(np.rint(of.draw(random, rows)), 1, np.iinfo(np.int32).max).astype(np.int32)
    return drawn


# Event keys: whole numbers from 0 or 1.


def _check_keys(keys: int) -> None:
    _need(keys >= 1, "keyspacesize", f"{keys} is not above 0")


_MOST_RANKS = 1 << 28


def _check_ranks(keys: int) -> None:
    _check_keys(keys)
    _need(keys <= _MOST_RANKS, "keyspacesize", f"{keys} is above {_MOST_RANKS}, too many for a table of ranks")


@dataclass(frozen=True)
class ConstantKey:
    constant: int = 1

    def draw(self, random: np.random.Generator, rows: int) -> np.ndarray:
        return np.full(rows, self.constant, np.int64)


@dataclass(frozen=True)
class Sequential:
    """1, 2, 3, ...; with a key space, round and round."""

    keyspacesize: int = 1 << 62

    def __post_init__(self) -> None:
        _check_keys(self.keyspacesize)

    def draw(self, random: np.random.Generator, rows: int) -> np.ndarray:
        return np.arange(rows, dtype=np.int64) % self.keyspacesize + 1


@dataclass(frozen=True)
class UniformKeys:
    """Whole numbers from ``a`` to ``b``, modulo the key space."""

    keyspacesize: int
    a: int = 0
    b: int = -1
    """Below 0: the size of the key space less one."""

    def __post_init__(self) -> None:
        _check_keys(self.keyspacesize)
        _need(self.a >= 0, "a", f"{self.a} is negative")
        _need(self.b < 0 or self.b >= self.a, "b", f"{self.b} is below a = {self.a}")

    def draw(self, random: np.random.Generator, rows: int) -> np.ndarray:
        last = self.keyspacesize - 1 if self.b < 0 else self.b
        drawn: np.ndarray = random.integers(self.a, max(last, self.a), rows, endpoint=True) % self.keyspacesize
        return drawn


@dataclass(frozen=True)
class Zipf:
    """Rank ``i`` of 1 to N has a probability that goes with ``i ** -s``; the key is the rank."""

    s: float
    keyspacesize: int

    def __post_init__(self) -> None:
        _check_ranks(self.keyspacesize)
        _need(self.s >= 0, "s", f"{self.s:g} is negative")

    def draw(self, random: np.random.Generator, rows: int) -> np.ndarray:
        return _ranks(self.s, self.keyspacesize, random, rows) + 1


def _ranks(s: float, keys: int, random: np.random.Generator, rows: int) -> np.ndarray:
    shares = np.cumsum(np.arange(1, keys + 1, dtype=np.float64) ** -s)
    found: np.ndarray = np.searchsorted(shares, random.random(rows) * shares[-1], side="right").astype(np.int64)
    ranks: np.ndarray = np.minimum(found, keys - 1)
    return ranks


@dataclass(frozen=True)
class Hotspot:
    """With probability ``hotoperationfraction`` one of the first ``hotspotfraction`` of keys, else another."""

    hotspotfraction: float
    hotoperationfraction: float
    keyspacesize: int

    def __post_init__(self) -> None:
        _check_keys(self.keyspacesize)
        for name in ("hotspotfraction", "hotoperationfraction"):
            _need(0 <= getattr(self, name) <= 1, name, f"{getattr(self, name):g} is not between 0 and 1")

    def draw(self, random: np.random.Generator, rows: int) -> np.ndarray:
        hot = min(max(round(self.hotspotfraction * self.keyspacesize), 1), self.keyspacesize)
        cold = self.keyspacesize - hot
        is_hot = random.random(rows) < self.hotoperationfraction if cold else np.ones(rows, bool)
        return np.where(is_hot, random.integers(0, hot, rows), hot + random.integers(0, max(cold, 1), rows))


@dataclass(frozen=True)
class ExponentialKeys:
    """``percentile`` per cent of draws are among the first ``frac`` of keys, falling off from the first one."""

    keyspacesize: int
    percentile: float = 95
    frac: float = 0.8571428571

    def __post_init__(self) -> None:
        _check_keys(self.keyspacesize)
        _need(0 < self.percentile < 100, "percentile", f"{self.percentile:g} is not between 0 and 100")
        _need(self.frac > 0, "frac", f"{self.frac:g} is not above 0")

    def draw(self, random: np.random.Generator, rows: int) -> np.ndarray:
        rate = -math.log(1 - self.percentile / 100) / (self.frac * self.keyspacesize)
        inside = -math.expm1(-rate * self.keyspacesize)  # drawn from what lies in the key space
        drawn = -np.log1p(-random.random(rows) * inside) / rate
        return np.minimum(drawn.astype(np.int64), self.keyspacesize - 1)


@dataclass(frozen=True)
class Latest:
    """The newest key is the most popular: as a zipf rank counted back from it. New keys come all the time."""

    keyspacesize: int
    """How many of the newest keys can come, and how many there are at the start."""
    newfraction: float = 0.05
    """Of events, those with a new key."""
    s: float = 0.99

    def __post_init__(self) -> None:
        _check_ranks(self.keyspacesize)
        _need(0 <= self.newfraction <= 1, "newfraction", f"{self.newfraction:g} is not between 0 and 1")

    def draw(self, random: np.random.Generator, rows: int) -> np.ndarray:
        new = random.random(rows) < self.newfraction
        newest = self.keyspacesize - 1 + np.cumsum(new)
        return np.where(new, newest, newest - _ranks(self.s, self.keyspacesize, random, rows))


@dataclass(frozen=True)
class EmpiricalKeys:
    """A user's distribution: a CSV file whose last column is the cumulative probability. The key is the line's number,
    or the first column where there are two."""

    file: str

    def __post_init__(self) -> None:
        self._table()

    def draw(self, random: np.random.Generator, rows: int) -> np.ndarray:
        keys, shares = self._table()
        found = np.searchsorted(shares, random.random(rows) * shares[-1], side="right")
        drawn: np.ndarray = keys[np.minimum(found, len(keys) - 1)]
        return drawn

    def _table(self) -> tuple[np.ndarray, np.ndarray]:
        keys: list[int] = []
        shares: list[float] = []
        try:
            lines = Path(self.file).read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise Problem("file", f"{self.file} cannot be read: {error}") from error
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                parts = line.split(",")
                share = float(parts[-1])
                keys.append(int(parts[0]) if len(parts) > 1 else number - 1)
            except ValueError as error:
                what = "is not `key,cumulative probability` or a cumulative probability"
                raise Problem("file", f"line {number} of {self.file}: {line!r} {what}") from error
            if not 0 <= share <= 1 + 1e-9 or (shares and share < shares[-1]):
                what = f"{share:g} is no cumulative probability: they rise from 0 to 1"
                raise Problem("file", f"line {number} of {self.file}: {what}")
            shares.append(share)
        if not shares or shares[-1] <= 0:
            raise Problem("file", f"{self.file} has no cumulative probabilities")
        return np.array(keys, np.int64), np.array(shares)


KEYS: dict[str, Callable[..., Draws]] = {
    "zipf": Zipf,
    "uniform": UniformKeys,
    "hotspot": Hotspot,
    "sequential": Sequential,
    "constant": ConstantKey,
    "exponential": ExponentialKeys,
    "latest": Latest,
    "ecdf": EmpiricalKeys,
}


def whole(text: str) -> int:
    """A whole number, also as 10k or 2M."""
    factor = {"k": 1_000, "m": 1_000_000}.get(text[-1:].lower())
    if factor is None:
        return int(text)
    scaled = float(text[:-1]) * factor
    if not math.isfinite(scaled) or scaled != int(scaled):
        raise ValueError(text)
    return int(scaled)


_CONVERT: dict[str, Callable[[str], Any]] = {"int": whole, "float": float, "str": str}


def made(kinds: Mapping[str, Callable[..., Draws]], kind: str, parameters: Mapping[str, str]) -> Draws:
    """A distribution from texts. Raises `Problem`, about ``type`` or a parameter."""
    if kind not in kinds:
        raise Problem("type", f"no distribution is called {kind!r}; there are {', '.join(kinds)}")
    wanted: Any = kinds[kind]
    values: dict[str, Any] = {}
    known = {one.name.rstrip("_"): one for one in fields(wanted)}
    for name, text in parameters.items():
        if name not in known:
            raise Problem(name, f"the distribution {kind} has no such parameter; it has {', '.join(known)}")
        one = known[name]
        try:
            values[one.name] = _CONVERT[str(one.type)](text)
        except ValueError as error:
            raise Problem(name, f"{text!r} is not a {'whole ' if one.type == 'int' else ''}number") from error
        if isinstance(values[one.name], float) and not math.isfinite(values[one.name]):
            raise Problem(name, f"{text!r} is not a finite number")
    for name, one in known.items():
        if one.name not in values and one.default is MISSING:
            raise Problem(name, f"the distribution {kind} needs it")
    found: Draws = wanted(**values)
    return found
