"""The hash that tasks compute is Spark's ``xxhash64`` of the same columns: shuffled rows and old state depend on it."""

from __future__ import annotations

import random

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from support import random_columns as values
from tailrace.operators.ingest.key_hash import hash_program, put_hashes
from tailrace.state.layout import HASH, record_layout
from tailrace.state.rows.builder import RowsBuilder
from tailrace.types import DataType, Field


def hashes(columns: dict[str, pa.Array], types: dict[str, str]) -> list[int]:
    fields = [Field(name, DataType(types[name])) for name in columns]
    layout = record_layout(fields, [], ansi=False)
    builder = RowsBuilder(len(next(iter(columns.values()))), layout)
    for field, place in zip(fields, layout.keys, strict=True):
        builder.put(columns[field.name], field.type, place.word, place.bit)
    rows = builder.finish()
    put_hashes(rows, hash_program(layout))
    return [int(word) for word in rows.words[:, HASH]]


def test_every_key_type_alone_and_all_together(spark: SparkSession) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    names = {f"k{i}": type_ for i, type_ in enumerate(values.KEY_TYPES)}
    columns = {
        name: values.array(type_, [None if rng.random() < 0.1 else values.draw(type_, rng) for _ in range(400)])
        for name, type_ in names.items()
    }
    frame = spark.createDataFrame(pa.table(columns))
    requested = [F.xxhash64(name).alias(name) for name in names]
    wanted = frame.select(
        *requested, F.xxhash64(*names).alias("all"), F.xxhash64(*reversed(names)).alias("back")
    ).toArrow()
    for name in names:
        assert hashes({name: columns[name]}, names) == wanted.column(name).to_pylist(), names[name]
    assert hashes(columns, names) == wanted.column("all").to_pylist()
    assert hashes(dict(reversed(columns.items())), names) == wanted.column("back").to_pylist()


def test_strings_of_every_length(spark: SparkSession) -> None:
    array = pa.array(["é" * (n // 2) + "x" * (n % 2) for n in range(140)])
    wanted = spark.createDataFrame(pa.table({"k": array})).select(F.xxhash64("k")).toArrow().column(0).to_pylist()
    assert hashes({"k": array}, {"k": "string"}) == wanted
