"""The bytes of state objects and of log entries. The document is docs/reference/log-format.md: change both together.

Nothing here is guessed when read: a file says its version, and a version that is not known is refused. None of the
constants below may change without a new version: stored files hold them.

Every byte of a file is checked when it is read: magic and version by comparison, sections and footer by CRC-32, the
length of the footer as part of the footer's own checksum, a log entry by its one CRC-32 and exact ending.

Pure functions over bytes.
"""

from __future__ import annotations

import json
import struct
from typing import Any

from zlib_ng.zlib_ng import crc32

from tailrace.errors import CheckpointError, CorruptionError
from tailrace.log.typed_json import MalformedError, parsed

OBJECT_MAGIC = b"TAILRACE"
OBJECT_VERSION = 3
OBJECT_HEADER = struct.Struct("<8sII")  # magic, version, 0xFFFFFFFF - version
OBJECT_TRAILER = struct.Struct("<II8s")  # footer length, CRC-32 of footer and its length, magic reversed
OBJECT_END_MAGIC = OBJECT_MAGIC[::-1]

ENTRY_VERSION = 7
_ENTRY_START = b'{"body":'
_ENTRY_END = ',"crc32":"%08x"}\n'
_ENTRY_END_BYTES = len(_ENTRY_END % 0)

PACK_BYTES = 64 << 10
"""Sections of neighbouring shards share one record batch up to about this size. Not part of the format."""

SECTION_BATCH_BYTES = 16 << 20
"""A section larger than this is written as several record batches. Not part of the format."""


def object_header() -> bytes:
    return OBJECT_HEADER.pack(OBJECT_MAGIC, OBJECT_VERSION, 0xFFFFFFFF - OBJECT_VERSION)


def check_object_header(data: bytes, where: str) -> None:
    if len(data) < OBJECT_HEADER.size:
        raise CorruptionError(damaged(where, f"it ends inside its header, after {len(data)} bytes"))
    magic, version, mirrored = OBJECT_HEADER.unpack(data[: OBJECT_HEADER.size])
    if magic != OBJECT_MAGIC:
        raise CorruptionError(damaged(where, f"it does not start as a state object does, but with {magic!r}"))
    if version != 0xFFFFFFFF - mirrored:
        raise CorruptionError(damaged(where, "its version number is damaged"))
    if version != OBJECT_VERSION:
        raise CheckpointError(unknown_version(where, version, OBJECT_VERSION))


def object_footer(index: dict[str, Any]) -> bytes:
    """The footer and the trailer after it."""
    footer = json.dumps(index, separators=(",", ":"), sort_keys=True).encode()
    length = len(footer)
    return footer + OBJECT_TRAILER.pack(length, footer_crc(footer), OBJECT_END_MAGIC)


def footer_crc(footer: bytes | memoryview) -> int:
    return crc32(struct.pack("<I", len(footer)), crc32(footer))


def footer_length(trailer: bytes, where: str) -> tuple[int, int]:
    """Length and checksum of the footer, from the last bytes of a file."""
    if len(trailer) < OBJECT_TRAILER.size:
        raise CorruptionError(damaged(where, "it is shorter than any state object"))
    length, crc, magic = OBJECT_TRAILER.unpack(trailer[-OBJECT_TRAILER.size :])
    if magic != OBJECT_END_MAGIC:
        raise CorruptionError(
            damaged(where, "its last bytes are not those of a state object: it was cut off or overwritten")
        )
    return length, crc


def parse_footer(footer: bytes | memoryview, crc: int, where: str) -> dict[str, Any]:
    if footer_crc(footer) != crc:
        raise CorruptionError(damaged(where, "the checksum of its index does not match"))
    return _object(bytes(footer), where)


def encode_entry(kind: str, body: dict[str, Any]) -> bytes:
    """A small checksummed JSON file: a log entry, or the plan."""
    text = json.dumps({"format": ENTRY_VERSION, "kind": kind, **body}, separators=(",", ":"), sort_keys=True)
    covered = _ENTRY_START + text.encode()
    return covered + (_ENTRY_END % crc32(covered)).encode()


def decode_entry(data: bytes, where: str) -> tuple[str, dict[str, Any]]:
    """Kind and body of what ``encode_entry`` wrote."""
    covered, end = data[:-_ENTRY_END_BYTES], data[-_ENTRY_END_BYTES:]
    if not covered.startswith(_ENTRY_START) or end != (_ENTRY_END % crc32(covered)).encode():
        raise CorruptionError(damaged(where, f"its checksum does not match ({len(data)} bytes)"))
    body = _object(covered[len(_ENTRY_START) :], where)
    version, kind = body.pop("format", None), body.pop("kind", None)
    if version != ENTRY_VERSION:
        raise CheckpointError(unknown_version(where, version, ENTRY_VERSION))
    if not isinstance(kind, str):
        raise CorruptionError(damaged(where, "it does not say of what kind it is"))
    return kind, body


def _object(data: bytes, where: str) -> dict[str, Any]:
    """JSON whose checksum is right. It may still not be ours."""
    try:
        found = parsed(data)
    except MalformedError as error:
        raise CorruptionError(damaged(where, str(error))) from None
    if not isinstance(found, dict):
        raise CorruptionError(damaged(where, "it holds no fields"))
    return found


def damaged(where: str, how: str) -> str:
    return (
        f"The file {where} is damaged: {how}. Restore it from a copy, or start the query with a new checkpoint "
        "location and a new state location."
    )


def unknown_version(where: str, version: object, known: int) -> str:
    return (
        f"The file {where} has format version {version}; this Tailrace reads version {known}. "
        "Run the query with the version of Tailrace that wrote it."
    )
