"""A damaged file of the state of any kind: an error that names it, or the exact rows. Never other ones.

Where Spark stands between, ``tests/spark/recovery/test_damaged_checkpoint.py`` does the same to a whole checkpoint.
"""

from __future__ import annotations

import copy
import os
import random
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from support.crash.recovery import Logs, live, undisturbed
from support.crash.recovery_kinds import PARAMETERS, script_of, spec_of
from tailrace.env.stores.local_store import LocalStore
from tailrace.errors import CheckpointError, CorruptionError

LONG = os.environ.get("TAILRACE_TEST_LONG") == "1"
EPOCHS, BEFORE = 12, 10
FLIPS = 20 if LONG else 2


@pytest.fixture(scope="module")
def scratch() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        yield folder


def damaged(data: bytes, how: str, rng: random.Random) -> bytes:
    if how == "truncated":
        return data[: rng.randrange(len(data))]
    at = rng.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]


@pytest.mark.parametrize("kind", PARAMETERS)
def test_a_damaged_object_is_named(scratch: str, tmp_path: Path, kind: str) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    spec = spec_of(kind)
    script = script_of(spec, seed, EPOCHS)
    complete, logs = tmp_path / "whole", Logs()
    recovered = live(spec, replace(script, batches=script.batches[:BEFORE]), LocalStore(complete), logs, scratch, rng)
    refused = 0
    for how in ["truncated", *["flipped"] * FLIPS]:
        path = complete / rng.choice(recovered.objects).name
        hurt, kept = tmp_path / "hurt", copy.deepcopy(logs)
        shutil.copytree(complete, hurt)
        (hurt / path.relative_to(complete)).write_bytes(damaged(path.read_bytes(), how, rng))
        try:
            live(spec, script, LocalStore(hurt), kept, scratch, rng)
        except CheckpointError as error:
            assert isinstance(error, CorruptionError), f"{how}: {error!r}"
            assert path.name in str(error), f"{how}: the error does not name {path.name}: {error}"
            refused += 1
        else:
            assert [kept.sink[epoch] for epoch in range(EPOCHS)] == undisturbed(spec, script, scratch), how
        shutil.rmtree(hurt)
    assert refused
