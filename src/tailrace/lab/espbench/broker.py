"""The broker as the benchmark uses it: its topics, and whole topics read as columns."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tailrace.errors import TailraceError

_TIMEOUT_S = 30
_READ_AT_ONCE = 10_000
_READ_WAIT_S = 0.1
"""So long the client waits for that many, even when the end has come."""
APPEND_TIME = {"message.timestamp.type": "LogAppendTime", "retention.ms": "-1"}


class Broker:
    """``bootstrap``: its address. Each topic has one partition, since results are compared in order."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "socket.timeout.ms": _TIMEOUT_S * 1000})

    def create(self, topics: Sequence[str]) -> None:
        """New topics: one that exists holds messages of another run, and is an error."""
        new = [NewTopic(topic, num_partitions=1, replication_factor=1, config=APPEND_TIME) for topic in topics]
        for topic, result in self._admin.create_topics(new, operation_timeout=_TIMEOUT_S).items():
            try:
                result.result()
            except KafkaException as error:
                if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
                    raise TailraceError(
                        f"topic {topic} exists: give another benchmark-run or topic-prefix, so that runs do not mix"
                    ) from error
                raise TailraceError(f"topic {topic} cannot be made: {error}") from error

    def delete(self, topics: Sequence[str]) -> None:
        for result in self._admin.delete_topics(list(topics), operation_timeout=_TIMEOUT_S).values():
            try:
                result.result()
            except KafkaException as error:
                if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise TailraceError(f"a topic cannot be deleted: {error}") from error

    def size(self, topic: str) -> int:
        """How far the topic goes: the offset behind its last message."""
        consumer = self._consumer("read_committed")
        try:
            _, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=_TIMEOUT_S)
        except KafkaException as error:
            raise TailraceError(f"topic {topic} cannot be read: {error}") from error
        finally:
            consumer.close()
        return int(high)

    def follow(self, topic: str) -> Consumer:
        """Of committed messages from the first one on, as soon as they are there."""
        consumer = self._consumer("read_committed", {"enable.partition.eof": False, "fetch.wait.max.ms": 100})
        consumer.assign([TopicPartition(topic, 0, 0)])
        return consumer

    def read(self, topic: str) -> pa.Table:
        """All committed messages up to the end as it is now: ``offset``, ``time_ms`` and ``value``."""
        offsets, times, values = self._read(topic)
        return pa.table(
            {
                "offset": np.array(offsets, np.int64),
                "time_ms": np.array(times, np.int64),
                "value": pa.array(values, pa.binary()),
            }
        )

    def _read(self, topic: str) -> tuple[list[int], list[int], list[bytes]]:
        consumer = self._consumer("read_committed")
        offsets: list[int] = []
        times: list[int] = []
        values: list[bytes] = []
        try:
            _, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=_TIMEOUT_S)
            consumer.assign([TopicPartition(topic, 0, 0)])
            ended, deadline = high == 0, time.monotonic() + _TIMEOUT_S
            while not ended:
                several = consumer.consume(_READ_AT_ONCE, timeout=_READ_WAIT_S)
                for message in several:
                    if (error := message.error()) is None:
                        offsets.append(message.offset())
                        times.append(message.timestamp()[1])
                        values.append(message.value())
                    elif error.code() == KafkaError._PARTITION_EOF:  # behind the last one are marks of transactions
                        ended = True
                    else:
                        raise TailraceError(f"topic {topic} cannot be read: {error}")
                ended = ended or bool(offsets and offsets[-1] >= high - 1)
                if several:
                    deadline = time.monotonic() + _TIMEOUT_S
                elif time.monotonic() > deadline:
                    raise TailraceError(f"topic {topic}: the broker sent nothing within {_TIMEOUT_S} s")
        except KafkaException as error:
            raise TailraceError(f"topic {topic} cannot be read: {error}") from error
        finally:
            consumer.close()
        return offsets, times, values

    def _consumer(self, isolation: str, settings: Mapping[str, Any] | None = None) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "espbench-reader",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": isolation,
                "enable.partition.eof": True,
                **(settings or {}),
            }
        )
