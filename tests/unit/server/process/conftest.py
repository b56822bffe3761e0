"""Forkservers: one for the tests that leave it alone, one for each test that kills it or looks for its end."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.servers.forkservers import CONTEXT, Forks, fork_folder, wait_for_the_end
from support.servers.state_servers import StandIn
from tailrace.env.randomness import short_id
from tailrace.server.process.fork_client import ForkFolder


@pytest.fixture
def executor() -> Iterator[StandIn]:
    stand_in = StandIn()
    yield stand_in
    stand_in.end()


@pytest.fixture(scope="module")
def places() -> Iterator[list[ForkFolder]]:
    """Of all tests. Their forkservers linger after their executors: they are waited for together."""
    used: list[ForkFolder] = []
    yield used
    for folder in used:
        wait_for_the_end(folder)


def _forks(
    value: str, places: list[ForkFolder], executor: StandIn, tmp_path: Path, short_path: Path, patch: pytest.MonkeyPatch
) -> Forks:
    patch.setenv(CONTEXT, value)
    places.append(fork_folder())
    return Forks(places[-1], executor, tmp_path / "store", short_path)


@pytest.fixture
def forks(
    places: list[ForkFolder], executor: StandIn, tmp_path: Path, short_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Forks:
    """With a forkserver of the test's own."""
    return _forks(short_id(), places, executor, tmp_path, short_path, monkeypatch)


@pytest.fixture
def shared_forks(
    places: list[ForkFolder], executor: StandIn, tmp_path: Path, short_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Forks:
    """With one forkserver for all tests of this process: they leave it alone. It lingers from each to the next."""
    return _forks(f"shared-{os.getpid()}", places, executor, tmp_path, short_path, monkeypatch)
