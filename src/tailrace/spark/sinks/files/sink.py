"""A sink of files in one of Spark's formats: Spark writes them, ``publication`` makes them visible."""

from __future__ import annotations

from functools import partial

from pyspark.sql import DataFrame, SparkSession

from tailrace.api.definition import Format
from tailrace.commit.sink_manifest import SinkManifests
from tailrace.spark.sinks.contract import SinkEpoch, SinkRun
from tailrace.spark.sinks.epoch_output import EpochOutput
from tailrace.spark.sinks.files.places import place_of
from tailrace.spark.sinks.files.publication import Publication


class FileSink:
    """``name``: which of the query's sinks this is."""

    pipelined = True

    def __init__(self, spark: SparkSession, sink: Format, path: str, name: str) -> None:
        self._sink = sink
        self._path = path.rstrip("/") or "/"
        self._place = place_of(spark, self._path, dict(sink.options))
        self._name = name
        self._written: EpochOutput | None = None  # the epoch's, where it has something to publish

    def open(self, run: SinkRun) -> None:
        self._publication = Publication(self._place, SinkManifests(run.store, self._name), run)

    def shared_folder(self) -> str | None:
        return self._publication.shared_folder()

    def begin(self, at: SinkEpoch) -> bool:
        self._written = None
        return not (at.again and self._publication.finish(at.epoch))

    def write(self, output: EpochOutput, at: SinkEpoch) -> None:
        if output.rows != 0:
            self._written = output
            output.write(partial(self._save, at))

    def publish(self, at: SinkEpoch) -> None:
        if self._written is not None:
            self._publication.publish(at, self._written.count)

    def clean(self, epoch: int) -> None:
        self._publication.clean(epoch)

    def stop(self) -> None:
        pass

    def close(self) -> None:
        pass

    def _save(self, at: SinkEpoch, rows: DataFrame) -> None:
        writer = rows.write.format(self._sink.name).mode("errorifexists").options(**dict(self._sink.options))
        if self._sink.partition_by:
            writer = writer.partitionBy(*self._sink.partition_by)
        writer.save(f"{self._path}/{self._publication.stage(at)}")
