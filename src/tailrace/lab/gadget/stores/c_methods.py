"""Methods of C objects that carry pointers to them, called through ctypes: how BerkeleyDB and WiredTiger are used.

Where a method's pointer lies in its object is part of a library's binary interface. The offsets are those of the
headers of the versions that the connectors name, on 64-bit systems; a connector checks the version before it uses them.

A call through ctypes has a price of its own, as it has for RocksDB: docs/explanation/gadget-stores.md says how much.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from ctypes import byref, c_int, c_void_p
from functools import partial
from typing import Any, ClassVar

from tailrace.errors import TailraceError
from tailrace.lab.gadget.stores.combine.combined import CombinedStore
from tailrace.lab.gadget.stores.contract import Settings, StoreUnavailableError
from tailrace.lab.servers.debian import NotFetchedError, library

Method = Callable[..., int]


def load(soname: str, *packages: str) -> Any:
    """The library, fetched where it must be."""
    try:
        return library(soname, *packages)
    except NotFetchedError as error:
        raise StoreUnavailableError(str(error)) from error


def methods(of: c_void_p, table: Mapping[str, tuple[int, tuple[Any, ...]]]) -> dict[str, Method]:
    """The methods of an object, bound to it. ``table``: name to the offset of its pointer and the types of what it
    takes beside the object."""
    assert of.value is not None
    found: dict[str, Method] = {}
    for name, (offset, arguments) in table.items():
        address = c_void_p.from_address(of.value + offset).value
        assert address is not None, name
        found[name] = partial(ctypes.CFUNCTYPE(c_int, c_void_p, *arguments)(address), of.value)
    return found


class CLibraryStore(CombinedStore):
    """A store of such a library, with a page cache whose size can be set."""

    library: ClassVar[str]
    """What errors call it."""
    _text: Callable[[int], bytes]
    """The library's own words for an error code."""

    def __init__(self, settings: Settings) -> None:
        self._memory_bytes = settings.memory_bytes

    @property
    def memory(self) -> dict[str, int]:
        return {"cache": self._memory_bytes}

    def _check_version(self, version: Any, needed: tuple[int, int]) -> None:
        """``version``: the library's function for it."""
        major, minor = c_int(), c_int()
        version(byref(major), byref(minor), None)
        if (major.value, minor.value) != needed:
            found, wanted = f"{major.value}.{minor.value}", ".".join(map(str, needed))
            raise StoreUnavailableError(f"the library of {self.library} is of version {found}: it must be {wanted}")

    def _check(self, code: int, doing: str) -> None:
        if code:
            words = self._text(code).decode(errors="replace")
            raise TailraceError(f"{self.library}, {doing}: {words} (code {code})")
