"""Over many epochs nothing grows that should not: objects, files, memory, descriptors, threads. Numbers are printed."""

from __future__ import annotations

import json
import os

import pytest

from support.processes import TESTS, Sandbox

LONG = os.environ.get("TAILRACE_TEST_LONG") == "1"
EPOCHS, EVERY = (2000, 50) if LONG else (40, 4)
ROWS, KEYS = 200, 50
MB = 1 << 20
GROWTH = {
    "objects": 60,
    "object bytes": 2 * MB,
    "local files": 60,
    "spark files": 200,
    "server memory": 48 * MB,
    "server files": 8,
    "server threads": 8,
    "driver memory": 64 * MB,
    "driver files": 8,
    "driver threads": 8,
}
"""How much more than in its first quarter a run may hold later: bounds that do not depend on how long it runs.

Objects come and go by compaction, 16 and more at a time, and memory is what the allocators keep.
"""


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("commit", ["async", pytest.param("sync", marks=pytest.mark.long)])
def test_what_a_query_holds_stays_bounded(commit: str) -> None:
    with Sandbox() as sandbox:
        config = {
            "root": str(sandbox.root),
            "epochs": EPOCHS,
            "every": EVERY,
            "rows": ROWS,
            "keys": KEYS,
            "commit": commit,
        }
        child = sandbox.start(TESTS / "crash" / "child_steady.py", config)
        assert child.wait() == 0, sandbox.log_tail()
        lines = (sandbox.root / "held.jsonl").read_text().splitlines()
        end = json.loads((sandbox.root / "end.json").read_text())
    samples = [json.loads(line) for line in lines]
    print(f"{end['epochs']} epochs, {end['rows']} rows emitted")
    early = samples[1 : max(2, len(samples) // 4)]
    for name in GROWTH:
        first, last = max(each[name] for each in early), max(each[name] for each in samples[len(early) :])
        print(f"{name}: {first} at most up to epoch {early[-1]['epoch']}, {last} at most later")
    assert end["epochs"] >= EPOCHS
    assert end["rows"] > 0 and end["rows"] % (10 * ROWS) == 0, "of each window of ten epochs, all or nothing"
    grown = {
        name: (max(each[name] for each in early), max(each[name] for each in samples[len(early) :])) for name in GROWTH
    }
    assert not {name: both for name, both in grown.items() if both[1] > both[0] + GROWTH[name]}
