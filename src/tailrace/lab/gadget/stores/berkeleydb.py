"""BerkeleyDB: a B-tree with a page cache of its own, version 5.3 from Debian's ``libdb5.3``, through ctypes.

No transactions and no locks, as in the runs of Gadget's paper. A micro-batch is combined. Its reads are one call a key,
since the library reads many keys at once by position only; its puts are one call, in the order of keys; its deletes are
one call a key, since a call for many stops at the first key that is not there.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import POINTER, Structure, addressof, byref, c_char_p, c_int, c_uint32, c_void_p
from itertools import accumulate, chain
from typing import Any, ClassVar

import numpy as np

from tailrace.lab.gadget.stores import c_methods
from tailrace.lab.gadget.stores.c_methods import CLibraryStore
from tailrace.lab.gadget.stores.contract import Settings

_VERSION = (5, 3)
_BTREE, _CREATE, _MULTIPLE_KEY = 1, 0x1, 0x4000
_NOT_FOUND, _BUFFER_SMALL = -30988, -30999
_USER_MEMORY, _BULK = 0x800, 0x2
_PAGE_BYTES = 4096
_METHODS: dict[str, tuple[int, tuple[Any, ...]]] = {
    "close": (568, (c_uint32,)),
    "delete": (592, (c_void_p, c_void_p, c_uint32)),
    "get": (632, (c_void_p, c_void_p, c_void_p, c_uint32)),
    "open": (1008, (c_void_p, c_char_p, c_char_p, c_int, c_uint32, c_int)),
    "put": (1024, (c_void_p, c_void_p, c_void_p, c_uint32)),
    "set_cachesize": (1096, (c_uint32, c_uint32, c_int)),
    "set_pagesize": (1248, (c_uint32,)),
}


class _Bytes(Structure):
    """``DBT``: a key or a value."""

    _fields_ = (
        ("data", c_char_p),
        ("size", c_uint32),
        ("room", c_uint32),
        ("part_size", c_uint32),
        ("part_begin", c_uint32),
        ("of_application", c_void_p),
        ("flags", c_uint32),
    )


class BerkeleyStore(CLibraryStore):
    library: ClassVar[str] = "BerkeleyDB"
    name: ClassVar[str] = "berkeleydb"
    batch_note: ClassVar[str] = "combined; one call for all puts, one a key for reads and deletes"

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        library = c_methods.load("libdb-5.3.so", "libdb5.3", "libdb5.3t64")
        library.db_version.argtypes = [POINTER(c_int)] * 3
        self._check_version(library.db_version, _VERSION)
        library.db_strerror.restype = c_char_p
        self._text = library.db_strerror
        handle = c_void_p()
        self._check(library.db_create(byref(handle), None, 0), "making a database")
        self._key, self._value, self._found = _Bytes(), _Bytes(), _Bytes(flags=_USER_MEMORY)
        self._at_key, self._at_value, self._at_found = map(addressof, (self._key, self._value, self._found))
        self._grow(4096)
        call = c_methods.methods(handle, _METHODS)
        self._get, self._put, self._delete, self._close = (call[name] for name in ("get", "put", "delete", "close"))
        gigabytes, rest = divmod(settings.memory_bytes, 1 << 30)
        self._check(call["set_cachesize"](gigabytes, rest, 1), "setting the cache's size")
        self._check(call["set_pagesize"](_PAGE_BYTES), "setting the pages' size")
        path = str(settings.folder / "state.db").encode()
        self._check(call["open"](None, path, None, _BTREE, _CREATE, 0o600), "opening the database")

    def get(self, key: bytes) -> bytes | None:
        self._key.data, self._key.size = key, len(key)
        code = self._get(None, self._at_key, self._at_found, 0)
        while code == _BUFFER_SMALL:
            self._grow(2 * self._found.size)
            code = self._get(None, self._at_key, self._at_found, 0)
        if code == _NOT_FOUND:
            return None
        self._check(code, "getting a key")
        return ctypes.string_at(self._room, self._found.size)

    def put(self, key: bytes, value: bytes) -> None:
        self._key.data, self._key.size = key, len(key)
        self._value.data, self._value.size = value, len(value)
        self._check(self._put(None, self._at_key, self._at_value, 0), "putting a key")

    def delete(self, key: bytes) -> None:
        self._key.data, self._key.size = key, len(key)
        code = self._delete(None, self._at_key, 0)
        if code != _NOT_FOUND:
            self._check(code, "deleting a key")

    def write_many(self, puts: Sequence[tuple[bytes, bytes]], deletes: Sequence[bytes]) -> None:
        if puts:
            packed = _packed(sorted(puts))
            many = _Bytes(data=packed, size=len(packed), room=len(packed), flags=_BULK)
            self._check(self._put(None, addressof(many), self._at_value, _MULTIPLE_KEY), "putting many keys")
        for key in deletes:
            self.delete(key)

    def close(self) -> None:
        self._check(self._close(0), "closing the database")

    def _grow(self, size: int) -> None:
        self._buffer = ctypes.create_string_buffer(size)
        self._room = addressof(self._buffer)
        ctypes.c_void_p.from_address(self._at_found + _Bytes.data.offset).value = self._room
        self._found.room = size


def _packed(pairs: Sequence[tuple[bytes, bytes]]) -> bytes:
    """Keys and values one after the other, and at the end, last first, where each begins and how long it is.

    The layout is that of the macros ``DB_MULTIPLE_KEY_WRITE_NEXT`` in ``db.h``.
    """
    pieces = list(chain.from_iterable(pairs))
    sizes = [len(piece) for piece in pieces]
    data = b"".join(pieces)
    places = np.empty((len(pieces), 2), np.uint32)
    places[:, 0] = list(accumulate(sizes[:-1], initial=0))
    places[:, 1] = sizes
    end = np.uint32(0xFFFFFFFF).tobytes()
    return data + bytes(-len(data) % 4) + end + places.reshape(-1)[::-1].tobytes()
