import pytest

import tailrace as tr
from support.bids import TYPES, RecordingRuntime, bids
from tailrace.api.options import Options, WatermarkRule
from tailrace.api.relations import OutputMode
from tailrace.api.windows import window
from tailrace.errors import AnalysisError
from tailrace.operators.aggregate.accumulators import Accumulator, AccumulatorInput
from tailrace.operators.aggregate.spec import AggregateSpec
from tailrace.operators.windows.time_window import TimeWindowSpec
from tailrace.plan.physical import plan_relation
from tailrace.state.layout import Merge
from tailrace.types import BIGINT, DOUBLE, DataType

TIMED = bids().withWatermark("ts", "10 seconds")


def planned(stream, mode=OutputMode.UPDATE, **options):
    return plan_relation(stream.source, mode, Options(**options))


def operator(*aggregates):
    return planned(TIMED.groupBy("auction").agg(*aggregates)).operator


@pytest.mark.parametrize(
    ("aggregate", "type_"),
    [
        (tr.count(), "bigint"),
        (tr.count("tags"), "bigint"),
        *((tr.sum(name), "bigint") for name in ("tiny", "small", "price", "auction")),
        (tr.sum("ratio"), "double"),
        (tr.sum("score"), "double"),
        (tr.sum("cost"), "decimal(20,2)"),
        (tr.sum("wide"), "decimal(38,2)"),
        *((tr.avg(name), "double") for name in ("tiny", "price", "auction", "ratio", "score")),
        (tr.avg("cost"), "decimal(14,6)"),
        (tr.avg("wide"), "decimal(38,6)"),
        *((tr.stddev(name), "double") for name in ("price", "score", "cost")),
        *((tr.max(name), TYPES[name]) for name in ("tiny", "ratio", "wide", "channel", "open", "day", "ntz", "raw")),
        (tr.min("cost"), "decimal(10,2)"),
        (tr.first("channel"), "string"),
        (tr.last("ratio"), "float"),
    ],
)
def test_result_types_are_sparks(aggregate, type_):
    (output,) = operator(aggregate).outputs
    assert output.type == DataType(type_)


@pytest.mark.parametrize(
    ("aggregate", "accumulators", "result"),
    [
        (tr.count(), [(Merge.ADD, AccumulatorInput.ONE, None, "bigint")], "count"),
        (tr.count("price"), [(Merge.ADD, AccumulatorInput.PRESENT, "price", "bigint")], "count"),
        (tr.sum("price"), [(Merge.ADD, AccumulatorInput.VALUE, "price", "bigint")], "sum"),
        (tr.sum("ratio"), [(Merge.ADD, AccumulatorInput.DOUBLE, "ratio", "double")], "sum"),
        (tr.sum("cost"), [(Merge.ADD, AccumulatorInput.VALUE, "cost", "decimal(20,2)")], "sum"),
        (
            tr.avg("price"),
            [
                (Merge.ADD, AccumulatorInput.DOUBLE, "price", "double"),
                (Merge.ADD, AccumulatorInput.PRESENT, "price", "bigint"),
            ],
            "avg",
        ),
        (
            tr.avg("cost"),
            [
                (Merge.ADD, AccumulatorInput.VALUE, "cost", "decimal(20,2)"),
                (Merge.ADD, AccumulatorInput.PRESENT, "cost", "bigint"),
            ],
            "avg",
        ),
        (tr.stddev("cost"), [(Merge.MOMENTS, AccumulatorInput.DOUBLE, "cost", "double")], "stddev"),
        (tr.min("channel"), [(Merge.MIN, AccumulatorInput.VALUE, "channel", "string")], "min"),
        (tr.first("price"), [(Merge.FIRST, AccumulatorInput.TIMED, "price", "int")], "first"),
        (tr.last("price", True), [(Merge.LAST, AccumulatorInput.TIMED_PRESENT, "price", "int")], "last"),
    ],
)
def test_what_each_aggregate_keeps(aggregate, accumulators, result):
    spec = operator(aggregate)
    assert spec.accumulators == tuple(Accumulator(m, input, c, DataType(t)) for m, input, c, t in accumulators)
    assert spec.outputs[0].function == result
    assert spec.outputs[0].accumulators == tuple(range(len(accumulators)))


def test_equal_values_are_kept_once():
    spec = operator(tr.avg("score"), tr.sum("score"), tr.count("score"), tr.sum("score").alias("again"))
    assert spec.accumulators == (
        Accumulator(Merge.ADD, AccumulatorInput.DOUBLE, "score", DOUBLE),
        Accumulator(Merge.ADD, AccumulatorInput.PRESENT, "score", BIGINT),
    )
    assert [output.accumulators for output in spec.outputs] == [(0, 1), (0,), (1,), (0,)]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (tr.sum("price"), tr.avg("price")),  # exact integers against doubles, as in Spark
        (tr.first("price"), tr.first("price", True).alias("x")),
        (tr.count(), tr.count("price")),
        (tr.sum("price"), tr.sum("small")),
    ],
)
def test_different_values_are_kept_apart(one, other):
    alone = len(operator(one).accumulators) + len(operator(other).accumulators)
    assert len(operator(one, other).accumulators) == alone


def test_only_needed_columns_are_read():
    plan = planned(TIMED.groupBy("channel").agg(tr.count(), tr.max("price")))
    assert [field.name for field in plan.inputs[0].columns] == ["ts", "price", "channel"]
    assert planned(bids().agg(tr.count())).inputs[0].columns == ()


def test_the_window_reaches_the_operator():
    stream = TIMED.groupBy("auction", window("ts", "10 seconds", "4 seconds", "1 second").alias("w")).count()
    plan = planned(stream, OutputMode.APPEND, shards=8, watermark=WatermarkRule.SPARK)
    spec = plan.operator
    assert spec.window == TimeWindowSpec(10_000_000, 4_000_000, 1_000_000)
    assert spec.window.pane_offsets.tolist() == [0, 2_000_000, 4_000_000, 6_000_000, 8_000_000]
    assert (spec.window_name, spec.window_position, spec.time_column.name) == ("w", 1, "ts")
    assert (spec.emit_changed, spec.watermarked, spec.shards) == (False, True, 8)
    assert (plan.delays, plan.options.watermark) == ((10_000_000,), WatermarkRule.SPARK)
    assert plan.output_mode is OutputMode.APPEND


def test_a_window_without_a_watermark_never_closes():
    plan = planned(bids().groupBy(window("ntz", "1 second")).count())
    assert (plan.operator.watermarked, plan.delays, plan.operator.time_column.name) == (False, None, "ntz")


def test_without_a_window_nothing_closes():
    plan = planned(TIMED.groupBy("auction").count())
    assert (plan.operator.watermarked, plan.delays, plan.operator.time_column.name) == (False, (10_000_000,), "ts")


@pytest.mark.parametrize("ansi", [True, False])
def test_ansi_is_the_sessions(ansi):
    assert planned(bids(RecordingRuntime(ansi=ansi)).agg(tr.count())).operator.ansi is ansi


def test_the_operator_travels_as_json():
    stream = TIMED.groupBy(window("ts", "1 second"), "auction").agg(
        tr.avg("cost"), tr.first("price"), tr.stddev("score")
    )
    spec = planned(stream).operator
    assert AggregateSpec.from_json(spec.to_json()) == spec
    assert AggregateSpec.from_json(operator(tr.count()).to_json()) == operator(tr.count())


@pytest.mark.parametrize(
    ("keys", "counts", "firsts", "fits"), [(1, 1, 3, True), (12, 10, 20, True), (12, 11, 20, False)]
)
def test_a_record_has_room_for_so_many(keys, counts, firsts, fits):
    names = [name for name in TYPES if name not in ("score", "ratio", "tags", "extra", "person", "nocase", "a.b")]
    values = [(function, name) for name in names for function in (tr.first, tr.last)][:firsts]
    wide = [tr.count(name) for name in list(TYPES) if name != "nocase" and name != "a.b"][:counts]
    stream = TIMED.groupBy(*names[:keys]).agg(*wide, *(function(name) for function, name in values))
    if fits:
        assert planned(stream)
    else:
        with pytest.raises(AnalysisError, match="at most 62"):
            planned(stream)
