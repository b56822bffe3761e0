"""How an operator's state is accessed, which decides the store that keeps it; and why, as ``explain`` quotes it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Pattern(StrEnum):
    """How state is accessed. The names are those that users write and that checkpoints hold: never rename one."""

    RMW = "RMW"  # read, modify, write: one record for each key (and pane), changed in place
    AAR = "AAR"  # append and aligned read: rows by window, which all keys leave at the same time
    AUR = "AUR"  # append and unaligned read: rows by key and window, each read at a time of its own


@dataclass(frozen=True)
class StoreChoice:
    pattern: Pattern | None  # None: no state is kept
    reason: str
    by_user: bool = False
