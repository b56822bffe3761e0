"""The cache policies against models that are plain lists."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.state.cache.policies import NEVER, POLICIES, policy_of


class Model:
    """A policy as its definition reads: entries in the order in which they came, each with what is known of its use."""

    def __init__(self, policy: str) -> None:
        self.policy = policy
        self.order: list[int] = []  # ids
        self.time: dict[int, int] = {}
        self.turn: dict[int, int] = {}
        self.mark: dict[int, bool] = {}
        self.turns = 0
        self.hand = 0

    def use(self, id_: int, time: int) -> None:
        self.time[id_] = max(self.time.get(id_, NEVER), time)
        self.turn[id_] = self.turns
        self.turns += 1
        self.mark[id_] = True

    def add(self, id_: int) -> None:
        self.order.append(id_)
        self.time.pop(id_, None)
        self.mark[id_] = False

    def victims(self, wanted: int) -> list[int]:
        wanted = min(wanted, len(self.order))
        if self.policy == "clock":
            going: list[int] = []
            while len(going) < wanted:
                self.hand = 0 if self.hand >= len(self.order) else self.hand
                id_ = self.order[self.hand]
                if id_ not in going:
                    if self.mark[id_]:
                        self.mark[id_] = False
                    else:
                        going.append(id_)
                self.hand += 1
            return going
        rank = self.time if self.policy == "timestamp" else self.turn
        return sorted(self.order, key=lambda id_: (rank[id_], self.order.index(id_)))[:wanted]

    def leave(self, going: list[int]) -> None:
        self.hand -= sum(1 for id_ in self.order[: self.hand] if id_ in going)
        self.order = [id_ for id_ in self.order if id_ not in going]


@pytest.mark.parametrize("policy", POLICIES)
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_victims_are_those_of_the_model(policy: str, data: st.DataObject) -> None:
    real, model = policy_of(policy), Model(policy)
    ids: list[int] = []
    ranks = np.empty(0, np.int64)
    fresh = 0
    for _ in range(data.draw(st.integers(1, 12))):
        step = data.draw(st.sampled_from(["add", "use", "evict"]))
        if step == "add":
            for _ in range(data.draw(st.integers(1, 6))):
                ids.append(fresh)
                model.add(fresh)
                ranks = np.append(ranks, 0 if policy == "clock" else NEVER)
                time = data.draw(st.integers(-5, 20))
                real.use(ranks, np.array([len(ids) - 1]), np.array([time]))
                model.use(fresh, time)
                fresh += 1
        elif step == "use" and ids:
            chosen = data.draw(st.lists(st.integers(0, len(ids) - 1), max_size=8))
            times = [data.draw(st.integers(-5, 20)) for _ in chosen]
            real.use(ranks, np.array(chosen, np.int64), np.array(times, np.int64))
            for at, time in zip(chosen, times, strict=True):
                model.use(ids[at], time)
        elif step == "evict" and ids:
            wanted = data.draw(st.integers(0, len(ids)))
            going = real.victims(ranks, np.ones(len(ids), bool), wanted)
            expected = model.victims(wanted)
            assert sorted(ids[at] for at in going) == sorted(expected)
            model.leave(expected)
            kept = np.setdiff1d(np.arange(len(ids)), going)
            real.renumbered(kept)
            ids, ranks = [ids[at] for at in kept], ranks[kept]
            assert ids == model.order


def test_an_unknown_policy_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"'fifo'.*timestamp, lru, clock"):
        policy_of("fifo")
