from dataclasses import replace
from datetime import timedelta

import pytest

import tailrace as tr
from support.bids import RecordingRuntime, bids
from tailrace.api.definition import AvailableNow, Foreach, ForeachBatch, Format, Once, ProcessingTime
from tailrace.api.options import Combine, CommitMode, Options, Route, Transport, WatermarkRule
from tailrace.api.relations import OutputMode
from tailrace.api.windows import count_window, window
from tailrace.errors import AnalysisError


def save(df, epoch):
    pass


def windowed():
    return bids().withWatermark("ts", "1 second").groupBy(window("ts", "10 seconds"), "auction").agg(tr.count())


def rolling():
    return bids().groupBy("auction").count()


def writer(stream=None):
    return (stream or windowed()).writeStream.option("checkpointLocation", "/data/q")


def refused(call, *words):
    with pytest.raises(AnalysisError) as caught:
        call()
    for word in words:
        assert word in str(caught.value)


def test_start_hands_a_frozen_definition_to_the_runtime():
    runtime = RecordingRuntime()
    stream = bids(runtime).withWatermark("ts", "1 second").groupBy(window("ts", "10 seconds")).count()
    query = stream.writeStream.foreachBatch(save).option("checkpointLocation", "/data/q").queryName("n").start()
    assert runtime.started == [query]
    assert query.relation is stream.source
    assert (query.output_mode, query.sink, query.name) == (OutputMode.APPEND, ForeachBatch(save), "n")
    assert (query.options, query.trigger) == (Options(), ProcessingTime(0))
    assert (query.checkpoint_location, query.state_location) == ("/data/q", "/data/q/tailrace")


# Modes


def test_complete_is_for_aggregations_and_sinks_that_replace():
    def complete(stream):
        return writer(stream).outputMode("COMPLETE")

    for stream in (rolling(), bids().groupBy(window("ts", "1 second")).count()):
        assert complete(stream).foreachBatch(save).start().output_mode is OutputMode.COMPLETE
    for name in ("memory", "console", "noop"):
        assert complete(rolling()).format(name).start(queryName="t").sink.name == name
    for name in ("parquet", "csv"):
        refused(lambda name=name: complete(rolling()).format(name).start("/out"), name, "foreachBatch", "overwrite")
    refused(lambda: complete(rolling()).start("/out"), "parquet", "complete")
    for made, words in (
        (replace(bids(), schema=bids().schema[2:4]).dropDuplicates(["auction"]), "outputMode('append')"),
        (bids().groupBy("auction").topN(3, "price", columns=["price"]), "outputMode('update')"),
        (bids().groupBy(count_window(3)).count(), "when it is full"),
    ):
        refused(lambda made=made: complete(made).foreachBatch(save).start(), words)


@pytest.mark.parametrize("mode", ["", "upsert", None, 5])
def test_unknown_modes(mode):
    refused(lambda: writer().outputMode(mode), "'append', 'update' or 'complete'")


@pytest.mark.parametrize(
    ("stream", "words"),
    [
        (lambda: bids().groupBy("auction").count(), ("window", "watermark", "update")),
        (lambda: bids().groupBy(window("ts", "1 second")).count(), ("withWatermark", "update")),
        (lambda: bids().withWatermark("ts", "1 second").groupBy("auction").count(), ("window", "update")),
    ],
)
def test_append_needs_a_window_and_a_watermark(stream, words):
    refused(lambda: writer(stream()).foreachBatch(save).start(), "append", *words)
    assert writer(stream()).foreachBatch(save).outputMode("Update").start().output_mode is OutputMode.UPDATE


# Sinks


def test_no_sink():
    refused(lambda: writer().start(), "no sink", "foreachBatch")


def test_two_sinks():
    refused(lambda: writer().foreachBatch(save).format("console").start(), "one sink")


def test_foreach_batch_takes_a_function():
    refused(lambda: writer().foreachBatch("save"), "function")


def test_foreach_takes_a_function_or_an_object_with_process():
    class Rows:
        def process(self, row):
            pass

    rows = Rows()
    assert writer().foreach(rows).start().sink == Foreach(rows)
    assert writer().foreach(save).start().sink == Foreach(save)
    refused(lambda: writer().foreach("save"), "function of a row", "process")
    rows.open = 5
    refused(lambda: writer().foreach(rows), "open", "method")
    refused(lambda: writer().foreach(save).format("parquet").start("/out"), "foreach", "one sink")
    refused(lambda: writer().foreach(save).partitionBy("auction").start(), "foreach", "partitionBy")
    assert writer().foreachBatch(save).foreach(save).start().sink == Foreach(save), "the last one, as in Spark"


def test_tables_say_what_to_use():
    refused(lambda: writer().toTable("t"), "foreachBatch", "parquet")
    refused(lambda: writer().clusterBy("auction"), "partitionBy", "foreachBatch")
    for name, word in (("hudi", "upsert"), ("JDBC", "transaction")):
        writing = writer().format(name)
        refused(lambda writing=writing: writing.start("/out"), name, word, "foreachBatch")
        refused(writing.option("dbtable", "t").start, name, word)
        late = writer().format("noop")
        refused(lambda late=late, name=name: late.lateRows(format=name, path="/late"), "lateRows", name.lower(), word)
    refused(lambda: writer().format("org.acme.Lake").start("/out"), "org.acme.Lake", "foreachBatch", "parquet")


@pytest.mark.parametrize("name", ["parquet", "json", "orc", "Parquet"])
def test_file_formats_need_a_path(name):
    refused(lambda: writer().format(name).start(), name.lower(), "path")
    assert writer().format(name).start("/out").sink == Format(name.lower(), "/out")
    assert writer().format(name).option("PATH", "/out").start().sink == Format(name.lower(), "/out")


def test_a_path_alone_is_parquet():
    assert writer().start("/out").sink == Format("parquet", "/out")


@pytest.mark.parametrize("name", ["csv", "text"])
def test_flat_formats_cannot_hold_a_window(name):
    refused(lambda: writer().format(name).start("/out"), name, "'window'", "window.start")
    assert writer(rolling()).outputMode("update").format(name).start("/out").sink.name == name


def test_memory_needs_a_name():
    refused(lambda: writer().format("memory").start(), "queryName")
    assert writer().format("memory").start(queryName="t").sink == Format("memory")


def test_formats_get_their_options():
    sink = writer().format("AVRO").option("positional", True).option("level", 3).start("/out").sink
    assert sink == Format("avro", "/out", (("level", "3"), ("positional", "true")))


def test_options_nobody_reads_are_refused_with_foreach_batch():
    refused(lambda: writer().foreachBatch(save).option("compression", "zstd").start(), "compression", "foreachBatch")
    refused(lambda: writer().foreachBatch(save).start("/out"), "path")


def test_partitions():
    assert writer().partitionBy("Auction").start("/out").sink.partition_by == ("auction",)
    assert writer().start("/out", partitionBy=["auction"]).sink.partition_by == ("auction",)
    refused(lambda: writer().partitionBy("price"), "price", "window, auction, count(1)")
    refused(lambda: writer().partitionBy("window"), "struct")
    refused(lambda: writer().partitionBy("auction").format("console").start(), "partitionBy")


def test_start_takes_all_that_pysparks_takes():
    query = rolling().writeStream.start(
        "/out", format="json", outputMode="update", queryName="q", checkpointLocation="/data/q", shards=8
    )
    assert (query.sink, query.output_mode, query.name) == (Format("json", "/out"), OutputMode.UPDATE, "q")
    assert query.options.shards == 8


# Triggers


@pytest.mark.parametrize(
    ("arguments", "trigger"),
    [
        ({"processingTime": "1 second"}, ProcessingTime(1_000_000)),
        ({"processingTime": "0 seconds"}, ProcessingTime(0)),
        ({"processingTime": timedelta(seconds=2)}, ProcessingTime(2_000_000)),
        ({"availableNow": True}, AvailableNow()),
        ({"once": True}, Once()),
    ],
)
def test_triggers(arguments, trigger):
    assert writer().format("noop").trigger(**arguments).start().trigger == trigger


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ({"once": False}, "once must be True"),
        ({"once": True, "availableNow": True}, "exactly one"),
        ({"continuous": "1 second"}, "has no epochs"),
        ({"realTime": "1 second"}, "when it is done: use processingTime='0 seconds'"),
        ({}, "exactly one"),
        ({"processingTime": "1 second", "availableNow": True}, "exactly one"),
        ({"availableNow": False}, "True"),
        ({"processingTime": "-1 second"}, "processingTime"),
        ({"processingTime": "fast"}, "processingTime"),
    ],
)
def test_bad_triggers(arguments, word):
    refused(lambda: writer().trigger(**arguments), word)


# Options


def test_a_checkpoint_is_required():
    refused(lambda: windowed().writeStream.format("noop").start(), "checkpointLocation", ".option(")
    refused(
        lambda: windowed().writeStream.format("noop").option("checkpointLocation", " ").start(), "checkpointLocation"
    )


@pytest.mark.parametrize(
    ("checkpoint", "state"),
    [
        ("/d/q/", "/d/q/tailrace"),
        ("file:/d/q", "file:/d/q/tailrace"),
        ("file:///d", "file:///d/tailrace"),
        ("d", "d/tailrace"),
    ],
)
def test_state_lies_in_a_local_checkpoint(checkpoint, state):
    assert writer().format("noop").option("checkpointLocation", checkpoint).start().state_location == state


@pytest.mark.parametrize("checkpoint", ["s3a://bucket/q", "hdfs://host/q", "gs://b/q"])
def test_a_remote_checkpoint_needs_a_state_location(checkpoint):
    remote = writer().format("noop").option("checkpointLocation", checkpoint)
    refused(remote.start, checkpoint, "stateLocation")
    assert remote.option("stateLocation", "s3://b/s").start().state_location == "s3://b/s"
    refused(remote.option("stateLocation", "").start, "stateLocation", "empty")


def test_every_option_of_ours():
    query = (
        writer()
        .format("noop")
        .options(shards=128, route="shuffle", combine="off", watermark="spark", memory="512MB", transport="tcp")
        .options(commit="sync", retain="5", RECOVERYTIMEOUT="1 second")
        .start()
    )
    assert query.sink == Format("noop")
    assert query.options == Options(
        shards=128,
        route=Route.SHUFFLE,
        combine=Combine.OFF,
        watermark=WatermarkRule.SPARK,
        memory_bytes=512 << 20,
        transport=Transport.TCP,
        commit=CommitMode.SYNC,
        retain=5,
        recovery_timeout=1_000_000,
    )


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1GB", 1 << 30),
        ("1g", 1 << 30),
        ("512 MB", 512 << 20),
        ("2GiB", 2 << 30),
        ("2048k", 2 << 20),
        ("1048576", 1 << 20),
    ],
)
def test_memory(text, size):
    assert writer().format("noop").option("memory", text).start().options.memory_bytes == size


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("shards", "0", ("1 to 4096",)),
        ("shards", "4097", ("1 to 4096",)),
        ("shards", "many", ("'many'",)),
        ("shards", 1.5, ("'1.5'",)),
        ("shards", "9" * 5000, ("1 to 4096",)),
        ("route", "magic", ("'direct'", "'shuffle'")),
        ("combine", True, ("'auto'", "'on'", "'off'")),
        ("watermark", "flink", ("'tailrace'", "'spark'")),
        ("transport", "udp", ("'unix'", "'tcp'")),
        ("memory", "lots", ("'512MB'",)),
        ("memory", "1KB", ("at least 1MB",)),
        ("memory", "-1GB", ("'512MB'",)),
        ("memory", "1.5GB", ("'512MB'",)),
        ("commit", "asynchronous", ("'sync'", "'async-checkpoint'", "'async'")),
        ("commit", "never", ("'sync'",)),
        ("retain", "1", ("2 to",)),
        ("recoveryTimeout", "soon", ("a duration",)),
    ],
)
def test_bad_values_name_the_option(name, value, words):
    refused(writer().format("noop").option(name, value).start, name, *words)


@pytest.mark.parametrize(
    ("typo", "meant"),
    [
        ("shard", "shards"),
        ("checkpointLocaton", "checkpointLocation"),
        ("recoverytime", "recoveryTimeout"),
        ("watermarks", "watermark"),
        ("state_location", "stateLocation"),
        ("comit", "commit"),
        ("memmory", "memory"),
    ],
)
def test_misspelled_options_are_refused(typo, meant):
    refused(writer().format("noop").option(typo, "1").start, typo, f"did you mean '{meant}'")


@pytest.mark.parametrize(
    "name",
    [
        "compression",
        "header",
        "sep",
        "mode",
        "numRows",
        "truncate",
        "lineSep",
        "dateFormat",
        "timestampFormat",
        "encoding",
        "maxRecordsPerFile",
        "mergeSchema",
        "txnVersion",
        "replaceWhere",
        "quote",
        "escape",
        "nullValue",
        "rowTag",
        "topic",
    ],
)
def test_options_of_common_formats_pass(name):
    assert writer().format("noop").option(name, "1").start().sink.options == ((name, "1"),)


def test_sparks_own_streaming_options_are_refused():
    refused(writer().format("noop").option("asyncProgressTrackingEnabled", True).start, "asyncProgressTrackingEnabled")


def test_a_later_spelling_replaces_an_earlier_and_none_unsets():
    one = writer().format("noop").option("shards", 8).option("SHARDS", 16)
    assert one.start().options.shards == 16
    assert one.option("shards", None).start().options.shards == 64


@pytest.mark.parametrize("call", ["option", "queryName", "format"])
def test_empty_names(call):
    arguments = ("", "1") if call == "option" else ("",)
    refused(lambda: getattr(writer(), call)(*arguments), call)
