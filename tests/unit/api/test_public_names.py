"""``import tailrace``: quick, because every task and every command pays for it, and with all names all the same."""

from __future__ import annotations

import subprocess
import sys

import tailrace


def printed(code: str) -> list[str]:
    """By a Python of its own: this one has imported everything."""
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()


def test_what_is_slow_to_import_is_imported_when_it_is_used() -> None:
    def loaded(use: str) -> list[str]:
        slow = "{'numpy', 'pyarrow', 'numba', 'pyspark'}"
        return printed(f"import sys, tailrace as tr; {use}; print(*sorted({slow} & sys.modules.keys()))")

    assert loaded("tr.AnalysisError, tr.window, tr.table.redis") == []
    assert loaded("tr.count") == ["numba", "numpy", "pyarrow"]


def test_every_public_name_is_there_however_it_is_asked_for() -> None:
    assert {"stream", "count", "approx_percentile", "window", "table", "AnalysisError"} <= set(tailrace.__all__)
    assert len(set(tailrace.__all__)) == len(tailrace.__all__)
    assert set(tailrace.__all__) <= set(dir(tailrace))
    assert printed("from tailrace import *; print(sum.__module__, stream.__module__, table.__name__)") == [
        "tailrace.operators.aggregate.functions.counts_and_sums",
        "tailrace.spark.query.runtime",
        "tailrace.api.tables",
    ]
    assert not hasattr(tailrace, "no_such_name") and not hasattr(tailrace, "_no_such_name")


def test_aggregates_are_found_by_name_in_every_query() -> None:
    code = "import tailrace as tr; tr.stream; from tailrace.api.aggregates import BY_NAME; print('max' in BY_NAME)"
    assert printed(code) == ["True"]
