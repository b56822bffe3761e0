"""State of every kind, through everything at once: crashes at any operation of the disk, in the middle of deltas,
compactions, restores and cleaning; servers lost in the middle of an epoch; restarts with other servers and memory.

The oracle is the operator itself, without any disturbance. That it is right, its own tests show.
"""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Iterator

import pytest

from support.crash.recovery import Logs, Rewind, live, live_behind, undisturbed
from support.crash.recovery_kinds import PARAMETERS, Script, script_of, spec_of
from support.stores.faulty import SimulatedCrash, SimulatedDisk
from tailrace.env.stores.local_store import LocalStore
from tailrace.operators.spec import OperatorSpec

LONG = os.environ.get("TAILRACE_TEST_LONG") == "1"
EPOCHS = 14
EXAMPLES = 100 if LONG else 2
CRASHES_MAX = 6
LIVES_MAX = 200
OPERATIONS = 200
"""Of the disk, in a life that does not end by itself; a crash comes at any of them."""


@pytest.fixture(scope="module")
def scratch() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        yield folder


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", PARAMETERS)
def test_nothing_is_lost_or_repeated(scratch: str, kind: str) -> None:
    given = os.environ.get("TAILRACE_TEST_SEED")
    for seed in [int(given)] if given else [random.randrange(2**32) for _ in range(EXAMPLES)]:
        print(f"TAILRACE_TEST_SEED={seed}")
        check(kind, seed, scratch)


def check(kind: str, seed: int, scratch: str) -> None:
    rng = random.Random(seed)
    spec = spec_of(kind)
    script = script_of(spec, seed, EPOCHS)
    wanted = undisturbed(spec, script, scratch)
    assert any(wanted), "the script emits nothing"
    disk, logs = SimulatedDisk(seed), Logs(rng=rng)
    crashes = [rng.randrange(OPERATIONS) for _ in range(rng.randrange(CRASHES_MAX + 1))]
    with tempfile.TemporaryDirectory() as root:
        for _ in range(LIVES_MAX):
            disk.restart(crashes.pop() if crashes else -1)
            try:
                _live_on(spec, script, LocalStore(root, disk), logs, scratch, rng)
                break
            except SimulatedCrash:
                continue
    assert logs.commits == list(range(EPOCHS))
    for epoch, rows in enumerate(wanted):
        found = logs.sink[epoch]
        assert found == rows, f"epoch {epoch}: missing {rows - found}, too many {found - rows}"


def _live_on(
    spec: OperatorSpec, script: Script, store: LocalStore, logs: Logs, scratch: str, rng: random.Random
) -> None:
    """Drivers that commit before the sink or behind it, until one has come to the end."""
    for _ in range(LIVES_MAX):
        life = rng.choice([live, live_behind])
        try:
            life(spec, script, store, logs, scratch, rng)
            return
        except Rewind:
            pass
    raise AssertionError(f"{LIVES_MAX} drivers have not come to the end")
