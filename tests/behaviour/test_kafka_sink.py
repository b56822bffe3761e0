"""What only Kafka's sink has: keys, headers and partitions from columns, deliveries, its topics, a broker that goes."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from support.sinks.cases import SCHEMA, KafkaCase, batches, rows_of
from tailrace.errors import AnalysisError, TableError
from tailrace.lab.servers.kafka import KafkaBroker
from tailrace.sinks.contract import Owner
from tailrace.sinks.epochs import EpochWriter, Rows


def case(kafka: KafkaBroker, topic: str, partitions: int = 2) -> KafkaCase:
    made = KafkaCase({"bootstrap": kafka.bootstrap, "table": topic, "upsert": "yes" if partitions == 2 else ""})
    made.create()
    return made


def writer(made: KafkaCase, run: int, patience_s: float, schema: pa.Schema = SCHEMA, **options: str) -> EpochWriter:
    return EpochWriter(made.table(schema, **options), Owner(made.place["table"], run), patience_s, lambda: None)


def rows(epoch: int) -> Rows:
    return lambda: batches(rows_of(epoch))


def test_key_headers_and_partition_come_from_columns(kafka: KafkaBroker) -> None:
    made = case(kafka, "columns")
    headers = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    fields = [("key", pa.string()), ("value", pa.binary()), ("headers", headers), ("partition", pa.int32())]
    given = [
        (
            f"k{i % 3}",
            None if i == 5 else bytes([i, 0, 255]),
            [{"key": "n", "value": bytes([i])}] if i % 2 else None,
            i % 2,
        )
        for i in range(40)
    ]
    schema = pa.schema(fields)
    writer(made, 1, 30.0, schema).write(0, lambda: batches(given, schema))
    found = made.messages()
    for partition in (0, 1):
        wanted = [
            (key.encode(), value, [("n", value_of["value"]) for value_of in headers or ()] or None)
            for key, value, headers, of in given
            if of == partition
        ]
        assert [(m.key(), m.value(), m.headers()) for m in found if m.partition() == partition] == wanted
    with pytest.raises(TableError, match="partition"):
        writer(made, 2, 0.0, schema).write(1, lambda: batches([("k", b"", None, 7)], schema))


def test_a_key_has_one_partition_in_the_order_of_its_rows(kafka: KafkaBroker) -> None:
    made = case(kafka, "keyed")
    keyed = writer(made, 1, 30.0, keyColumns="k,name")
    for epoch in range(3):
        keyed.write(epoch, rows(epoch))
    partitions: dict[int, set[int]] = {}
    order: dict[int, list[int]] = {}
    for message in made.messages():
        value = json.loads(message.value())
        assert json.loads(message.key()) == {"k": value["k"], "name": value["name"]}
        partitions.setdefault(message.key(), set()).add(message.partition())
        order.setdefault(message.partition(), []).append(value["v"])
    assert all(len(each) == 1 for each in partitions.values())
    assert all(each == sorted(each) for each in order.values())


def test_at_least_once_gives_every_row_and_remembers_what_was_done(kafka: KafkaBroker) -> None:
    made = case(kafka, "least", partitions=1)
    for run in (1, 2):
        one = writer(made, run, 30.0, delivery="at-least-once")
        assert one.last_epoch() == (-1, 2)[run - 1]
        for epoch in range(4 if run == 2 else 3):
            one.write(epoch, rows(epoch))
    assert made.read() == [row for epoch in range(4) for row in rows_of(epoch)]


def test_topics_that_forget_or_are_not_there_are_refused(kafka: KafkaBroker) -> None:
    made = case(kafka, "places")
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_topics([NewTopic("forgetful", 1)])["forgetful"].result(30)
    with pytest.raises(AnalysisError, match="policy=delete"):
        writer(made, 1, 30.0, epochTopic="forgetful").last_epoch()
    with pytest.raises(AnalysisError, match="does not exist"):
        writer(made, 1, 30.0, topic="nowhere").last_epoch()
    with pytest.raises(AnalysisError, match="keyColumns"):
        made.table(keyColumns="no")


@pytest.mark.long
def test_a_broker_that_goes_is_waited_for_or_not() -> None:
    with KafkaBroker() as broker:
        made = case(broker, "patient", partitions=1)
        hurried = writer(made, 1, 0.0, **{"kafka.transaction.timeout.ms": "5000"})
        hurried.write(0, rows(0))
        broker.kill()

        def dying() -> Iterator[pa.RecordBatch]:
            """The broker dies in the middle of epoch 2 for once."""
            for number, batch in enumerate(batches(rows_of(2))):
                if number == 1 and dies.pop():
                    broker.kill()
                    threading.Timer(0.2, broker.restart).start()
                yield batch

        dies = [False, False, True]
        with pytest.raises(TableError, match="sinkTimeout"):
            hurried.write(1, rows(1))
        broker.restart()
        patient = writer(made, 2, 120.0)
        patient.write(1, rows(1))
        patient.write(2, dying)
        assert made.read() == [row for epoch in range(3) for row in rows_of(epoch)]
