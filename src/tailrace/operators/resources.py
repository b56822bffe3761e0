"""What a state server gives an operator."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tailrace.env.transit_memory import TransitMemory
from tailrace.state.tuning import DEFAULT_TUNING, Tuning


@dataclass(frozen=True)
class Resources:
    """``memory_bytes``: its share of the budget; what goes beyond it lies in files in ``folder``. None: all of it may
    lie in memory, and nothing is written. ``transit``: where its output is counted.
    """

    memory_bytes: int | None = None
    folder: str | None = None
    tuning: Tuning = DEFAULT_TUNING
    threads: int = 2
    transit: TransitMemory | None = None

    @property
    def room(self) -> tuple[int, str]:
        """Memory and folder, for what cannot do without."""
        assert self.memory_bytes is not None and self.folder is not None, "an operator without a budget"
        return self.memory_bytes, self.folder

    def share(self, parts: int, count: int = 1) -> tuple[Resources, Resources]:
        """One part in so many of the memory, and what ``count`` such parts leave of it."""
        if self.memory_bytes is None:
            return self, self
        part = self.memory_bytes // parts
        return replace(self, memory_bytes=part), replace(self, memory_bytes=self.memory_bytes - count * part)
