"""Tables and topics that take an epoch's rows by one transaction, from Arrow batches and without Spark."""
