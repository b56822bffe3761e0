import json

import pytest

import tailrace as tr
from support.bids import RecordingRuntime, bids
from tailrace.api.options import Combine, Options, Route, Transport, WatermarkRule
from tailrace.api.relations import OutputMode
from tailrace.api.windows import window
from tailrace.plan.fingerprint import differences, fingerprint
from tailrace.plan.physical import plan_relation


def stored(
    *aggregates,
    keys=("auction",),
    span=("10 seconds",),
    delay="10 seconds",
    time="ts",
    mode="update",
    ansi=True,
    **options,
):
    stream = bids(RecordingRuntime(ansi=ansi))
    stream = stream if delay is None else stream.withWatermark(time, delay)
    groups = [*([window(time, *span)] if span else []), *keys]
    definition = stream.groupBy(*groups).agg(*(aggregates or (tr.count(), tr.max("price")))).source
    plan = plan_relation(definition, OutputMode(mode), Options(**options))
    return json.loads(json.dumps(fingerprint(plan)))


def test_the_same_query_may_go_on():
    assert differences(stored(), stored()) == []


@pytest.mark.parametrize(
    "free",
    [
        {"route": Route.SHUFFLE},
        {"combine": Combine.OFF},
        {"memory_bytes": 1 << 24},
        {"transport": Transport.TCP},
        {"retain": 9},
        {"recovery_timeout": 1},
        {"delay": "1 hour"},
        {"ansi": False},
        {"span": ("10 seconds", "10 seconds", "0 seconds")},
    ],
)
def test_how_a_query_is_run_may_change(free):
    assert differences(stored(), stored(**free)) == []


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"shards": 32}, ["shards: was 64, is now 32"]),
        ({"watermark": WatermarkRule.SPARK}, ["watermark rule: was tailrace, is now spark"]),
        ({"mode": "append"}, ["output mode: was update, is now append"]),
        ({"span": ("20 seconds",)}, ["window: was 10 seconds, tumbling, is now 20 seconds, tumbling"]),
        (
            {"span": ("10 seconds", "2 seconds", "1 second")},
            ["window: was 10 seconds, tumbling, is now 10 seconds every 2 seconds, starting at 1 second"],
        ),
        ({"time": "ntz"}, ["event time column: was ts timestamp, is now ntz timestamp_ntz"]),
        ({"delay": None}, ["watermark: was set, is now not set"]),
    ],
)
def test_what_may_not_change_is_said(changed, message):
    assert differences(stored(), stored(**changed)) == message


def test_changed_keys_and_columns():
    assert differences(stored(), stored(keys=("auction", "channel"))) == [
        "group columns: was auction bigint, is now auction bigint, channel string",
        "output columns: was window, auction, count(1), max(price), "
        "is now window, auction, channel, count(1), max(price)",
    ]


def test_changed_outputs():
    assert differences(stored(), stored(tr.count(), tr.avg("price"))) == [
        "output 'max(price)': was int from max(price), is now not there",
        "output 'avg(price)': was not there, is now double from sum(price as double) / count(price)",
    ]
    assert differences(stored(tr.sum("price").alias("x")), stored(tr.sum("cost").alias("x"))) == [
        "output 'x': was bigint from sum(price), is now decimal(20,2) from sum(cost)"
    ]
    assert differences(stored(tr.first("price")), stored(tr.first("price", True))) == [
        "output 'first(price)': was int from first(price), is now int from first(price ignoring nulls)"
    ]


def test_another_order_of_outputs_is_another_layout():
    assert differences(stored(), stored(tr.max("price"), tr.count())) == [
        "output columns: was window, auction, count(1), max(price), is now window, auction, max(price), count(1)"
    ]


def test_another_version_is_said_alone():
    assert differences({"version": 0}, stored()) == ["version of the stored description: was 0, is now 7"]
