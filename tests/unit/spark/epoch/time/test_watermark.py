"""Which watermark an epoch ends with, where several streams have one."""

import pytest

from tailrace.api.options import WatermarkPolicy, WatermarkRule
from tailrace.ids import MIN_MICROS
from tailrace.spark.epoch.time.watermark import Watermark

SEEN = [(50_000, MIN_MICROS), (60_000, 20_000), (60_000, 90_000), (10, 10)]
"""By epoch, the largest times of two streams, whose delays are 5,000 and 10,000."""


@pytest.mark.parametrize(
    ("rule", "policy", "closed"),
    [
        ("tailrace", "min", [MIN_MICROS, 10_000, 55_000, 55_000]),
        ("tailrace", "max", [45_000, 55_000, 80_000, 80_000]),
        ("spark", "min", [0, 0, 10_000, 55_000]),
        ("spark", "max", [0, 45_000, 55_000, 80_000]),
    ],
)
def test_the_slowest_stream_counts_or_the_fastest(rule: str, policy: str, closed: list[int]) -> None:
    now, found = Watermark.from_json({}, WatermarkRule(rule), 2), []
    for times in SEEN:
        now = now.after(times, (5_000, 10_000), WatermarkRule(rule), WatermarkPolicy(policy))
        found.append(now.closed)
    assert found == closed
