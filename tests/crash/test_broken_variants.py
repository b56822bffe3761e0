"""Each rule of the commit, taken away: the crash tests must notice, or they prove nothing.

A variant is noticed when a seed loses or repeats rows, when a start refuses what is left behind, or when a check at run
time stops it. Seeds are tried until one does; without the variant all of them pass (``test_recovery``).
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from test_recovery import check

from support import recovery
from tailrace.commit import controller as controllers
from tailrace.commit.controller import Controller
from tailrace.commit.landing import Landing
from tailrace.commit.phases import Phases
from tailrace.env.faulty import SimulatedDisk, _File
from tailrace.ids import NO_EPOCH

SEEDS_MAX = 400
Break = Callable[[pytest.MonkeyPatch], None]


def no_gate(patch: pytest.MonkeyPatch) -> None:
    """Rows reach the sink whatever is durable. Also without the check at run time, which would stop it at once."""
    patch.setattr(Phases, "_check_begin", lambda *_: None)
    until = recovery._Behind.until

    def sometimes(self: Any, epoch: int) -> None:
        if self.rng.random() < 0.5:
            until(self, epoch)

    patch.setattr(recovery._Behind, "until", sometimes)


def told_before_it_is_synced(patch: pytest.MonkeyPatch) -> None:
    """A write that is told to be durable, and that a crash may still take."""
    write = SimulatedDisk.write_synced

    def unsynced(self: SimulatedDisk, path: Path, parts: Any) -> int:
        size = write(self, path, parts)
        folder = self._live[path.parent]
        folder[path.name] = _File(folder[path.name].data, False)
        return size

    patch.setattr(SimulatedDisk, "write_synced", unsynced)
    patch.setattr(SimulatedDisk, "sync_folder", lambda self, path: None)


def commits_moved_first(patch: pytest.MonkeyPatch) -> None:
    land = controllers.land

    def backwards(*args: Any) -> Landing:
        landing = land(*args)
        return replace(landing, rewind=landing.rewind[::-1])

    patch.setattr(controllers, "land", backwards)


def no_rewind(patch: pytest.MonkeyPatch) -> None:
    land = controllers.land
    patch.setattr(controllers, "land", lambda *args: replace(land(*args), rewind=()))


def one_version_kept(patch: pytest.MonkeyPatch) -> None:
    """Cleaning passes the epoch that Spark has committed."""
    start = Controller.start.__func__  # type: ignore[attr-defined]

    def fewer(cls: type[Controller], *args: Any, **more: Any) -> Controller:
        made: Controller = start(cls, *args, **{**more, "retain": 2})
        made._retain = 1
        return made

    patch.setattr(Controller, "start", classmethod(fewer))


def sealed_too_late(patch: pytest.MonkeyPatch) -> None:
    """The next epoch changes the state before the delta of this one is taken."""
    from tailrace.server.engine import Engine

    patch.setattr(Engine, "_is_open", lambda *_: False)


def applied_twice(patch: pytest.MonkeyPatch) -> None:
    """A start lands one epoch too early and replays what is in the state already."""
    decide = controllers.decide

    def late(commits: Sequence[int], offsets: Sequence[int], *rest: Any) -> Any:
        wanted = decide(commits, offsets, *rest)
        if wanted.replay is not None and wanted.epoch != NO_EPOCH:
            return replace(wanted, epoch=wanted.replay.epoch, manifest=wanted.replay)
        return wanted

    patch.setattr(controllers, "decide", late)


VARIANTS: tuple[Break, ...] = (
    no_gate,
    told_before_it_is_synced,
    commits_moved_first,
    no_rewind,
    one_version_kept,
    sealed_too_late,
    applied_twice,
)


@pytest.fixture(scope="module")
def scratch() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        yield folder


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "break_it",
    [
        pytest.param(variant, id=variant.__name__, marks=pytest.mark.long if variant is one_version_kept else ())
        for variant in VARIANTS
    ],
)
def test_a_broken_rule_is_noticed(monkeypatch: pytest.MonkeyPatch, scratch: str, break_it: Break) -> None:
    break_it(monkeypatch)
    for number in range(SEEDS_MAX):
        seed = random.randrange(2**32)
        try:
            check("rolling", seed, scratch)
        except Exception as error:
            print(f"noticed by seed {seed}, the {number + 1}th: {type(error).__name__}: {str(error)[:300]}")
            return
    raise AssertionError(f"{SEEDS_MAX} seeds have not noticed it")
