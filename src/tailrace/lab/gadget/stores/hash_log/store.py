"""A hash log in the manner of FASTER (Chandramouli et al., SIGMOD 2018): a hash index over a log in memory and on disk.

The newest part of the log is changed in place, older pages in memory are read only, and the oldest lie in a file. What
this one does not have: several threads with epoch protection, recovery, and log compaction. There is no FASTER for
Python, so this is the design and not the product: it has no call from one process to another to pay for, and its
micro-batches run in compiled code with no interpreter between accesses.

Merging makes a value longer, so it is copied to the end of the log: FASTER updates in place only what keeps its size.
A record that is needed from the file comes back to the end of the log first.
"""

from __future__ import annotations

import os
from typing import ClassVar

import numpy as np

from tailrace.errors import TailraceError
from tailrace.lab.gadget.stores.contract import Batch, Settings, Store, Values, fitted, words_of_one
from tailrace.lab.gadget.stores.hash_log import kernels as hk

_NO_BYTES = np.empty(0, np.uint8)
_INDEX_SHARE = 16
"""The index takes one part in so many of what the log takes, and comes on top."""
_PAGES = 16
_MUTABLE_SHARE = 0.9
_ANSWER_BYTES = 1 << 16


class HashLogStore(Store):
    name: ClassVar[str] = "hash-log"
    batch_note: ClassVar[str] = "every access in order, in one compiled loop"

    def __init__(self, settings: Settings) -> None:
        ring = 1 << max(12, settings.memory_bytes.bit_length() - 1)  # addresses are taken apart by masks
        slots = ring // _INDEX_SHARE // 8
        self._index = np.full(slots, -1, np.int64)
        self._words = np.zeros(ring // 8, np.int64)
        self._memory = self._words.view(np.uint8)
        self._log = np.zeros(8, np.int64)
        self._log[hk.MUTABLE] = int(ring * _MUTABLE_SHARE)
        self._log[hk.PAGE] = ring // _PAGES
        self._log[hk.LIMIT] = ring
        self._ring = ring
        self._key_words = -(-settings.key_bytes // 8)
        self._path = settings.folder / "log"
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        self._answers = np.empty(_ANSWER_BYTES, np.uint8)
        self._one_size = np.empty(1, np.int64)

    @property
    def memory(self) -> dict[str, int]:
        return {"index": self._index.nbytes, "log": self._ring}

    def run(self, batch: Batch) -> Values:
        gets = np.empty(int((batch.operations == hk.GET).sum()), np.int64)
        keys = fitted(batch.key_words, self._key_words)
        self._log[hk.ANSWERS] = self._log[hk.ANSWER_BYTES] = 0
        at, end = 0, len(batch)
        while True:
            at = hk.run(
                at, batch.operations, batch.keys, keys, batch.sizes, batch.starts, batch.data,
                self._index, self._words, self._memory, self._log, gets, self._answers,
            )  # fmt: skip
            if at == end:
                break
            self._make_way(keys[batch.keys[at]][None])
        return Values(gets, self._answers[: self._log[hk.ANSWER_BYTES]].copy())

    def _one(self, operation: int, name: bytes, value: bytes) -> None:
        data = np.frombuffer(value, np.uint8) if value else _NO_BYTES
        key = words_of_one(name, self._key_words)
        self._log[hk.ANSWERS] = self._log[hk.ANSWER_BYTES] = 0
        while True:
            why = hk.one(
                operation, key, len(value), data, self._index, self._words, self._memory, self._log,
                self._one_size, self._answers,
            )  # fmt: skip
            if why == hk.DONE:
                return
            self._log[hk.WHY] = why
            self._make_way(key)

    def get(self, key: bytes) -> bytes | None:
        self._one(hk.GET, key, b"")
        size = int(self._one_size[0])
        return None if size < 0 else self._answers[:size].tobytes()

    def put(self, key: bytes, value: bytes) -> None:
        self._one(hk.PUT, key, value)

    def merge(self, key: bytes, value: bytes) -> None:
        self._one(hk.MERGE, key, value)

    def delete(self, key: bytes) -> None:
        self._one(hk.DELETE, key, b"")

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    # Room -------------------------------------------------------------------------------------------------------------

    def _make_way(self, key: np.ndarray) -> None:
        """Do what the loop stopped for. ``key``: its words, in one row."""
        why = int(self._log[hk.WHY])
        if why == hk.NO_ANSWER_ROOM:
            larger = np.empty(2 * len(self._answers), np.uint8)
            larger[: len(self._answers)] = self._answers
            self._answers = larger
        elif why == hk.NO_ROOM:
            self._write_page()
        else:
            self._bring_in(key)

    def _write_page(self) -> None:
        page, head = int(self._log[hk.PAGE]), int(self._log[hk.HEAD])
        if int(self._log[hk.TAIL]) - head < self._ring // 2:
            raise TailraceError(f"a value does not fit a page of {page:,} bytes of the hash log: give it more memory")
        at = head % self._ring
        os.pwrite(self._file, self._memory[at : at + page].data, head)
        self._log[hk.HEAD] += page
        self._log[hk.LIMIT] += page

    def _bring_in(self, key: np.ndarray) -> None:
        """Append what the file holds for the key, or that it holds nothing, to the end of the log."""
        header = 8 * (hk.BEFORE_KEY + self._key_words)
        slot = int(hk.slot_of(0, key, self._index))
        address = int(self._index[slot])
        while address >= int(self._log[hk.HEAD]):
            address = int(self._words[(address % self._ring) // 8])
        value: bytes | None = None
        while address >= 0:
            record = np.frombuffer(os.pread(self._file, header, address), np.int64)
            if (record[hk.BEFORE_KEY :] == key[0]).all():
                size = int(hk.size_of(int(record[1])))
                value = os.pread(self._file, size, address + header) if size >= 0 else None
                break
            address = int(record[0])
        size = -1 if value is None else len(value)
        while (fresh := int(hk.room(max(size, 0), self._key_words, self._log))) < 0:
            self._write_page()
        hk.append(fresh, 0, key, size, slot, self._index, self._words, self._log)
        if value:
            at = fresh % self._ring + header
            self._memory[at : at + size] = np.frombuffer(value, np.uint8)
