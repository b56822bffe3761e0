"""A server lives within its budget and the constant that the documentation states, whatever it is made to do.

The largest resident memory of its process is read from the system after each phase. Where a memory cgroup can be made,
the server and its forkserver are also in one with that limit: then the kernel kills who needs more.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from support.servers.driven_server import HOUR, SHARDS, DrivenServer, driven_server, spec
from tailrace.env import clock
from tailrace.env.memory import BESIDE_BUDGET_BYTES

_MB = 1 << 20
_SMALL_BYTES = 280 * _MB


def _peaks(server: DrivenServer, keys: int, rows: int, changes: Sequence[int], *, windows: bool) -> dict[str, int]:
    """Fill, change and compact, close all windows, restore and rescale: the largest resident memory of each phase.

    ``rows``: of the epochs that fill. ``changes``: rows of the epochs after that, one of which must bring a checkpoint
    compaction.
    """
    random = np.random.default_rng(7)
    peaks: dict[str, int] = {}

    def epoch(chosen: np.ndarray) -> None:
        server.epoch(chosen, np.zeros(len(chosen), np.int64) if windows else None)

    server.open(range(SHARDS))
    peaks["start"] = server.peak_bytes()
    order = random.permutation(keys)
    for low in range(0, keys, rows):
        epoch(order[low : low + rows])
    peaks["filling"] = server.peak_bytes()
    for count in changes:
        epoch(random.integers(0, keys, count))
    while not server.compactions:
        clock.sleep(0.05)
        epoch(random.integers(0, keys, 10))
    peaks["changing and compacting"] = server.peak_bytes()
    before = server.manifest
    server.open(range(SHARDS // 2), before)
    server.open(range(SHARDS // 2, SHARDS), before)
    peaks["rescaling"] = server.peak_bytes()
    server.open(range(SHARDS), before)
    peaks["restoring"] = server.peak_bytes()
    if windows:
        assert server.epoch(np.array([1]), np.array([5]), watermark=2 * HOUR) == keys
        peaks["closing all windows"] = server.peak_bytes()
    return peaks


def _check(server: DrivenServer, peaks: dict[str, int], ceiling_bytes: int) -> None:
    shown = ", ".join(f"{phase} {peak / _MB:.0f}" for phase, peak in peaks.items())
    group = "no memory cgroup" if server.group is None else f"cgroup {server.group.peak_bytes / _MB:.0f}"
    print(f"MB: {shown}; {group}; ceiling {ceiling_bytes / _MB:.0f}")
    assert max(peaks.values()) <= ceiling_bytes, shown


@pytest.mark.parametrize("windows", [True, False], ids=["windows", "rolling"])
def test_a_small_server_stays_within_what_is_stated(tmp_path: Path, short_path: Path, windows: bool) -> None:
    """And with such epochs well below it: the records of one alone would take more than is left to steps."""
    budget, operator = 16 * _MB, spec(windows=windows)
    limit = budget + BESIDE_BUDGET_BYTES
    with driven_server(operator, tmp_path / "store", short_path, limit, memory_bytes=budget) as server:
        peaks = _peaks(server, 800_000, 400_000, [*[5_000] * 13, 400_000], windows=windows)
        _check(server, peaks, budget + _SMALL_BYTES)


@pytest.mark.long
@pytest.mark.parametrize("windows", [True, False], ids=["windows", "rolling"])
def test_a_server_of_256_mb_lives_in_640(tmp_path: Path, short_path: Path, windows: bool) -> None:
    """Five million records, which take twice the budget: all of them are restored, and all windows close at once."""
    budget, ceiling, operator = 256 * _MB, 640 * _MB, spec(windows=windows)
    with driven_server(operator, tmp_path / "store", short_path, ceiling, memory_bytes=budget) as server:
        _check(server, _peaks(server, 5_000_000, 500_000, [500_000] * 8, windows=windows), budget + BESIDE_BUDGET_BYTES)
