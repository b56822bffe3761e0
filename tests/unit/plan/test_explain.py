import pytest

import tailrace as tr
from support.bids import bids
from tailrace.api.options import Options, Route, WatermarkRule
from tailrace.api.relations import OutputMode
from tailrace.api.windows import window
from tailrace.operators.aggregate.window_forms import choose_store
from tailrace.operators.pattern import Pattern
from tailrace.operators.windows.window_kind import WindowKind
from tailrace.plan.explain import explain
from tailrace.plan.physical import plan_query, plan_relation


def save(df, epoch):
    pass


def bids_per_auction(*window_arguments):
    stream = bids().withWatermark("ts", "10 seconds")
    return stream.groupBy(window("ts", *window_arguments), "auction").agg(tr.count().alias("bids"), tr.max("price"))


def started(stream, **options):
    return stream.writeStream.options(checkpointLocation="/data/q", **options)


def test_the_whole_tree():
    query = (
        started(bids_per_auction("10 seconds", "2 seconds"), shards=32, memory="512MB")
        .foreachBatch(save)
        .trigger(processingTime="1 second")
        .queryName("hot")
        .start()
    )
    assert explain(plan_query(query), query) == (
        """\
Sink foreachBatch save of query 'hot'
|  output mode append: the rows of windows that closed
|  trigger every 1 second
+- Aggregate
   |  group by auction bigint
   |  window 10 seconds every 2 seconds, over ts, in column window
   |  panes of 2 seconds, 5 a window; a row is kept in one pane, windows are made of panes
   |  output bids: bigint from count(*)
   |  output max(price): int from max(price)
   |  watermark on ts, 10 seconds behind the largest event time
   |  watermark rule tailrace: windows close by all rows seen, this epoch's included
   +- State
      |  store RMW: the aggregates are incremental and windows overlap: one record a key and pane, one write a row """
        """whatever the overlap
      |  shards 32
      |  memory 512MB for each state server
      |  disk for the rest: 0.02 of its lists is read ahead, compacted beyond 1.5 times the bytes needed
      |  spilled state: fetched while the batch that needs it still arrives; evicted by timestamp, read mapped
      |  commit async: an epoch is durable before the rows of the next reach the sink
      |  keeps 2 durable versions; where servers are lost, goes on for 10 minutes without progress
      |  options set: shards=32, memory=512MB
      |  state location /data/q/tailrace
      |  checkpoint location /data/q
      +- Ingest
         |  route direct: each task sends rows straight to the servers that own their keys
         |  combine auto: tasks merge rows of the same key before sending, where that pays
         |  transport auto, encrypted between machines
         +- Source
               reads ts timestamp, auction bigint, price int"""
    )


@pytest.mark.parametrize(
    ("stream", "mode", "options", "words"),
    [
        (
            bids().agg(tr.count()),
            OutputMode.UPDATE,
            Options(),
            ["one group", "no watermark", "no column", "not chosen"],
        ),
        (bids().withWatermark("ts", "1 second").agg(tr.last("price")), OutputMode.UPDATE, Options(), ["no window"]),
        (bids_per_auction("1 minute"), OutputMode.APPEND, Options(), ["1 minute, tumbling", "one a window"]),
        (bids_per_auction("1 minute"), OutputMode.APPEND, Options(watermark=WatermarkRule.SPARK), ["rule spark"]),
        (bids_per_auction("1 minute"), OutputMode.APPEND, Options(route=Route.SHUFFLE), ["route shuffle"]),
        (
            bids().groupBy("auction", tr.count_window(9)).agg(tr.count()),
            OutputMode.APPEND,
            Options(),
            ["store RMW", "combine off: the operator needs every row as it is"],
        ),
    ],
)
def test_a_preview_says(stream, mode, options, words):
    text = explain(plan_relation(stream.source, mode, options))
    for word in words:
        assert word in text


def test_sinks_and_triggers_are_shown():
    stream = bids_per_auction("1 minute")
    query = started(stream).partitionBy("auction").trigger(availableNow=True).start("/out")
    text = explain(plan_query(query), query)
    assert text.startswith("Sink parquet /out partitioned by auction\n")
    assert "available now" in text
    query = started(stream).format("console").start()
    assert "as soon as" in explain(plan_query(query), query)


@pytest.mark.parametrize(
    ("stream", "kind"),
    [
        (bids().agg(tr.count()), WindowKind.GLOBAL),
        (bids_per_auction("1 minute"), WindowKind.TUMBLING),
        (bids_per_auction("1 minute", "1 second"), WindowKind.SLIDING),
    ],
)
def test_the_store_follows_from_the_window(stream, kind):
    operator = plan_relation(stream.source, OutputMode.UPDATE, Options()).operator
    assert operator.window_kind is kind
    assert choose_store(operator).pattern is Pattern.RMW
