"""What tasks, driver and servers say about staged rows. The frames themselves travel as Arrow or in shared files."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import NamedTuple

from tailrace.server.transport.wire import decode, dump

_CHECKSUM_MASK = 2**64 - 1


def chain_checksum(before: int, checksum: int) -> int:
    """The checksum of a stream of frames: depends on each frame's own and on their order."""
    return (before * 0x100000001B3 + checksum + 1) & _CHECKSUM_MASK


@dataclass(frozen=True)
class StageKey:
    """Where staged frames belong. ``attempt`` is Spark's task attempt id, unique over all stages of an application."""

    run: str
    operator: str
    epoch: int
    try_: int
    attempt: int
    partition: int


@dataclass(frozen=True)
class StageReceipt:
    """What one attempt has staged on one server. The task hands it to the driver, which names it to the server."""

    frames: int
    rows: int
    bytes: int
    checksum: int

    def after(self, rows: int, nbytes: int, checksum: int) -> StageReceipt:
        """This receipt with one more frame."""
        return StageReceipt(
            self.frames + 1, self.rows + rows, self.bytes + nbytes, chain_checksum(self.checksum, checksum)
        )


NOTHING_STAGED = StageReceipt(0, 0, 0, 0)


class CommittedAttempt(NamedTuple):
    """A winning attempt as the driver names it to one server, with what it staged *there*."""

    partition: int
    attempt: int
    rows: int
    checksum: int


@dataclass(frozen=True)
class Exchanged:
    """What one server has staged for the next operator of a chain. ``staged`` is by server, as the placement has it."""

    number: int  # of the sender in the placement: its partition and its attempt
    rows: int
    late_rows: int
    staged: tuple[StageReceipt, ...]

    def to_json(self) -> bytes:
        return dump(asdict(self))

    @classmethod
    def from_json(cls, data: bytes) -> Exchanged:
        return decode(cls, data)
