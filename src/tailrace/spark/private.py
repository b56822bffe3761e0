"""The only module of ``spark/`` that touches PySpark's underscored API, and with it Spark's classes in the JVM.

None of this is promised by Spark, so any release may change it. Each use is one small function, whose docstring says
why there is no public way; ``tests/spark/query/test_private.py`` runs each of them on a live session, and ``make
test-versions`` runs that on every supported version. Where Spark has changed, a function raises ``AnalysisError`` with
the versions that are supported, instead of an ``AttributeError`` in the middle of a query.

Threads: the caller's.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyspark
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkContext
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.group import GroupedData
from pyspark.sql.pandas.serializers import ArrowStreamSerializer
from pyspark.sql.streaming import StreamingQuery as SparkQuery
from pyspark.sql.streaming import StreamingQueryManager
from pyspark.sql.streaming.listener import JStreamingQueryListener
from pyspark.sql.types import StructType

from tailrace.errors import AnalysisError

JAVA_ERROR = Py4JJavaError
"""Raised for an error of the JVM that PySpark has no exception of its own for. PySpark has no public name for it."""

TASKS_MAX = 16
"""Collecting the rows of more tasks one by one takes longer than a second query does."""
_BATCH_NODE = "org.apache.spark.sql.execution.LogicalRDD"
_LARGE_TYPES = "spark.sql.execution.arrow.useLargeVarTypes"
_log = logging.getLogger("tailrace")
_SUPPORTED = "docs/reference/support-matrix.md lists the versions of PySpark that are tested: install one of them"


class PlanNode:
    """One operator of an analysed plan that works on a stream."""

    def __init__(self, node: Any) -> None:
        self._node = node
        with changed("LogicalPlan.nodeName()"):
            self.name = str(node.nodeName())

    @property
    def is_leaf(self) -> bool:
        with changed("LogicalPlan.children()"):
            return bool(self._node.children().isEmpty())

    @property
    def streaming_inputs(self) -> list[PlanNode]:
        with changed("LogicalPlan.children()"):
            children = self._node.children()
            nodes = [children.apply(number) for number in range(children.size())]
            return [PlanNode(node) for node in nodes if node.isStreaming()]

    def file_source(self) -> tuple[str, Mapping[str, str]]:
        """Of a node ``StreamingRelation``: the format, and the user's options by their names in lower case."""
        with changed("StreamingRelation.dataSource()"):
            source = self._node.dataSource()
            return str(source.className()).lower(), _options(source.options())

    def table_source(self) -> tuple[str, Mapping[str, str]]:
        """Of a node ``StreamingRelationV2``: the format, and the user's options by their names in lower case."""
        with changed("StreamingRelationV2.sourceName()"):
            options = self._node.extraOptions().asCaseSensitiveMap()
            pairs = {str(name).lower(): str(options[name]) for name in options}
            return str(self._node.sourceName()).lower(), pairs


def streaming_plan(frame: DataFrame) -> Iterator[PlanNode]:
    """Every operator of the analysed plan that works on a stream, the last one first.

    Which sources and which stateful operators a DataFrame has decides whether Tailrace can take it. PySpark offers the
    plan as printed text only (``explain``), from which options of a source cannot be read.
    """
    with changed("DataFrame._jdf.queryExecution().analyzed().isStreaming()"):
        root = _analyzed(frame)
        pending = [PlanNode(root)] if root.isStreaming() else []
    while pending:
        node = pending.pop()
        yield node
        pending += node.streaming_inputs


def expression_ids(frame: DataFrame, name: str) -> list[int]:
    """The ids of the output columns of this name. Two DataFrames share an id where a column is passed on unchanged.

    Names do not show that: ``withColumn`` may put another column under an old name. PySpark does not show the ids.
    """
    with changed("DataFrame._jdf.queryExecution().analyzed().output()"):
        output = _analyzed(frame).output()
        columns = [output.apply(number) for number in range(output.size())]
        return [int(column.exprId().id()) for column in columns if column.name() == name]


def texts_of(batch: DataFrame) -> list[str]:
    """Runs the job of a batch of ``foreachBatch``: the only column, of the only row of every task."""
    texts = batch_texts(batch, TASKS_MAX)
    return [row[0] for row in batch.collect()] if texts is None else texts


def batch_texts(batch: DataFrame, tasks_max: int) -> list[str] | None:
    """What ``texts_of`` gives, without a query of Spark's.

    Such a batch is an RDD with a name for Spark's planner. To collect it as a DataFrame, Spark plans, compiles and
    watches a second query just to hand a few rows over: 10 to 20 ms of every epoch. So the RDD is collected. (Its
    iterators may reuse one row object for all of their rows: each has one row only.) None where the batch is something
    else, or has more than ``tasks_max`` tasks: every row costs two calls to the JVM.
    """
    with changed("DataFrame._jdf.queryExecution().logical()"):
        jdf: Any = batch._jdf
        plan = jdf.queryExecution().logical()
        if plan.getClass().getName() != _BATCH_NODE:
            return None
        rdd = plan.rdd()
        if rdd.getNumPartitions() > tasks_max:
            return None
        return [str(row.getString(0)) for row in rdd.collect()]


def arrow_frame(spark: SparkSession, table: pa.Table, schema: StructType) -> DataFrame:
    """A DataFrame of rows that are in the driver: ``createDataFrame``, for a table that has the schema's types already.

    That one asks the JVM for its settings and classes anew each time, in 38 calls: 6 to 10 ms of every epoch with a
    small output. This makes the two of them that carry the rows.
    """
    if spark.conf.get(_LARGE_TYPES, "false") == "true":  # the JVM would expect other offsets of strings
        return spark.createDataFrame(table, schema=schema)
    with changed("PythonSQLUtils.toDataFrame()"):
        context: Any = spark.sparkContext
        jvm: Any = spark._jvm
        read, server, frame_of = _arrow_calls(jvm)
        rows = context._serialize_to_jvm(table.to_batches(), ArrowStreamSerializer(), read, server)
        frame = DataFrame(frame_of(rows, schema.json(), spark._jsparkSession), spark)
        frame._schema = schema
        return frame


def grouped_frame(grouped: GroupedData) -> DataFrame:
    """The DataFrame that is grouped. PySpark gives no way back from one to the other."""
    with changed("GroupedData._df"):
        frame: DataFrame = grouped._df
        return frame


class QueryOverSparks(SparkQuery):
    """PySpark's ``StreamingQuery`` by type, over a query of Spark's that may change: ``_spark_query`` gives it."""

    def __init__(self, spark_query: Callable[[], SparkQuery]) -> None:
        self._spark_query = spark_query

    @property
    def _jsq(self) -> Any:
        return self._spark_query()._jsq


def belongs_to(query: SparkQuery, manager: StreamingQueryManager) -> bool:
    """Whether it is of the manager's session. PySpark's query does not know its session."""
    with changed("StreamingQuery._jsq"):
        return bool(query._jsq.sparkSession().streams() == manager._jsqm)


def streaming_ids(spark: SparkSession) -> tuple[str, str]:
    """The ids of the query and of its run, inside of its batch function. PySpark gives that function the epoch only."""
    with changed("SparkContext.getLocalProperty()"):
        context = spark.sparkContext
        return str(context.getLocalProperty("sql.streaming.queryId")), str(
            context.getLocalProperty("spark.jobGroup.id")
        )


class ProgressListener(JStreamingQueryListener):
    """Changes the progress of streaming queries before other listeners get it.

    Spark's progress cannot be changed, and holds no state operators where the plan has none of Spark's. So another one
    is made of JSON, as Spark Connect does, and what it holds replaces what the first one holds: Spark keeps that one,
    and gives it to all listeners, its UI and ``lastProgress``.
    """

    def __init__(self, change: Callable[[dict[str, Any]], dict[str, Any] | None], ended: Callable[[str], None]) -> None:
        """``change``: of the progress as JSON; None leaves it as it is. ``ended``: gets the id of a run."""
        self._change = change
        self._ended = ended
        self._warned = False

    def onQueryStarted(self, jevent: Any) -> None:
        pass

    def onQueryIdle(self, jevent: Any) -> None:
        pass

    def onQueryProgress(self, jevent: Any) -> None:
        try:
            with changed("StreamingQueryProgress.fromJson()"):
                progress = jevent.progress()
                more = self._change(json.loads(progress.json()))
                if more is not None:
                    _replace_progress(progress, json.dumps({"eventTime": {}, **more}))  # what Spark left out as empty
        except Exception as error:
            if not self._warned:
                _log.warning("Spark's progress goes without what Tailrace knows: %s", error)
            self._warned = True

    def onQueryTerminated(self, jevent: Any) -> None:
        self._ended(str(jevent.runId().toString()))


def listen_first(spark: SparkSession, listener: ProgressListener) -> None:
    """Before all listeners that the session has, its UI's too, and those that come. ``addListener`` adds at the end."""
    with changed("StreamingQueryManager.listenerBus"):
        context: Any = spark.sparkContext
        ensure_callback_server_started(context._gateway)
        manager: Any = spark._jsparkSession.streams()
        bus = _open_field(manager.getClass(), "listenerBus").get(manager)
        wrapped = _wrapped_listener(listener, context._gateway)
        entries = getattr(bus, "org$apache$spark$util$ListenerBus$$listenersPlusTimers")()
        if all(each._1() != wrapped for each in entries):
            scala: Any = context._jvm.scala
            entries.insert(0, scala.Tuple2(wrapped, scala.Option.empty()))  # one step, since others may add theirs


_PROGRESS_FIELDS = ("durationMs", "eventTime", "stateOperators", "sink")
_PROGRESS = "org.apache.spark.sql.streaming.StreamingQueryProgress"


def _replace_progress(progress: Any, text: str) -> None:
    parse, fields = _progress_calls(SparkContext._jvm)
    made = parse(text)
    for field in fields:
        field.set(progress, field.get(made))


@lru_cache(maxsize=1)
def _progress_calls(jvm: Any) -> tuple[Any, list[Any]]:
    """Makes a progress of JSON; the fields that are replaced."""
    companion = getattr(getattr(jvm.org.apache.spark.sql.streaming, "StreamingQueryProgress$"), "MODULE$")
    shape = jvm.java.lang.Class.forName(_PROGRESS)
    return companion.fromJson, [_open_field(shape, name) for name in _PROGRESS_FIELDS]


def _open_field(shape: Any, name: str) -> Any:
    field = shape.getDeclaredField(name)
    field.setAccessible(True)
    return field


@lru_cache(maxsize=1)
def _wrapped_listener(listener: ProgressListener, gateway: Any) -> Any:
    """One object of the JVM for each listener: two of them would be two listeners."""
    return gateway.jvm.org.apache.spark.sql.streaming.PythonStreamingQueryListenerWrapper(listener)


_NOT_RENAMED = ("FileAlreadyExistsException", "RemoteFileChangedException")
"""Of S3A: the target is there, or the source went while it was copied."""


class HadoopFolder:
    """A folder of any file system that Spark can write to, found by Spark's own settings and credentials.

    File sinks list, move and delete there what Spark has written. PySpark writes and reads files, and can do nothing
    else with them. Names are relative to the folder, with ``/`` between parts. Safe from any thread.
    """

    def __init__(self, spark: SparkSession, path: str, options: Mapping[str, str]) -> None:
        """``options``: of a writer, which Spark adds to the settings of the file system."""
        with changed("SessionState.newHadoopConf()"):
            jvm: Any = spark._jvm
            conf = spark._jsparkSession.sessionState().newHadoopConf()
            for name, value in options.items():
                conf.set(name, value)
            self._path_class = jvm.org.apache.hadoop.fs.Path
            given = self._path_class(path)
            self._files = given.getFileSystem(conf)
            root = self._files.makeQualified(given)
            self.scheme = str(root.toUri().getScheme()).lower()
            self.path = str(root.toUri().getPath())
            self.uri = str(root.toString()).rstrip("/")

    def files(self, folder: str) -> list[str]:
        """Every file below ``folder``, by its name in it; none where there is no such folder."""
        prefix = f"{self.path.rstrip('/')}/{folder}/"
        found = []
        with changed("FileSystem.listFiles()"):
            try:
                statuses = self._files.listFiles(self._at(folder), True)
                while statuses.hasNext():
                    found.append(str(statuses.next().getPath().toUri().getPath()).removeprefix(prefix))
            except Py4JJavaError as error:
                if not _is_missing(error):
                    raise
        return found

    def folders(self, folder: str) -> list[str]:
        """The names of the folders right below ``folder``; none where there is no such folder."""
        with changed("FileSystem.listStatus()"):
            try:
                statuses = self._files.listStatus(self._at(folder))
            except Py4JJavaError as error:
                if not _is_missing(error):
                    raise
                return []
            return [str(each.getPath().getName()) for each in statuses if each.isDirectory()]

    def exists(self, name: str) -> bool:
        with changed("FileSystem.exists()"):
            return bool(self._files.exists(self._at(name)))

    def rename(self, source: str, target: str) -> bool:
        """Whether it was done. File systems answer or raise where the source is gone, or the target there."""
        with changed("FileSystem.rename()"):
            try:
                return bool(self._files.rename(self._at(source), self._at(target)))
            except Py4JJavaError as error:
                if _is_missing(error) or _java_class(error).endswith(_NOT_RENAMED):
                    return False
                raise

    def make_folder(self, folder: str) -> None:
        with changed("FileSystem.mkdirs()"):
            self._files.mkdirs(self._at(folder))

    def remove(self, name: str) -> None:
        """A file, or a folder with all that is in it. What is gone is fine."""
        with changed("FileSystem.delete()"):
            self._files.delete(self._at(name), True)

    def _at(self, name: str) -> Any:
        return self._path_class(f"{self.uri}/{name}")


def executors(spark: SparkSession) -> dict[str, bool]:
    """By id, every executor of the session's cluster, and whether Spark gives it tasks: not to one that is about to go.

    PySpark's status tracker has no executors. None are there where the driver runs the tasks itself.
    """
    with changed("CoarseGrainedSchedulerBackend.getExecutorIds()"):
        context: Any = spark.sparkContext
        backend = context._jsc.sc().schedulerBackend()
        if str(backend.getClass().getSimpleName()) == "LocalSchedulerBackend":
            return {}
        ids = str(backend.getExecutorIds().mkString(",")).split(",")
        return {each: bool(backend.isExecutorActive(each)) for each in ids if each}


def _java_class(error: Py4JJavaError) -> str:
    return str(error.java_exception.getClass().getName())


def _is_missing(error: Py4JJavaError) -> bool:
    return _java_class(error) == "java.io.FileNotFoundException"


@lru_cache(maxsize=1)
def _arrow_calls(jvm: Any) -> tuple[Any, Any, Any]:
    """Reads a file of batches; serves them where files would have to be encrypted; makes a DataFrame."""
    utils = jvm.PythonSQLUtils
    return utils.readArrowStreamFromFile, jvm.ArrowIteratorServer, utils.toDataFrame


def _analyzed(frame: DataFrame) -> Any:
    jdf: Any = frame._jdf
    return jdf.queryExecution().analyzed()


def _options(options: Any) -> dict[str, str]:
    """A map of Scala's."""
    found = {}
    pairs = options.iterator()
    while pairs.hasNext():
        pair = pairs.next()
        found[str(pair._1()).lower()] = str(pair._2())
    return found


@contextmanager
def changed(what: str) -> Iterator[None]:
    """Says which private interface is gone. An error of the JVM itself, as of a failed job, passes unchanged."""
    try:
        yield
    except Py4JJavaError:
        raise
    except (AttributeError, TypeError, Py4JError) as error:
        raise AnalysisError(
            f"PySpark {pyspark.__version__} has no {what}, which Tailrace needs and Spark does not promise: "
            f"{_SUPPORTED} ({error})"
        ) from error
