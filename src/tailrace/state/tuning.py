"""How stores use the disk: what a user may set for all of them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Tuning:
    """``read_batch_ratio``: of the lists on disk, how many one look at their index reads ahead.

    ``max_space_amplification``: a store compacts once it takes so many times the bytes that it needs on disk.
    """

    read_batch_ratio: float = 0.02
    max_space_amplification: float = 1.5


USUAL = Tuning()
