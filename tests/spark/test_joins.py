"""Joins of two streams through Spark, against nested loops over the whole input; chains behind them."""

from __future__ import annotations
