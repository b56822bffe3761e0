"""Freed memory is kept where that is wanted, and only there: by the page faults and the size of real processes."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache

import pytest

from tailrace.env.memory import Resident, resident_bytes, server_variables, upkeep

_MB = 1 << 20
_COUNTED = """
import resource, sys
import numpy as np
from tailrace.env import memory as kept_memory

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def batch():
    arrays = [np.empty(size, np.uint8) for size in ({large} << 20, 5 << 20, 300 << 10)]
    for array in arrays:
        array[::4096] = 1

{before}
batch()
first = faults()
for _ in range(5):
    batch()
again = faults() - first
{after}
print(again, kept_memory.resident_bytes())
"""


@cache
def _run(before: str = "", after: str = "", large: int = 80, **variables: str) -> tuple[int, int]:
    """Page faults of five batches after the first, and the resident memory at the end. ``large``: MB, of one array."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    program = _COUNTED.format(before=before, after=after, large=large)
    done = subprocess.run(
        [sys.executable, "-c", program], env={**environment, **variables}, capture_output=True, text=True, check=True
    )
    again, resident = done.stdout.split()
    return int(again), int(resident)


def test_a_small_server_too_uses_its_memory_again() -> None:
    kept, _ = _run(large=40, **server_variables(8 * _MB))
    assert kept < 20


def test_a_roomy_server_keeps_more_than_a_small_one() -> None:
    kept, large = _run(**server_variables(1024 * _MB))
    returned, small = _run(**server_variables(8 * _MB))
    assert kept < 20 < returned
    assert large - small > 30 * _MB


def test_a_worker_that_was_asked_to_keeps_memory_until_a_later_request() -> None:
    kept, resident = _run("kept_memory.keep(128 << 20)")
    ended, without = _run("kept_memory.keep(128 << 20)", "kept_memory.keep_no_longer()")
    assert kept < 20
    assert ended < 20
    assert resident - without > 30 * _MB


def test_a_single_large_array_is_given_back_where_that_is_asked_for() -> None:
    again, resident = _run("kept_memory.keep(128 << 20, single_bytes=16 << 20)")
    _, all_of_it = _run("kept_memory.keep(128 << 20)")
    assert again > 20
    assert all_of_it - resident > 60 * _MB


def test_no_more_is_kept_than_the_limit() -> None:
    _, resident = _run("kept_memory.keep(8 << 20)")
    _, most = _run("kept_memory.keep(128 << 20)")
    assert most - resident > 30 * _MB


def test_a_process_that_is_too_large_gives_back_what_is_free_when_it_has_grown() -> None:
    now, given = [0], []

    def give_back() -> None:
        given.append(now[0])
        now[0] -= 50

    resident = Resident(200, 40, resident=lambda: now[0], give_back=give_back)
    for size, times in [(200, 0), (201, 1), (190, 1), (260, 2), (249, 2), (250, 3), (100, 3), (239, 4)]:
        now[0] = size
        resident.check()
        assert len(given) == times, f"at {size}"
    assert given == [201, 260, 250, 239]


@pytest.mark.parametrize("memory", [4 * _MB, 1024 * _MB])
def test_a_server_looks_after_its_size_between_epochs(memory: int, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bool] = []
    monkeypatch.setattr(Resident, "check", lambda self: seen.append(True))
    upkeep(memory)()
    assert seen == [True]


def test_a_system_that_does_not_tell_its_size_is_left_alone() -> None:
    Resident(1, resident=lambda: None, give_back=lambda: pytest.fail("there was no need")).check()


def test_the_size_of_this_process_is_reported() -> None:
    assert (resident_bytes() or 0) > 10 * _MB
