"""A topic of Kafka: rows and the epoch's entry in one transaction.

Entry: a record of the compacted topic ``epochTopic``, with the query as its key: the newest that is committed.
Compaction keeps that for ever, while a consumer group's offsets are forgotten after a week without a commit.

Fencing: the query is the producer's transactional id, so ``init_transactions`` ends what an older producer of it has
begun, and the broker refuses that producer from then on. A run that opens late also ends its successor's producer. It
finds the successor's number in the entry then, and stops; the successor opens anew, since its own number is the newest.

A reader must be ``read_committed`` to see an epoch once. In mode ``at-least-once`` there is no transaction: rows are
acknowledged, then the entry; an epoch that was cut short in between comes again.

Values are made of whole columns. Handing a message to the client library is Python once a row.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from tailrace.api.table_options import Delivery, KafkaOptions
from tailrace.env import clock
from tailrace.env.retry import keep_trying
from tailrace.errors import AnalysisError, TableError
from tailrace.sinks.contract import Owner, Unreachable, fenced
from tailrace.sinks.json_texts import check_json, json_objects
from tailrace.sinks.rows import CHANGE_TYPE, DELETE, without_change_type, without_empty, without_preimages

KEY, VALUE, HEADERS, PARTITION = "key", "value", "headers", "partition"
_TIMEOUT_S = 20.0
_HEADERS = "array<struct<key: string, value: binary>>"
_DEFAULTS: Mapping[str, object] = {
    "partitioner": "murmur2_random",  # a key goes to the partition that Java's clients choose for it
    "linger.ms": "0",  # a transaction's last message waits for nobody
    "retry.backoff.ms": "5",  # else a transaction takes a tenth of a second
    "queue.buffering.max.kbytes": "65536",  # so much of an epoch is in this process
    "delivery.report.only.error": True,
    "log_level": "2",  # what it says about a broker that is not there comes as errors, too
}
_NOT_YET = KafkaError.UNKNOWN_TOPIC_OR_PART
"""Brokers learn of a topic one after the other."""
_FENCED = (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)
_REFUSED = (
    *(KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED, KafkaError._AUTHENTICATION),
    *(KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, KafkaError.SASL_AUTHENTICATION_FAILED),
)
_UNFIT = (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError._UNKNOWN_PARTITION, KafkaError.INVALID_RECORD)


class KafkaTopic:
    def __init__(self, options: KafkaOptions, schema: pa.Schema) -> None:
        self._options = options
        self._exactly = options.delivery is Delivery.EXACTLY_ONCE
        self.shown = f"Kafka's topic {options.topic}"
        self._client = {
            "bootstrap.servers": options.servers,
            **{name.removeprefix("kafka."): value for name, value in options.client},
        }
        self._changes = CHANGE_TYPE in schema.names and bool(options.key_columns)
        schema = without_change_type(schema) if self._changes else schema
        self._check_columns(schema)
        self._values = [name for name in schema.names if name not in (KEY, HEADERS, PARTITION)]
        self._producer: Producer | None = None
        self._owner = Owner("", -1)
        self._undelivered: list[KafkaError] = []
        self._last = -1

    def open(self, owner: Owner) -> int:
        self._owner = owner
        with _errors(self.shown):
            self._prepare_topics()
            self._check_run(self._entry(to_the_end=False)[0])
            undelivered: list[KafkaError] = []  # of this producer: an older one still reports what was purged
            config = {
                **_DEFAULTS,
                **self._client,
                "on_delivery": lambda error, message: undelivered.append(error),
                "enable.idempotence": True,
            }
            self._undelivered = undelivered
            if self._exactly:
                config = {"transaction.timeout.ms": "300000", **config, "transactional.id": f"tailrace-{owner.query}"}
            self._producer = Producer(config)
            if self._exactly:
                self._producer.init_transactions(_TIMEOUT_S)
            run, epoch = self._entry(to_the_end=True)
            self._check_run(run)
            if run < owner.run:
                self._transact(epoch, iter(()), lambda: None)
        self._last = epoch
        return epoch

    def write(self, epoch: int, rows: Iterator[pa.RecordBatch], before_commit: Callable[[], None]) -> None:
        if epoch > self._last:  # nobody else can have written it since: the broker would refuse this producer
            with _errors(self.shown):
                self._transact(epoch, rows, before_commit)
            self._last = epoch

    def close(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            with suppress(KafkaException):
                producer.purge()
                if self._exactly:
                    producer.abort_transaction(1.0)  # else the next producer of the query ends it

    def _transact(self, epoch: int, rows: Iterator[pa.RecordBatch], before_commit: Callable[[], None]) -> None:
        producer = self._producer
        assert producer is not None, "a topic is opened before it is written to"
        if self._exactly:
            producer.begin_transaction()
        for batch in without_empty(rows):
            self._produce(producer, batch)
        if not self._exactly:
            self._flush(producer)
        before_commit()
        entry = json.dumps({"run": self._owner.run, "epoch": epoch})
        producer.produce(self._options.epoch_topic, entry, self._owner.query, partition=0)
        if self._exactly:
            self._commit(producer)
        else:
            self._flush(producer)

    # The entry -------------------------------------------------------------------------------------------------------

    def _prepare_topics(self) -> None:
        admin, options = AdminClient(self._client), self._options
        known = admin.list_topics(timeout=_TIMEOUT_S).topics
        if options.topic not in known:
            raise AnalysisError(
                f"{self.shown} does not exist at {options.servers}: make it, with as many partitions "
                f"as its readers need"
            )
        if options.epoch_topic not in known:
            made = NewTopic(options.epoch_topic, 1, config={"cleanup.policy": "compact"})
            try:
                admin.create_topics([made])[options.epoch_topic].result(_TIMEOUT_S)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise
        place = ConfigResource(ConfigResource.Type.TOPIC, options.epoch_topic)
        policy = keep_trying(
            lambda: admin.describe_configs([place])[place].result(_TIMEOUT_S)["cleanup.policy"].value,
            lambda error: isinstance(error, KafkaException) and error.args[0].code() == _NOT_YET,
            lambda error, tried: error,
            _TIMEOUT_S,
        )
        if policy != "compact":
            raise AnalysisError(
                f"the topic {options.epoch_topic} has cleanup.policy={policy}, so that it forgets which epochs "
                f"{options.topic} has: set it to compact, or name another one in option 'epochTopic'"
            )

    def _entry(self, *, to_the_end: bool) -> tuple[int, int]:
        """Run and epoch of this query's newest committed entry. ``to_the_end``: wait for transactions of others."""
        place = TopicPartition(self._options.epoch_topic, 0, OFFSET_BEGINNING)
        found, deadline = (-1, -1), clock.monotonic() + _TIMEOUT_S
        # A reader of committed records is not told where the topic ends: only where the first open transaction begins.
        with _consumer(self._client, "read_uncommitted") as consumer:
            end = consumer.get_watermark_offsets(place, _TIMEOUT_S)[1]
        with _consumer(self._client, "read_committed") as consumer:
            consumer.assign([place])
            while True:
                message = consumer.poll(1.0)
                if message is None:
                    if clock.monotonic() > deadline:
                        raise Unreachable(f"the topic {self._options.epoch_topic} could not be read to its end")
                elif message.error() is None:
                    if message.key() == self._owner.query.encode():
                        entry = json.loads(message.value())
                        found = int(entry["run"]), int(entry["epoch"])
                elif message.error().code() != KafkaError._PARTITION_EOF:
                    raise KafkaException(message.error())
                elif message.offset() >= end or not to_the_end:
                    return found

    def _check_run(self, run: int) -> None:
        if run > self._owner.run:
            raise fenced(self.shown, run)

    # The rows --------------------------------------------------------------------------------------------------------

    def _check_columns(self, schema: pa.Schema) -> None:
        texts = (pa.types.is_string, pa.types.is_binary)
        header = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
        for name, fits, wanted in (
            (KEY, lambda type_: any(each(type_) for each in texts), "string or binary"),
            (VALUE, lambda type_: any(each(type_) for each in texts), "string or binary"),
            (HEADERS, lambda type_: type_ == header, _HEADERS),
            (PARTITION, pa.types.is_integer, "int"),
        ):
            if name in schema.names and not fits(schema.field(name).type):
                raise AnalysisError(
                    f"{self.shown}: column {name!r} must be {wanted}, but is {schema.field(name).type}: cast it"
                )
        more = [name for name in schema.names if name not in (KEY, VALUE, HEADERS, PARTITION)]
        if VALUE in schema.names and more:
            raise AnalysisError(
                f"{self.shown}: beside a column 'value' there may be 'key', 'headers' and 'partition', and not "
                f"{more[0]!r}: leave it out, or leave 'value' out to have all columns as JSON"
            )
        check_json(pa.schema([schema.field(name) for name in more]))
        if not set(self._options.key_columns) <= set(more) or (self._options.key_columns and KEY in schema.names):
            raise AnalysisError(
                f"{self.shown}: keyColumns makes the key of columns that are part of the value, where no column is "
                f"named 'key'; these are: {', '.join(more) or 'none'}"
            )

    def _produce(self, producer: Producer, batch: pa.RecordBatch) -> None:
        batch = without_preimages(batch) if self._changes else batch
        names = batch.schema.names
        texts = batch[VALUE] if VALUE in names else json_objects(batch.select(self._values))
        if self._changes:
            texts = pc.if_else(pc.equal(batch[CHANGE_TYPE], DELETE), None, texts)
        values = texts.to_pylist()
        columns: dict[str, list[Any]] = {}
        if KEY in names:
            columns[KEY] = batch[KEY].to_pylist()
        elif self._options.key_columns:
            columns[KEY] = _keys(batch.select(list(self._options.key_columns))).to_pylist()
        if PARTITION in names:
            columns[PARTITION] = batch[PARTITION].fill_null(-1).to_pylist()
        if HEADERS in names:
            columns[HEADERS] = [
                [(each["key"], each["value"]) for each in headers or ()] for headers in batch[HEADERS].to_pylist()
            ]
        topic, produce, others = self._options.topic, producer.produce, tuple(columns)
        for value, *more in zip(values, *columns.values(), strict=True):
            given = dict(zip(others, more))
            while True:
                try:
                    produce(topic, value, **given)
                    break
                except BufferError:  # the client has as much as it may hold
                    producer.poll(0.1)
                    self._check_delivered()
        producer.poll(0)
        self._check_delivered()

    def _check_delivered(self) -> None:
        if self._undelivered:
            raise KafkaException(self._undelivered[0])

    def _flush(self, producer: Producer) -> None:
        if producer.flush(_TIMEOUT_S):
            raise Unreachable(f"the brokers have not acknowledged all rows within {_TIMEOUT_S:.0f} s")
        self._check_delivered()

    def _commit(self, producer: Producer) -> None:
        while True:
            try:
                producer.commit_transaction(_TIMEOUT_S)
                return
            except KafkaException as error:
                if not error.args[0].retriable() or error.args[0].code() == KafkaError._TIMED_OUT:
                    self._check_delivered()  # says more
                    raise


def _keys(columns: pa.RecordBatch) -> pa.Array:
    """A text as it is, all else as JSON."""
    if columns.num_columns == 1 and pa.types.is_string(columns.schema.field(0).type):
        return columns.column(0)
    return json_objects(columns)


@contextmanager
def _consumer(client: dict[str, str], isolation: str) -> Iterator[Consumer]:
    consumer = Consumer(
        {
            "log_level": "2",
            **client,
            "group.id": "tailrace",  # asked for, and not used: no offset is committed
            "enable.auto.commit": "false",
            "isolation.level": isolation,
            "enable.partition.eof": "true",
            "fetch.wait.max.ms": "10",  # the topic is short, and its end comes soon
        }
    )
    try:
        yield consumer
    finally:
        consumer.close()


@contextmanager
def _errors(shown: str) -> Iterator[None]:
    """The client's errors by what a caller does about them."""
    try:
        yield
    except KafkaException as error:
        found: KafkaError = error.args[0]
        if found.code() in _REFUSED:
            raise AnalysisError(f"{shown}: {found.str()}") from error
        if found.code() in _UNFIT:
            raise TableError(
                f"{shown} does not take the rows: {found.str()}. Nothing of the epoch can be read and nothing is lost: "
                f"mend that, and start the query again"
            ) from error
        if found.code() in _FENCED:
            raise Unreachable(f"another producer of the query has taken over ({found.name()})") from error
        raise Unreachable(f"{found.name()}: {found.str()}") from error
