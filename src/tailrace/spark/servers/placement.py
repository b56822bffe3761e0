"""Which state server owns which shards.

Invariants of a ``Placement``
- Every shard belongs to exactly one server; a server owns one half-open range, in the order of the servers. So rows
  that servers exchange are applied in the same order whatever the placement.
- A reassignment moves no shard that a surviving server already owns.
- A placement holds for an epoch. It changes between two (``spark.epoch.shard_moves``), and between two tries of one
  where a server is lost. Each change has the next version.

No other code may assume that there is only one server, nor that a server's range stays the same between two tries.
Pure and frozen.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from tailrace.errors import StateServerError
from tailrace.server.transport.server_config import ServerAddress


@dataclass(frozen=True)
class Placement:
    """``bounds[i]`` to ``bounds[i + 1]`` are the shards of ``servers[i]``."""

    servers: tuple[ServerAddress, ...]
    bounds: tuple[int, ...]
    version: int = field(default=0, compare=False)

    def __post_init__(self) -> None:
        if len(self.bounds) != len(self.servers) + 1 or self.bounds[0] != 0:
            raise ValueError(f"{len(self.servers)} servers do not fit the bounds {self.bounds}")
        if any(low >= high for low, high in self.ranges):
            raise ValueError(f"a server without shards: {self.bounds}")

    @classmethod
    def even(cls, servers: Sequence[ServerAddress], shards: int) -> Placement:
        """Ranges of equal size, as far as they can be. Servers beyond the number of shards are left out."""
        if not servers or shards < 1:
            raise StateServerError("no state server could be started, so no shard can be placed")
        used = tuple(servers[:shards])
        return cls(used, tuple(shards * i // len(used) for i in range(len(used) + 1)))

    @property
    def shards(self) -> int:
        return self.bounds[-1]

    @property
    def ranges(self) -> list[tuple[int, int]]:
        """Half-open, in the order of ``servers``."""
        return list(pairwise(self.bounds))

    def shards_of(self, server: ServerAddress) -> range:
        at = self.servers.index(server)
        return range(self.bounds[at], self.bounds[at + 1])

    def owner(self, shard: int) -> ServerAddress:
        if not 0 <= shard < self.shards:
            raise ValueError(f"there is no shard {shard}, only {self.shards}")
        return self.servers[bisect_right(self.bounds, shard) - 1]

    def reassigned(self, living: Sequence[ServerAddress]) -> Placement:
        """The placement over the servers that live now: survivors keep theirs, new ones take over what was lost.

        Where there are more losses than new servers, the neighbours of a gap share it. New servers for which nothing
        was lost stay out: moving shards costs more than it would gain in the middle of a run.
        """
        if not living:
            raise StateServerError("every state server is gone and none could be started")
        known = {server.server for server in self.servers}
        new = [server for server in living if server.server not in known]
        survivors = {server.server for server in living} & known
        if not survivors:
            return Placement.even(living, self.shards)
        owned = [
            _Part(low, high, server if server.server in survivors else None)
            for (low, high), server in zip(self.ranges, self.servers)
        ]
        kept = _without_gaps(_filled(_joined_gaps(owned), new))
        after = Placement(tuple(part.server for part in kept if part.server), (0, *(part.high for part in kept)))
        return self._followed_by(after)

    def balanced(self, wanted: Sequence[ServerAddress]) -> Placement:
        """These servers, and no others, with ranges of equal size, as far as they can be.

        Who has shards already stays in its order among the others. A new server comes in the place of one that leaves,
        or next to the one with the most shards.
        """
        names = {server.server for server in wanted}
        known = {server.server for server in self.servers}
        new = [server for server in wanted if server.server not in known]
        room = max(0, self.shards - len(names & known))
        order = _with_new(self, names, new[:room])
        return self._followed_by(Placement.even(order, self.shards))

    def toward(self, target: Placement, shards_max: int) -> Placement:
        """The next placement on the way to ``target``: at most so many shards move, but one at least.

        A server that leaves is gone from it once it has no shard left.
        """
        order = _merged(self.servers, target.servers)
        now, then = _ends(self, order), _ends(target, order)
        furthest = max((abs(end - begin) for begin, end in zip(now, then, strict=True)), default=0)
        low, high = 1, furthest  # steps of the way, of which there are ``furthest``
        while low < high:
            middle = (low + high + 1) // 2
            if _moved(now, _between(now, then, middle, furthest)) <= shards_max:
                low = middle
            else:
                high = middle - 1
        ends = _between(now, then, low, furthest) if furthest else now
        ranges = [(server, end) for server, start, end in zip(order, (0, *ends), ends, strict=False) if start < end]
        return self._followed_by(Placement(tuple(server for server, _ in ranges), (0, *(end for _, end in ranges))))

    def moved(self, before: Placement) -> dict[ServerAddress, tuple[int, int]]:
        """By server whose range differs from that in ``before``, the range that it has here; an empty one of none."""
        ranges = dict(zip(self.servers, self.ranges, strict=True))
        known = dict(zip(before.servers, before.ranges, strict=True))
        found = {server: ranges.get(server, (0, 0)) for server in (*before.servers, *self.servers)}
        return {server: range_ for server, range_ in found.items() if known.get(server) != range_}

    def gained(self, before: Placement) -> int:
        """How many shards have another owner than in ``before``."""
        order = _merged(before.servers, self.servers)
        return _moved(_ends(before, order), _ends(self, order))

    def _followed_by(self, after: Placement) -> Placement:
        return self if after == self else replace(after, version=self.version + 1)


def _with_new(placement: Placement, wanted: set[str], new: Sequence[ServerAddress]) -> list[ServerAddress]:
    """The wanted servers of the placement in their order, and the new ones between them."""
    sizes = [high - low for low, high in placement.ranges]
    stays = [server.server in wanted for server in placement.servers]
    counts = [0] * len(sizes)
    for _ in new:
        # The place of one that leaves comes first.
        at = max(
            range(len(sizes)),
            key=lambda at: (not stays[at] and not counts[at], sizes[at] / max(1, counts[at] + stays[at])),
        )
        counts[at] += 1
    left = iter(new)
    order: list[ServerAddress] = []
    for server, kept, count in zip(placement.servers, stays, counts, strict=True):
        order += [server] if kept else []
        order += [next(left) for _ in range(count)]
    return order


def _merged(before: Sequence[ServerAddress], after: Sequence[ServerAddress]) -> list[ServerAddress]:
    """All servers of both, each in its order. Those of both have the same order in both."""
    rest = list(after)
    merged: list[ServerAddress] = []
    for server in before:
        while server in rest:
            merged.append(rest.pop(0))
            if merged[-1] == server:
                break
        else:
            merged.append(server)
    return merged + rest


def _ends(placement: Placement, order: Sequence[ServerAddress]) -> list[int]:
    """Where the range of each of these servers ends; a server that has none ends where the one before it does."""
    known = dict(zip(placement.servers, placement.bounds[1:], strict=True))
    ends: list[int] = []
    for server in order:
        ends.append(known.get(server, ends[-1] if ends else 0))
    return ends


def _between(now: Sequence[int], then: Sequence[int], step: int, steps: int) -> list[int]:
    """All ends, so far on their way. Rounded to one side, so that none overtakes another."""
    return [begin + (end - begin) * step // steps for begin, end in zip(now, then, strict=True)]


def _moved(now: Sequence[int], then: Sequence[int]) -> int:
    stay = 0
    for low, high, new_low, new_high in zip((0, *now), now, (0, *then), then, strict=False):
        stay += max(0, min(high, new_high) - max(low, new_low))
    return (now[-1] if now else 0) - stay


@dataclass(frozen=True)
class _Part:
    """A range of shards on its way to an owner; a gap has none."""

    low: int
    high: int
    server: ServerAddress | None

    @property
    def size(self) -> int:
        return self.high - self.low


def _joined_gaps(parts: Sequence[_Part]) -> list[_Part]:
    joined: list[_Part] = []
    for part in parts:
        if joined and joined[-1].server is None and part.server is None:
            joined[-1] = replace(joined[-1], high=part.high)
        else:
            joined.append(part)
    return joined


def _filled(parts: Sequence[_Part], new: Sequence[ServerAddress]) -> list[_Part]:
    """Give gaps to new servers: the largest first, one each, and then the largest share is halved again."""
    counts = {part: 0 for part in parts if part.server is None}
    for _ in new:
        wanting = [gap for gap in counts if counts[gap] < gap.size]
        if not wanting:
            break
        # A gap without any server comes before one that would only be shared further.
        counts[max(wanting, key=lambda gap: (counts[gap] == 0, gap.size / (counts[gap] + 1)))] += 1
    left = iter(new)
    filled: list[_Part] = []
    for part in parts:
        count = counts.get(part, 0)
        if count == 0:
            filled.append(part)
            continue
        edges = [part.low + part.size * i // count for i in range(count + 1)]
        filled += [_Part(low, high, next(left)) for low, high in pairwise(edges)]
    return filled


def _without_gaps(parts: Sequence[_Part]) -> list[_Part]:
    """Let the neighbours of each gap share it."""
    kept: list[_Part] = []
    carried: int | None = None  # where the next owner begins, if not at its own start
    for at, part in enumerate(parts):
        if part.server is not None:
            kept.append(part if carried is None else replace(part, low=carried))
            carried = None
            continue
        before, after = bool(kept), at + 1 < len(parts)
        middle = part.high if not after else part.low if not before else (part.low + part.high) // 2
        if before:
            kept[-1] = replace(kept[-1], high=middle)
        carried = middle
    return kept
