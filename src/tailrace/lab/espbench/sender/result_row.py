"""The sender's row of results, with the original's columns and the lateness that the original does not know."""

from __future__ import annotations

from collections.abc import Sequence

from tailrace.lab.espbench.config import Config
from tailrace.lab.espbench.sender.senders import StreamSent

COLUMNS = (
    *("batchSize", "bufferMemorySize", "lingerTime", "readInRam", "sendingInterval", "unit", "batch-size-avg"),
    *("buffer-available-bytes", "buffer-exhausted-rate", "bufferpool-wait-ratio", "expectedRecordNumber"),
    *("failedSends", "failedPercentage", "record-error-rate", "record-queue-time-avg", "record-send-rate"),
    *("records-per-request-avg", "request-latency-max", "waiting-threads"),
)
"""Of the original's result row. What the client in use does not count stays empty."""


def result_row(config: Config, streams: Sequence[StreamSent]) -> dict[str, object]:
    """The original's row, and the lateness that it does not have; over all streams, the worst of each figure."""
    producer, parts = config.sender.kafka_producer_config, [part for stream in streams for part in stream.parts]
    expected, failed = sum(part.expected for part in parts), sum(part.failed for part in parts)
    seconds = max(part.seconds for part in parts)
    row: dict[str, object] = dict.fromkeys(COLUMNS, "")
    row |= {name: max(part.producer.get(name, 0) for part in parts) for name in parts[0].producer}
    row |= {
        "batchSize": producer.batch_size,
        "bufferMemorySize": producer.buffer_memory_size,
        "lingerTime": producer.linger_time,
        "readInRam": config.sender.data_reader_config.read_in_ram,
        "sendingInterval": config.sending_interval,
        "unit": config.sending_interval_time_unit,
        "expectedRecordNumber": expected,
        "failedSends": failed,
        "failedPercentage": round(100 * failed / max(expected, 1), 4),
        "record-error-rate": round(failed / seconds, 4),
        "record-send-rate": round(sum(part.sent for part in parts) / seconds, 1),
    }
    late = {name: max(stream.lateness_ms(name) for stream in streams) for name in ("p50", "p90", "p99", "max")}
    return row | {f"lateness-{name}-ms": round(value, 3) for name, value in late.items()}
