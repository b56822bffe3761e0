"""The Yahoo Streaming Benchmark: its events, its answer against a plain recount, and runs on both engines."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import redis

from tailrace.lab import catalog, registry
from tailrace.lab.registry import Settings
from tailrace.lab.run import Epoch, RunOptions, run_workload
from tailrace.lab.workloads.ysb import ads
from tailrace.lab.workloads.ysb.campaigns import VARIABLE, campaigns_of, serving

catalog.load()
YSB = registry.workload("ysb")


def settings(events: int = 6_000, rows: int = 1_500, **values: Any) -> Settings:
    return Settings(events, rows, 3, {**YSB.values(), "ads": 500, "rate": 100, "unknown": 10, **values})


def made(given: Settings) -> list[dict[str, str]]:
    return [json.loads(text) for batch in ads.inputs(given) for text in batch[ads.FEED]["value"].to_pylist()]


def test_events_are_those_of_the_benchmark() -> None:
    given = settings(events=9_000, all_fields=True)
    events = made(given)
    assert events == made(given) and len(events) == 9_000
    assert list(events[0]) == ["user_id", "page_id", "ad_id", "ad_type", "event_type", "event_time", "ip_address"]
    assert all(isinstance(value, str) for event in events for value in event.values())
    assert len({event["user_id"] for event in events}) == len({event["page_id"] for event in events}) == 100
    times = [int(event["event_time"]) for event in events]
    assert times == sorted(times) and times[-1] - times[0] == 89_990
    assert 0.31 < Counter(event["event_type"] for event in events)["view"] / 9_000 < 0.36
    assert 245 < np.mean([len(json.dumps(event)) for event in events]) < 262
    few = made(settings())
    assert list(few[0]) == ["ad_id", "event_type", "event_time"]
    assert {len(event["ad_id"]) for event in few} == {36}


def test_ads_are_asked_for_by_a_zipf_law_that_may_move() -> None:
    count, known = 40_000, {row["ad_id"]: row["campaign_id"] for row in ads.table(settings().values).to_pylist()}
    assert len(known) == 500 and set(Counter(known.values()).values()) == {10}

    def given(**values: Any) -> Counter[str]:
        return Counter(event["ad_id"] for event in made(settings(count, count, unknown=0, **values)))

    weights = 1 / np.arange(1, 501)
    shares = np.array([n for _, n in given().most_common()]) / count
    assert abs(shares[:5] - (weights / weights.sum())[:5]).max() < 0.01
    flat = given(skew=0.0)
    assert len(flat) == 500 and max(flat.values()) < 3 * min(flat.values())
    assert set(given()) <= set(known)
    moving = made(settings(count, count, unknown=0, hot_events=count // 2))
    first, second = (Counter(event["ad_id"] for event in half) for half in (moving[: count // 2], moving[count // 2 :]))
    assert not {ad for ad, _ in first.most_common(10)} & {ad for ad, _ in second.most_common(10)}
    strange = sum(event["ad_id"] not in known for event in made(settings(count, count)))
    assert 0.08 < strange / count < 0.12


def test_the_answer_is_that_of_a_recount(tmp_path: Path) -> None:
    given, files = settings(), []
    for number, batch in enumerate(ads.inputs(given)):
        files.append(tmp_path / f"{number}.parquet")
        pq.write_table(batch[ads.FEED], files[-1])
    campaign = {row["ad_id"]: row["campaign_id"] for row in ads.table(given.values).to_pylist()}
    views = [event for event in made(given) if event["event_type"] == "view"]
    newest = max(int(view["event_time"]) for view in views)
    counts: Counter[tuple[str, int]] = Counter()
    for view in views:
        until = (int(view["event_time"]) // 10_000 + 1) * 10_000
        if view["ad_id"] in campaign and until <= newest:
            counts[campaign[view["ad_id"]], until] += 1
    assert YSB.oracle is not None and len(counts) > 100
    answer = YSB.oracle({ads.FEED: files}, given).to_pylist()
    assert {(row["campaign_id"], row["until_ms"]): row["views"] for row in answer} == counts
    assert len(answer) == len(counts)


def test_redis_holds_every_ad_and_goes_with_the_run() -> None:
    given = settings()
    table = ads.table(given.values)
    with serving(given) as environment:
        url = environment[VARIABLE]
        names = np.array([*table["ad_id"].to_pylist()[:7], "nobody's", table["ad_id"][0].as_py()], object)
        campaigns = table["campaign_id"].to_pylist()
        assert campaigns_of(url, names) == [*campaigns[:7], None, campaigns[0]]
        client = redis.Redis.from_url(url)
        assert client.dbsize() == 500
    with pytest.raises(redis.ConnectionError):
        client.ping()


class _Nobody:
    def stage(self, what: str, done: int, steps: int) -> None: ...

    def epoch(self, epoch: Epoch, done: int, steps: int) -> None: ...


@pytest.mark.long
@pytest.mark.parametrize("engine", ["tailrace", "spark-memory", "spark-rocksdb"])
def test_engines_give_the_right_answer(tmp_path: Path, engine: str) -> None:
    given = settings(12_000, 3_000)
    outcome = run_workload(
        RunOptions("ysb", engine, given.events, given.rows, 3, values=given.values), tmp_path, _Nobody()
    )
    assert outcome.summary["answers_equal"] and outcome.summary["rows_checked"] > 100
