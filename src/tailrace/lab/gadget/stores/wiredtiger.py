"""WiredTiger: a B-tree with a page cache of its own, without a log; version 3.2 from Debian's ``libwiredtiger0``,
through ctypes.

It has no call for many keys, so a micro-batch is combined and its keys are gone through in their order.
"""

from __future__ import annotations

import ctypes
from ctypes import Structure, addressof, byref, c_char_p, c_size_t, c_uint32, c_void_p
from typing import Any, ClassVar

from tailrace.lab.gadget.stores import c_methods
from tailrace.lab.gadget.stores.c_methods import CLibraryStore
from tailrace.lab.gadget.stores.contract import Settings

_VERSION = (3, 2)
_NOT_FOUND = -31803
_CONNECTION: dict[str, tuple[int, tuple[Any, ...]]] = {
    "close": (16, (c_char_p,)),
    "open_session": (64, (c_void_p, c_char_p, c_void_p)),
}
_SESSION: dict[str, tuple[int, tuple[Any, ...]]] = {
    "open_cursor": (40, (c_char_p, c_void_p, c_char_p, c_void_p)),
    "create": (56, (c_char_p, c_char_p)),
}
_CURSOR: dict[str, tuple[int, tuple[Any, ...]]] = {
    "get_value": (40, (c_void_p,)),
    "set_key": (48, (c_void_p,)),
    "set_value": (56, (c_void_p,)),
    "reset": (96, ()),
    "search": (104, ()),
    "insert": (120, ()),
    "remove": (144, ()),
}


_OWN_FIELDS = (("own_memory", c_void_p), ("own_size", c_size_t), ("own_flags", c_uint32))


class _Item(Structure):
    """``WT_ITEM``: a key or a value; the fields behind the size are the library's own."""

    _fields_ = (("data", c_char_p), ("size", c_size_t), *_OWN_FIELDS)


class _FoundItem(Structure):
    _fields_ = (("data", c_void_p), ("size", c_size_t), *_OWN_FIELDS)


class WiredTigerStore(CLibraryStore):
    library: ClassVar[str] = "WiredTiger"
    name: ClassVar[str] = "wiredtiger"
    batch_note: ClassVar[str] = "combined; one call a key"

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        library = c_methods.load("libwiredtiger.so.0", "libwiredtiger0")
        library.wiredtiger_version.restype = library.wiredtiger_strerror.restype = c_char_p
        self._check_version(library.wiredtiger_version, _VERSION)
        self._text = library.wiredtiger_strerror
        connection, session, cursor = c_void_p(), c_void_p(), c_void_p()
        config = f"create,cache_size={settings.memory_bytes},log=(enabled=false)".encode()
        folder = str(settings.folder).encode()
        self._check(library.wiredtiger_open(folder, None, config, byref(connection)), "opening the database")
        call = c_methods.methods(connection, _CONNECTION)
        self._close = call["close"]
        self._check(call["open_session"](None, None, byref(session)), "opening a session")
        call = c_methods.methods(session, _SESSION)
        self._check(call["create"](b"table:state", b"key_format=u,value_format=u"), "making the table")
        self._check(call["open_cursor"](b"table:state", None, b"overwrite=true", byref(cursor)), "opening a cursor")
        call = c_methods.methods(cursor, _CURSOR)
        self._set_key, self._set_value, self._get_value = call["set_key"], call["set_value"], call["get_value"]
        self._search, self._insert, self._remove, self._reset = (
            call[name] for name in ("search", "insert", "remove", "reset")
        )
        self._key, self._value, self._found = _Item(), _Item(), _FoundItem()
        self._at_key, self._at_value, self._at_found = map(addressof, (self._key, self._value, self._found))

    def get(self, key: bytes) -> bytes | None:
        self._name(key)
        code = self._search()
        if code == _NOT_FOUND:
            return None
        self._check(code, "searching a key")
        self._check(self._get_value(self._at_found), "getting a value")
        found = ctypes.string_at(self._found.data, self._found.size)
        self._check(self._reset(), "resetting the cursor")
        return found

    def put(self, key: bytes, value: bytes) -> None:
        self._name(key)
        self._value.data, self._value.size = value, len(value)
        self._set_value(self._at_value)
        self._check(self._insert(), "putting a key")

    def delete(self, key: bytes) -> None:
        self._name(key)
        code = self._remove()
        if code != _NOT_FOUND:
            self._check(code, "deleting a key")

    def close(self) -> None:
        self._check(self._close(None), "closing the database")

    def _name(self, key: bytes) -> None:
        self._key.data, self._key.size = key, len(key)
        self._set_key(self._at_key)
