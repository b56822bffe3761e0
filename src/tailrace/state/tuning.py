"""How stores use memory and disk: what a user may set for all of them. Defaults stand here and nowhere else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class SpillTuning:
    """How spilled records are read, and which records are evicted.

    ``policy``: of ``cache.policies``. ``prefetch``: ``on`` fetches the records that hints name; ``async-io`` fetches
    when rows are applied, and applies those that need no read meanwhile; ``off`` waits. ``reads``: ``mapped`` files go
    through the page cache, ``direct`` ones around it. ``hint_worth_s``: hints are of use where a read takes at
    least so long. Long steps, such as a compaction, call ``pause`` now and then, so that hints need not wait for them.
    """

    policy: str = "timestamp"
    prefetch: str = "on"
    reads: str = "mapped"
    hint_worth_s: float = 10e-6
    pause: Callable[[], None] = field(default=lambda: None, compare=False)


@dataclass(frozen=True)
class Tuning:
    """``read_batch_ratio``: of the lists on disk, how many one look at their index reads ahead.

    ``max_space_amplification``: a store compacts once it takes so many times the bytes that it needs on disk.
    """

    read_batch_ratio: float = 0.02
    max_space_amplification: float = 1.5
    spilled: SpillTuning = field(default_factory=SpillTuning)

    def to_json(self) -> dict[str, Any]:
        """All but ``pause``, which belongs to one process."""
        raw = asdict(self)
        del raw["spilled"]["pause"]
        return raw

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Tuning:
        return cls(**{**raw, "spilled": SpillTuning(**raw["spilled"])})


DEFAULT_TUNING = Tuning()
