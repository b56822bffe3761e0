"""Spark's Python daemon for the tests' sessions, with the modules of every task imported before it forks workers.

A worker that has to import Arrow, pandas and Tailrace takes a second of processor time, and tests lose workers often:
a task that fails takes its worker with it. Nothing else is different: no thread runs and no connection is open when a
worker is forked. Sessions of users run Spark's own daemon.

This folder alone goes on the executors' import path (``support.session``): they must not find the tests there.
"""

from __future__ import annotations

import gc

import pandas  # noqa: F401
import pyarrow.flight  # noqa: F401
from pyspark import worker  # noqa: F401
from pyspark.daemon import manager

from tailrace.server.process import launch  # noqa: F401
from tailrace.spark.tasks import ingest, output_reader  # noqa: F401

if __name__ == "__main__":
    gc.collect()
    gc.freeze()  # after each task a worker collects garbage: what all share need not be walked, nor its pages copied
    manager()
