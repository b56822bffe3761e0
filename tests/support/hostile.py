"""Malformed inputs: bytes and JSON that are nearly right. Nearly right ones pass the first checks, as noise does not.

Drawn from a ``Random``: of a seed, or of hypothesis (``st.randoms``), which then draws, records and shrinks.
"""

from __future__ import annotations

import copy
import json
import random
import zlib
from collections.abc import Iterator
from typing import Any

NUMBERS = (0, -1, 1, 255, 2**31 - 1, 2**31, 2**32 - 1, 2**53 + 1, 2**63 - 1, 2**63, -(2**63), 2**64, 10**30, 0.5, 1e308)
TEXTS = ("", "x", "run", "../../etc/passwd", "\0", "handed-1-x", "\ud800", "\N{SNOWMAN}" * 300)
_BLOCKS = (b"", b"\0" * 8, b"\xff" * 8, (2**31).to_bytes(8, "little"), (2**63).to_bytes(8, "little"))


def odd_json(rng: random.Random, depth: int = 2) -> Any:
    kind = rng.randrange(7 if depth else 4)
    if kind < 2:
        return rng.choice(NUMBERS)
    if kind == 2:
        return rng.choice(TEXTS)
    if kind == 3:
        return rng.choice((None, True, False, float("nan")))
    inner = [odd_json(rng, depth - 1) for _ in range(rng.randrange(4))]
    return inner if kind < 6 else {rng.choice(TEXTS): value for value in inner}


def changed_json(rng: random.Random, value: Any) -> Any:
    """The value with one to three of its parts replaced, removed, or with one more."""
    changed = copy.deepcopy(value)
    for _ in range(rng.randrange(1, 4)):
        path = rng.choice(list(_paths(changed)))
        if not path:
            if not rng.randrange(6):
                return odd_json(rng)
            continue
        parent = changed
        for key in path[:-1]:
            parent = parent[key]
        what = rng.randrange(4)
        if what == 0:
            del parent[path[-1]]
        elif what == 1 and isinstance(parent, dict):
            parent[rng.choice(TEXTS)] = odd_json(rng)
        elif what == 1:
            parent.insert(path[-1], odd_json(rng))
        else:
            parent[path[-1]] = odd_json(rng)
    return changed


def _paths(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield at
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        yield from _paths(child, (*at, key))


def changed_bytes(rng: random.Random, data: bytes) -> bytes:
    """The bytes with some of them changed, cut off, doubled, or with others between."""
    changed = bytearray(data)
    for _ in range(rng.randrange(1, 5)):
        at = rng.randrange(len(changed) + 1)
        end = min(len(changed), at + rng.choice((1, 1, 4, 8, 64)))
        what = rng.randrange(6)
        if what < 2 and at < end:
            changed[at] ^= 1 << rng.randrange(8)
        elif what == 2:
            changed[at:end] = rng.choice(_BLOCKS)
        elif what == 3:
            changed[at:at] = changed[at:end] * rng.randrange(1, 4)
        elif what == 4:
            changed[at:at] = bytes(rng.randrange(256) for _ in range(rng.randrange(16)))
        elif what == 5:
            del changed[at:]
    return bytes(changed)


def checked_entry(text: bytes) -> bytes:
    """An entry of the state's own with this body, and a right checksum."""
    covered = b'{"body":' + text
    return covered + b',"crc32":"' + f"{zlib.crc32(covered):08x}".encode() + b'"}\n'


def wrong_entry(rng: random.Random, right: dict[str, Any]) -> bytes:
    """A damaged entry, or a malformed one whose checksum is right."""
    kind = rng.randrange(5)
    if kind == 0:
        return changed_bytes(rng, checked_entry(as_json(right)))
    if kind == 1:
        return checked_entry(changed_bytes(rng, as_json(right)))
    return checked_entry(as_json(odd_json(rng) if kind == 2 else changed_json(rng, right)))


def as_json(value: Any) -> bytes:
    return json.dumps(value).encode()


def depth_bomb() -> bytes:
    """Brackets nested more deeply than any parser goes."""
    return b"[" * 100_000 + b"]" * 100_000
