"""The order in which engines take their turns.

What an engine leaves behind (files that are still being written, caches full of its data) is paid by the one after it.
So the order is not only rotated: over ``2 * n`` turns each of ``n`` engines stands in every place equally often, and
equally often right after every other one.
"""

from __future__ import annotations


def in_turns(names: tuple[str, ...], number: int) -> tuple[str, ...]:
    """The order of turn ``number``.

    >>> [in_turns(("a", "b", "c"), number) for number in range(3)]
    [('a', 'b', 'c'), ('b', 'c', 'a'), ('c', 'a', 'b')]
    >>> in_turns(("a", "b", "c"), 3)
    ('c', 'b', 'a')
    """
    count = len(names)
    zigzag = [(i + 1) // 2 if i % 2 else -(i // 2) for i in range(count)]
    order = [(place + number) % count for place in zigzag]
    if number // count % 2:
        order.reverse()
    return tuple(names[i] for i in order)
