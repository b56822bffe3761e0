"""The compiled outlier selection against its definition, written down plainly, and against the reference's vector."""

from __future__ import annotations

import math
import os
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from tailrace.lab.espbench.data import sensors
from tailrace.lab.espbench.queries.outliers import PERPLEXITY, half_up, outlier_probabilities


def by_definition(points: list[tuple[float, float]], perplexity: float) -> list[float]:
    n = len(points)
    binding = []
    for i, point in enumerate(points):
        distance = [math.dist(point, other) for other in points]
        beta, low, high = 1.0, -math.inf, math.inf
        for _ in range(50):
            affinity = [0.0 if j == i else math.exp(-beta * distance[j]) for j in range(n)]
            total = sum(affinity)
            weighted = sum(a * d for a, d in zip(affinity, distance, strict=True))
            entropy = math.log(total) + beta * weighted / total if total else -math.inf
            if entropy > math.log(perplexity):
                low, beta = beta, (2 * beta if high == math.inf else (beta + high) / 2)
            else:
                high, beta = beta, (beta / 2 if low == -math.inf else (beta + low) / 2)
        affinity = [0.0 if j == i else math.exp(-beta * distance[j]) for j in range(n)]
        total = sum(affinity)
        binding.append([a / total for a in affinity])
    return [math.prod(1 - binding[i][j] for i in range(n) if i != j) for j in range(n)]


def compiled(points: list[tuple[float, float]], perplexity: float) -> list[float]:
    x, y = (np.array(column, float) for column in zip(*points, strict=True))
    found: list[float] = outlier_probabilities(x, y, perplexity).tolist()
    return found


def test_the_references_vector() -> None:
    points = [(1.0, 1.0), (2.0, 1.0), (1.0, 2.0), (2.0, 2.0), (5.0, 8.0)]
    expected = [0.27900945, 0.25775015, 0.22136131, 0.12707054, 0.99227799]
    assert compiled(points, 3) == pytest.approx(expected, abs=5e-9)
    assert by_definition(points, 3) == pytest.approx(expected, abs=5e-9)


@settings(max_examples=25)
@given(st.integers(0, 2**32), st.sampled_from([5, 12, 40]), st.sampled_from([2.0, 4.0, 30.0]))
def test_random_points(seed: int, count: int, perplexity: float) -> None:
    rng = np.random.default_rng(seed)
    points = [(float(a), float(b)) for a, b in rng.integers(0, 60, (count, 2))]  # some of them at one place
    if perplexity < count - 1 and len(set(points)) > perplexity + 1:
        assert compiled(points, perplexity) == pytest.approx(by_definition(points, perplexity), abs=1e-9)


def test_a_window_of_sensors() -> None:
    rows = [row.split("\t") for row in sensors.synthetic_rows(3, 500).to_pylist()]
    points = [(float(row[2]), float(row[3])) for row in rows]
    found = compiled(points, PERPLEXITY)
    assert found == pytest.approx(by_definition(points, PERPLEXITY), abs=1e-9)
    assert 15 <= sum(probability >= 0.5 for probability in found) <= 60


@pytest.mark.skipif("TAILRACE_SAMPLES" not in os.environ, reason="TAILRACE_SAMPLES names no folder of real samples")
def test_the_real_machine_has_the_published_number_of_outliers() -> None:
    path = Path(os.environ["TAILRACE_SAMPLES"]) / "debs2012_sample.txt"
    rows = [row.split("\t") for row in sensors.real_rows(path).to_pylist()]
    counts = []
    for first in range(0, len(rows), 500):
        points = [(float(row[2]), float(row[3])) for row in rows[first : first + 500]]
        counts.append(sum(probability >= 0.5 for probability in compiled(points, PERPLEXITY)))
    assert (len(counts), sum(counts), min(counts), max(counts)) == (34, 1137, 22, 46)


@given(st.floats(0, 1))
@example(0.125)
@example(0.875)
def test_rounding_is_half_up(value: float) -> None:
    """Halves that are none in binary, as 0.015, are as near to one side as to the other."""
    assume(value * 8 % 1 == 0 or abs(value * 100 % 1 - 0.5) > 1e-9)
    assert half_up(value) == str(Decimal(value).quantize(Decimal("0.01"), ROUND_HALF_UP))
