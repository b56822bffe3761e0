"""The plans of process and of a time-to-live: what explain says of them, and what of them may not change."""

import json

import pytest

import tailrace as tr
from support.bids import SCHEMA, RecordingRuntime
from tailrace.api.options import Options, parse_options
from tailrace.api.relations import OutputMode
from tailrace.api.stream import Stream
from tailrace.api.windows import window
from tailrace.errors import AnalysisError
from tailrace.operators.registry import spec_from_json
from tailrace.operators.timers.ttl import Clock
from tailrace.plan.explain import explain
from tailrace.plan.fingerprint import differences, fingerprint
from tailrace.plan.physical import plan_relation
from tailrace.types import DataType, Field


class Runtime(RecordingRuntime):
    def fields(self, schema):
        pairs = (each.split() for each in schema.split(", "))
        return tuple(Field(name, DataType(type_)) for name, type_ in pairs)


def stream(time="ts"):
    made = Stream("a DataFrame", SCHEMA, Runtime())
    return made if time is None else made.withWatermark(time, "10 seconds")


def one(rows, state):
    return rows, state


def another(rows, state):
    return state, rows


STATE, OUTPUT = "n bigint, until timestamp", "auction bigint, at timestamp"


def process(made=None, func=one, keys=("auction",), schema=OUTPUT, state=STATE, columns=("price",), **more):
    made = stream() if made is None else made
    return made.groupBy(*keys).process(func, schema, state=state, columns=columns, **more)


def rolling(ttl=None, mode="eventTime", time="ts"):
    made = stream(time)
    return (made if ttl is None else made.withStateTtl(ttl, mode)).groupBy("auction").agg(tr.sum("price"))


def planned(relation, **options):
    mode = OutputMode.UPDATE if relation.source.refusal(OutputMode.APPEND) else OutputMode.APPEND
    return plan_relation(relation.source, mode, Options(**options))


def stored(relation):
    return json.loads(json.dumps(fingerprint(planned(relation))))


def changed(was, now):
    return differences(stored(was), stored(now))


def test_the_operator_of_a_process():
    spec = planned(process(timers="until", eventTime="at")).operator
    assert spec.name == "process" and spec.watermarked
    assert [field.name for field in spec.rows] == ["ts", "price"]  # event time first
    assert spec.timers == "until" and spec.timers_clock is Clock.EVENT and spec.time_name == "at"
    assert spec_from_json(spec.to_json()) == spec
    assert spec.without_code() != spec
    assert [field.name for field in planned(process()).inputs[0].columns] == ["ts", "auction", "price"]


@pytest.mark.parametrize(
    ("relation", "said"),
    [
        (
            process,
            ["Process", "your function of the rows and the state of each auction bigint", "state: n bigint, until"],
        ),
        (process, ["store RMW: the state of a key is read, given to your function and written"]),
        (process, ["gives a call of your function 10 minutes"]),
        (lambda: process(timers="until"), ["a key is due when until has passed: the watermark has reached it"]),
        (lambda: process(stream(None), timers="until", timeMode="processingTime"), ["an epoch begins at or after it"]),
        (lambda: process(stream(None)), ["no watermark: no row is late and state stays until your function drops it"]),
        (
            lambda: process(stream().withStateTtl("1 hour")),
            ["time-to-live 1 hour in event time: a key is forgotten that was last updated 1 hour before the watermark"],
        ),
        (lambda: rolling("5 minutes"), ["time-to-live 5 minutes in event time"]),
        (
            lambda: rolling("5 minutes", "processingTime", None),
            [
                "time-to-live 5 minutes in processing time",
                "before the time at which an epoch begins",
                "goes by its time",
            ],
        ),
    ],
)
def test_explain_says_it(relation, said):
    text = explain(planned(relation()))
    for words in said:
        assert words in text, text


def test_explain_says_nothing_of_functions_or_ttl_where_there_are_none():
    text = explain(planned(rolling()))
    assert "function" not in text and "time-to-live" not in text and "state is never dropped" in text


@pytest.mark.parametrize(
    ("was", "now", "said"),
    [
        (process, lambda: process(keys=("price",)), "group columns: was auction bigint, is now price int"),
        (
            process,
            lambda: process(state="n int, until timestamp"),
            "state: was n bigint, until timestamp, is now n int",
        ),
        (process, lambda: process(timers="until"), "timers: was none, is now until in event time"),
        (
            lambda: process(timers="until"),
            lambda: process(timers="until", timeMode="processingTime"),
            "timers: was until in event time, is now until in processing time",
        ),
        (process, lambda: process(eventTime="at"), "event time of the output: was none, is now at"),
        (process, lambda: process(stream().withStateTtl("1 hour")), "time-to-live: was none, is now in event time"),
        (process, lambda: process(schema="auction bigint, at string"), "output: was auction bigint, at timestamp"),
        (process, rolling, "operator: was Process, is now Aggregate"),
        (rolling, lambda: rolling("1 hour"), "time-to-live: was none, is now in event time"),
        (lambda: rolling("1 hour"), lambda: rolling("1 hour", "processingTime"), "is now in processing time"),
    ],
)
def test_what_may_not_change(was, now, said):
    assert any(said in each for each in changed(was(), now())), changed(was(), now())


@pytest.mark.parametrize(
    ("was", "now"),
    [
        (process, lambda: process(func=another)),  # mended
        (process, lambda: process(columns=["price", "channel"])),  # rows are not kept
        (lambda: rolling("1 hour"), lambda: rolling("2 minutes")),  # records know when they were updated
        (lambda: process(stream().withStateTtl("1 hour")), lambda: process(stream().withStateTtl("1 day"))),
    ],
)
def test_what_may_change(was, now):
    assert changed(was(), now()) == []


def test_the_time_of_the_last_update_is_kept_first_and_shared():
    spec = planned(stream().withStateTtl("1 hour").groupBy("auction").agg(tr.max("ts"), tr.count())).operator
    assert spec.watermarked and spec.late_by_ttl and spec.ttl.span == 3_600_000_000
    assert [one.column for one in spec.accumulators] == ["ts", None]
    processing = planned(rolling("1 hour", "processingTime")).operator
    assert not processing.watermarked and not processing.late_by_ttl and processing.accumulators[0].column is None


@pytest.mark.parametrize(
    ("relation", "words"),
    [
        (
            lambda: stream().withStateTtl("1 hour").groupBy("auction").agg(tr.median("price")),
            ["median(price) keeps every row"],
        ),
        (lambda: stream().withStateTtl("1 hour").groupBy("auction").store("AUR").agg(tr.count()), ["store AUR keeps"]),
        (
            lambda: process(state=", ".join(f"c{i} int" for i in range(61))),
            ["the state of a key has 63 columns", "at most 62"],
        ),
    ],
)
def test_what_cannot_be_planned_says_why(relation, words):
    with pytest.raises(AnalysisError) as caught:
        planned(relation())
    for word in words:
        assert word in str(caught.value)


def test_windows_may_follow_a_process_with_an_event_time():
    reported = process(timers="until", eventTime="at")
    plan = planned(reported.groupBy(window("at", "1 hour")).agg(tr.count()))
    assert [stage.operator.name for stage in plan.stages] == ["process", "aggregate-2"]
    assert plan.stages[1].operator.watermarked and plan.stages[1].lag == 0


def test_duplicates_are_dropped_for_as_long_as_their_time_to_live():
    made = Stream("a DataFrame", SCHEMA[:4], Runtime()).withWatermark("ts", "10 seconds").withStateTtl("1 hour")
    plan = planned(made.dropDuplicates(["auction"]))
    assert plan.operator.within and plan.operator.delay == 3_600_000_000
    assert plan.delays == (10_000_000,)  # the watermark's own
    assert "until the watermark reaches the event time of its row and 1 hour" in explain(plan)


@pytest.mark.parametrize(("given", "seconds"), [("90 seconds", 90), ("1 hour", 3600), ("250 milliseconds", 0.25)])
def test_how_long_a_call_may_take_is_an_option(given, seconds):
    assert parse_options({"functionTimeout": given}).function_timeout == seconds * 1e6


@pytest.mark.parametrize("given", ["0 seconds", "-1 second", "soon", "10"])
def test_a_timeout_must_be_a_duration(given):
    with pytest.raises(AnalysisError, match="option 'functionTimeout'"):
        parse_options({"functionTimeout": given})
