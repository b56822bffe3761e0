"""Spark looks for Python data sources in packages of such names: this one is ``format("tailrace-state-metadata")``."""

from tailrace.spark.state_source import MetadataSource as DefaultSource

__all__ = ["DefaultSource"]
