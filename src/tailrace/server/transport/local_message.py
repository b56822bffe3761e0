"""What local RPC sends: messages of several parts, each with its length before it.

A call is a name and a body; an answer has any number of parts, a refusal a kind and a message.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence
from typing import Any

from tailrace.env import clock

CALL, ANSWER, REFUSAL, TOKEN = range(4)
PARTS_MAX = 64
BYTES_MAX = 1 << 31
_HEAD = struct.Struct("<BI")
_SMALL_BYTES = 1 << 16
_RESERVED_BYTES = 1 << 20
"""For what is announced. More is reserved as it comes, always as much again as has come."""


class BrokenLine(OSError):
    """The other side has ended, or says what nobody understands."""


def send(line: socket.socket, kind: int, parts: Sequence[Any], until: float | None = None) -> None:
    """``parts``: anything that has bytes. ``until``: by the monotonic clock, for all of it; None: without a bound."""
    views = [memoryview(part).cast("B") for part in parts]
    sizes = [view.nbytes for view in views]
    head = _HEAD.pack(kind, len(views)) + struct.pack(f"<{len(views)}Q", *sizes)
    pieces: list[Any] = [b"".join([head, *views])] if sum(sizes) <= _SMALL_BYTES else [head, *views]
    for piece in pieces:
        _bounded(line, until)
        line.sendall(piece)


def receive(
    line: socket.socket, bytes_max: int = BYTES_MAX, until: float | None = None
) -> tuple[int, list[bytearray]] | None:
    """The next message: its kind and parts; None where the other side has ended properly, between two."""
    head = _exactly(line, _HEAD.size, until, may_end=True)
    if head is None:
        return None
    kind, count = _HEAD.unpack(head)
    if count > PARTS_MAX:
        raise BrokenLine(f"a message of {count} parts")
    sizes = struct.unpack(f"<{count}Q", _all_of(line, 8 * count, until))
    if sum(sizes) > bytes_max:
        raise BrokenLine(f"a message of {sum(sizes):,} bytes")
    return kind, [_all_of(line, size, until) for size in sizes]


def _all_of(line: socket.socket, size: int, until: float | None) -> bytearray:
    found = _exactly(line, size, until)
    assert found is not None
    return found


def _exactly(line: socket.socket, size: int, until: float | None, *, may_end: bool = False) -> bytearray | None:
    data, filled = bytearray(min(size, _RESERVED_BYTES)), 0
    while filled < size:
        if filled == len(data):
            data += bytes(min(size - filled, filled))
        _bounded(line, until)
        with memoryview(data) as room:
            got = line.recv_into(room[filled:])
        if not got:
            if may_end and not filled:
                return None
            raise BrokenLine("it has ended in the middle of a message")
        filled += got
    return data


def _bounded(line: socket.socket, until: float | None) -> None:
    """What follows on the line ends by then."""
    if until is None:
        return
    left_s = until - clock.monotonic()
    if left_s <= 0:
        raise TimeoutError("timed out")
    line.settimeout(left_s)
