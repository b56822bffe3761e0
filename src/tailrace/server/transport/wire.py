"""How a message is written: plain data as JSON. Rows and outputs travel as Arrow.

No message is pickled: a server runs no code that a peer sends to it. A user's function comes with the server's
configuration, through the standard input, from the process that started the server and from nobody else.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any, TypeVar

from tailrace.log.typed_json import parsed, typed

TOKEN_HEADER = "x-tailrace-token"
"""Header of every call. gRPC wants it in lower case."""


ERROR_PREFIX = b"tailrace:"
"""Begins the extra bytes of a Flight error that a server sent on purpose; the name of the error's type follows."""


_Message = TypeVar("_Message")


def encode(message: Any) -> bytes:
    """A flat message as JSON; those that hold others have a ``to_json`` of their own."""
    return dump(asdict(message))


def decode(kind: type[_Message], data: bytes | str) -> _Message:
    """``MalformedError`` where the data is no such message: a server acts on no part of it then."""
    return typed(kind, parsed(data))


def dump(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
