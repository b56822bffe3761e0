"""A dictionary: what the harness itself costs where keeping state costs next to nothing."""

from __future__ import annotations

from typing import ClassVar

from tailrace.lab.gadget.stores.contract import Settings, Store


class DictionaryStore(Store):
    name: ClassVar[str] = "dictionary"
    batch_note: ClassVar[str] = "one call after the other"

    def __init__(self, settings: Settings) -> None:
        self._held: dict[bytes, bytes] = {}

    @property
    def memory(self) -> dict[str, int]:
        return {}

    def get(self, key: bytes) -> bytes | None:
        return self._held.get(key)

    def put(self, key: bytes, value: bytes) -> None:
        self._held[key] = value

    def merge(self, key: bytes, value: bytes) -> None:
        self._held[key] = self._held.get(key, b"") + value

    def delete(self, key: bytes) -> None:
        self._held.pop(key, None)

    def close(self) -> None:
        self._held.clear()
