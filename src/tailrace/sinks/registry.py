"""Which table a format means. The client libraries are extras: each is imported where its format is asked for."""

from __future__ import annotations

import pyarrow as pa

from tailrace.api.table_options import (
    DbapiOptions,
    DeltaOptions,
    IcebergOptions,
    KafkaOptions,
    PostgresOptions,
    TableOptions,
)
from tailrace.errors import AnalysisError
from tailrace.sinks.contract import Table
from tailrace.sinks.dbapi import DbapiTable


def table_of(options: TableOptions, schema: pa.Schema) -> Table:
    """``schema``: of the rows, with times in UTC."""
    try:
        if isinstance(options, PostgresOptions):
            from tailrace.sinks.postgres import PostgresTable  # lazy: an extra

            return PostgresTable(options, schema)
        if isinstance(options, DbapiOptions):
            return DbapiTable(options, schema)
        if isinstance(options, KafkaOptions):
            from tailrace.sinks.kafka import KafkaTopic  # lazy: an extra

            return KafkaTopic(options, schema)
        if isinstance(options, DeltaOptions):
            from tailrace.sinks.delta import DeltaFolder  # lazy: an extra

            return DeltaFolder(options, schema)
        if isinstance(options, IcebergOptions):
            from tailrace.sinks.iceberg import IcebergTable  # lazy: an extra

            return IcebergTable(options, schema)
    except ImportError as error:
        extra = type(options).__name__.removesuffix("Options").lower()
        raise AnalysisError(
            f"this sink needs a library that is not there ({error}): pip install 'tailrace[{extra}]'"
        ) from error
    raise AssertionError(options)
