"""State as a DataFrame: Spark reads what ``tailrace.state.open`` does, shards of some keys alone where it may."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import EqualTo, In

import tailrace as tr
from support.crash.recovery_kinds import SHARDS, script_of, spec_of
from support.crash.saved_states import save
from tailrace.spark.state_source import StateSource
from tailrace.testing.compare import rows_of

KINDS = ("windows", "rolling with ttl", "full outer interval join", "processor with timers")
PUSH_DOWN = "spark.sql.python.filterPushdown.enabled"


@pytest.fixture(scope="module")
def locations(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    scratch, found = str(tmp_path_factory.mktemp("scratch")), {}
    for kind in KINDS:
        spec, folder = spec_of(kind), tmp_path_factory.mktemp("checkpoint")
        save(spec, script_of(spec, 5, 6), str(folder), scratch, 5)
        found[kind] = str(folder)
    return found


@pytest.fixture
def pushing(spark: SparkSession) -> Iterator[None]:
    spark.conf.set(PUSH_DOWN, "true")
    yield
    spark.conf.unset(PUSH_DOWN)


def counted(table: pa.Table | DataFrame) -> Counter[str]:
    table = table.toArrow() if isinstance(table, DataFrame) else table
    return Counter(map(repr, rows_of(table)))


@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_those_of_the_table(spark: SparkSession, locations: dict[str, str], kind: str) -> None:
    state = tr.state.open(locations[kind])
    wanted = state[state.operators[0]].table()
    found = spark.read.format("tailrace-state").option("partitions", 3).load(locations[kind])
    assert found.columns == wanted.schema.names
    assert counted(found) == counted(wanted) and wanted.num_rows


def test_epochs_records_changes_and_keys(spark: SparkSession, locations: dict[str, str]) -> None:
    place = locations["rolling with ttl"]
    state = tr.state.open(place)
    first, operator = state.at(state.epochs[0]), state["aggregate"]
    read = spark.read.format("tailrace-state").option("operator", "aggregate")
    assert counted(read.option("epoch", first.epoch).load(place)) == counted(first["aggregate"].table())
    read = spark.read.format("tailrace-state")
    assert counted(read.option("since", first.epoch).load(place)) == counted(
        state.changes("aggregate", first.epoch).table()
    )
    (k,), (v,) = (operator.table().column(name).to_pylist()[:1] for name in ("k", "v"))
    read = spark.read.format("tailrace-state").option("keys", f'{{"k": ["{k}"], "v": [{v}]}}').option("records", "true")
    assert counted(read.load(place)) == counted(operator.as_records().table(keys={"k": [k], "v": [v]}))
    (metadata,) = spark.read.format("tailrace-state-metadata").load(place).where(f"epoch = {state.epoch}").collect()
    assert metadata.operator == "aggregate" and metadata.keys == ["k", "v"] and metadata.shards == SHARDS


def test_filters_on_keys(spark: SparkSession, locations: dict[str, str], pushing: None) -> None:
    place = locations["rolling with ttl"]
    table = tr.state.open(place)["aggregate"].table()
    frame = spark.read.format("tailrace-state").option("partitions", SHARDS).load(place)
    whole = spark.createDataFrame(table)
    k, v = next((row["k"], row["v"]) for row in rows_of(table) if row["k"] is not None and row["v"] is not None)
    for where in (f"k = '{k}' AND v IN ({v}, 77)", f"v <=> {v}"):
        assert counted(frame.where(where)) == counted(whole.where(where)), where
    assert frame.where(f"k = '{k}' AND v = {v}").rdd.getNumPartitions() == 1


def test_a_filter_on_one_key_reads_one_shard(locations: dict[str, str]) -> None:
    source = StateSource({"path": locations["rolling with ttl"], "partitions": str(SHARDS)})
    reader = source.reader(source.schema())
    assert len(reader.partitions()) == SHARDS
    filters = [EqualTo(("k",), "a"), In(("v",), (1,))]
    assert list(reader.pushFilters(filters)) == filters, "Spark is to apply them as well"
    assert len(reader.partitions()) == 1
    reader = source.reader(source.schema())
    reader.pushFilters([EqualTo(("k",), "a")])
    assert len(reader.partitions()) == SHARDS, "one of two key columns says nothing of the shard"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"operator": "counts"}, "no operator 'counts' with state: it has aggregate"),
        ({"epoch": "0"}, "Epoch 0 is not kept"),
        ({"epoch": "new"}, "The option epoch is a whole number, not 'new'"),
        ({"keys": "k=3"}, "The option keys is JSON"),
        ({"keys": '{"who": [1]}'}, "has the key columns k, v; got who"),
    ],
)
def test_bad_options(spark: SparkSession, locations: dict[str, str], options: dict[str, str], said: str) -> None:
    with pytest.raises(PySparkException, match=said):
        spark.read.format("tailrace-state").options(**options).load(locations["rolling with ttl"]).collect()


def test_a_missing_location(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(PySparkException, match="There is no state of a query at"):
        spark.read.format("tailrace-state").load(str(tmp_path))
