"""Gadget: what a streaming operator asks of its state store, without an engine. See docs/explanation/gadget.md.

An input stream (`events`) goes through an operator's state machines (`driver`) and becomes a stream of state accesses
(`trace`), which can be looked at, kept in a file and replayed on any store. Nothing here needs Spark.
"""
