"""How an operator's state is accessed: what decides the store."""

from __future__ import annotations

from enum import StrEnum


class Pattern(StrEnum):
    """How state is accessed. The names are those that users write and that checkpoints hold: never rename one."""

    RMW = "RMW"  # read, modify, write: one record for each key (and pane), changed in place
    AAR = "AAR"  # append and aligned read: rows by window, which all keys leave at the same time
    AUR = "AUR"  # append and unaligned read: rows by key and window, each read at a time of its own
