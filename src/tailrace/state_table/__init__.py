"""Checkpoints as tables: what a query keeps, read without the query, without Spark, and without changing anything."""
