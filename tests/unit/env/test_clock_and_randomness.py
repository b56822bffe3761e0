"""Clock and randomness: shapes that others rely on."""

from __future__ import annotations

import re

from tailrace.env import clock, randomness


def test_ids_have_their_shape_and_differ() -> None:
    runs = {randomness.new_run_id() for _ in range(1000)}
    assert len(runs) == 1000 and all(re.fullmatch("[0-9a-f]{16}", run) for run in runs)
    assert re.fullmatch("[0-9a-f]{8}", randomness.short_id())
    assert len(randomness.new_token()) >= 40


def test_time_goes_on() -> None:
    start, wall = clock.monotonic(), clock.now()
    clock.sleep(0.01)
    assert clock.monotonic() - start >= 0.01
    assert clock.now() >= wall
    assert clock.timestamp_text(1e9) == "2001-09-09T01:46:40Z"
