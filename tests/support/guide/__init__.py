"""The stateful examples of Spark's documentation, written anew. Each runs on both engines.

Their sources (sockets, Kafka, rate) are files with the same columns here, one a micro-batch. ``page`` makes the list
with its verdicts for the documentation.
"""
