"""An epoch's own time and what is forgotten by it: never backwards, and the same when it is replayed."""

import json

import tailrace as tr
from support.bids import SCHEMA, RecordingRuntime
from tailrace.api.options import Options, WatermarkRule
from tailrace.api.relations import OutputMode
from tailrace.api.stream import Stream
from tailrace.ids import MIN_MICROS
from tailrace.plan.physical import plan_relation
from tailrace.spark.epoch.time.epoch_times import EpochTimes, QueryTime
from tailrace.spark.epoch.time.watermark import Watermark

SECOND = 1_000_000


def plan(ttl, mode, delay="10 seconds"):
    stream = Stream("a DataFrame", SCHEMA, RecordingRuntime()).withWatermark("ts", delay)
    made = stream if ttl is None else stream.withStateTtl(ttl, mode)
    return plan_relation(made.groupBy("auction").agg(tr.count()).source, OutputMode.UPDATE, Options())


def watermark(closed):
    return Watermark((closed,), closed, (0,))


def test_nothing_is_forgotten_before_anything_was_seen():
    planned = plan("1 second", "eventTime")
    times = EpochTimes().after(planned, Watermark.from_json({}, WatermarkRule.TAILRACE, 1), 7)
    assert times.expired_by(planned.stages[0]) == MIN_MICROS
    assert QueryTime(watermark(5), times).late_before(planned.stages[0]) == MIN_MICROS


def test_event_time_goes_by_the_watermark_and_rows_are_late_by_what_is_forgotten():
    planned = plan("2 seconds", "eventTime")
    stage = planned.stages[0]
    times = EpochTimes().after(planned, watermark(10 * SECOND), 7)
    assert times.expired_by(stage) == 8 * SECOND
    assert QueryTime(watermark(10 * SECOND), times).late_before(stage) == 8 * SECOND


def test_processing_time_goes_by_the_epochs_and_never_back():
    planned = plan("2 seconds", "processingTime")
    stage = planned.stages[0]
    first = EpochTimes().after(planned, watermark(0), 10 * SECOND)
    assert (first.now, first.expired_by(stage)) == (10 * SECOND, 8 * SECOND)
    second = first.after(planned, watermark(0), 4 * SECOND)  # the clock was set back
    assert (second.now, second.expired_by(stage)) == (10 * SECOND, 8 * SECOND)
    assert QueryTime(watermark(99), second).late_before(stage) == MIN_MICROS  # no row is late


def test_a_longer_time_to_live_brings_nothing_back():
    times = EpochTimes().after(plan("2 seconds", "eventTime"), watermark(10 * SECOND), 0)
    longer = plan("1 minute", "eventTime")
    times = times.after(longer, watermark(20 * SECOND), 0)
    assert times.expired_by(longer.stages[0]) == 8 * SECOND
    assert times.after(longer, watermark(70 * SECOND), 0).expired_by(longer.stages[0]) == 10 * SECOND


def test_what_was_recorded_is_read_back():
    times = EpochTimes().after(plan("2 seconds", "processingTime"), watermark(0), 10 * SECOND)
    assert EpochTimes.from_json(json.loads(json.dumps(times.to_json()))) == times
    assert EpochTimes.from_json({"combine": True}) == EpochTimes()


def test_without_a_time_to_live_rows_are_late_by_the_watermark_or_not_at_all():
    planned = plan(None, "")
    times = EpochTimes().after(planned, watermark(5), 7)
    assert times.expired == {} and QueryTime(watermark(5), times).late_before(planned.stages[0]) == MIN_MICROS
