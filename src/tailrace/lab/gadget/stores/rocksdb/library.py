"""RocksDB's C interface, from the library inside the jar that PySpark brings along. No Java runs.

That library (``rocksdbjni``) is RocksDB as a whole, and it exports the functions of ``rocksdb/c.h``; so nothing has
to be installed or compiled, and it is the version that Spark's own state store uses. It is unpacked once, into the
user's cache folder. Only what the connector needs is declared here.

Threads: loading is done once, under a lock; the functions are as free as RocksDB's own.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import platform
import threading
import zipfile
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_ubyte, c_void_p
from pathlib import Path
from typing import Any

from tailrace.errors import TailraceError
from tailrace.lab.gadget.stores.contract import StoreUnavailableError

_MEMBERS = {"x86_64": "librocksdbjni-linux64.so", "aarch64": "librocksdbjni-linux-aarch64.so"}
_ERROR = POINTER(c_char_p)
_FUNCTIONS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "rocksdb_options_create": (c_void_p, ()),
    "rocksdb_options_destroy": (None, (c_void_p,)),
    "rocksdb_get_options_from_string": (None, (c_void_p, c_char_p, c_void_p, _ERROR)),
    "rocksdb_options_add_compact_on_deletion_collector_factory": (None, (c_void_p, c_size_t, c_size_t)),
    "rocksdb_open": (c_void_p, (c_void_p, c_char_p, _ERROR)),
    "rocksdb_close": (None, (c_void_p,)),
    "rocksdb_writeoptions_create": (c_void_p, ()),
    "rocksdb_writeoptions_disable_WAL": (None, (c_void_p, c_int)),
    "rocksdb_writeoptions_destroy": (None, (c_void_p,)),
    "rocksdb_readoptions_create": (c_void_p, ()),
    "rocksdb_readoptions_destroy": (None, (c_void_p,)),
    "rocksdb_get": (c_void_p, (c_void_p, c_void_p, c_char_p, c_size_t, POINTER(c_size_t), _ERROR)),
    "rocksdb_put": (None, (c_void_p, c_void_p, c_char_p, c_size_t, c_char_p, c_size_t, _ERROR)),
    "rocksdb_merge": (None, (c_void_p, c_void_p, c_char_p, c_size_t, c_char_p, c_size_t, _ERROR)),
    "rocksdb_delete": (None, (c_void_p, c_void_p, c_char_p, c_size_t, _ERROR)),
    "rocksdb_multi_get": (
        None,
        (c_void_p, c_void_p, c_size_t, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p),
    ),
    "rocksdb_writebatch_create": (c_void_p, ()),
    "rocksdb_writebatch_clear": (None, (c_void_p,)),
    "rocksdb_writebatch_destroy": (None, (c_void_p,)),
    "rocksdb_writebatch_put": (None, (c_void_p, c_void_p, c_size_t, c_void_p, c_size_t)),
    "rocksdb_writebatch_merge": (None, (c_void_p, c_void_p, c_size_t, c_void_p, c_size_t)),
    "rocksdb_writebatch_delete": (None, (c_void_p, c_void_p, c_size_t)),
    "rocksdb_write": (None, (c_void_p, c_void_p, c_void_p, _ERROR)),
    "rocksdb_free": (None, (c_void_p,)),
    "rocksdb_options_set_create_if_missing": (None, (c_void_p, c_ubyte)),
}

_lock = threading.Lock()
_loaded: Any = None


def rocksdb() -> Any:
    """The library with its functions declared."""
    global _loaded
    with _lock:
        if _loaded is None:
            library = ctypes.CDLL(str(_unpacked()))
            for name, (result, arguments) in _FUNCTIONS.items():
                function = getattr(library, name)
                function.restype, function.argtypes = result, arguments
            _loaded = library
        return _loaded


def _unpacked() -> Path:
    """The library as a file: unpacked beside the compiled kernels, once for each version."""
    member = _MEMBERS.get(platform.machine())
    found = importlib.util.find_spec("pyspark")
    jars = sorted(Path(found.origin).parent.glob("jars/rocksdbjni-*.jar")) if found and found.origin else []
    if member is None or not jars or platform.system() != "Linux":
        raise StoreUnavailableError(
            "RocksDB comes with PySpark (`pip install pyspark`), for Linux on x86_64 and aarch64 with glibc"
        )
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    kept = base / "tailrace" / "libraries" / f"{jars[-1].stem}-{member}"
    if not kept.exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        part = kept.with_name(f".{kept.name}.{os.getpid()}")
        with zipfile.ZipFile(jars[-1]) as jar:
            part.write_bytes(jar.read(member))
        part.replace(kept)
    return kept


def options(library: Any, text: str) -> Any:
    """Options as RocksDB's own texts say them; the caller destroys them."""
    base, made, error = library.rocksdb_options_create(), library.rocksdb_options_create(), c_char_p()
    library.rocksdb_get_options_from_string(base, text.encode(), made, byref(error))
    library.rocksdb_options_destroy(base)
    check(error)
    return made


def check(error: c_char_p) -> None:
    if error.value is not None:
        raise TailraceError(f"RocksDB says: {error.value.decode(errors='replace')}")
