"""Spark looks for Python data sources in packages of such names: this one is ``format("tailrace-state")``."""

from tailrace.spark.state_source import StateSource as DefaultSource

__all__ = ["DefaultSource"]
