"""Names that a configuration may have, which of them stand for distributions, and what those are by default."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

from tailrace.lab.gadget.events import distributions
from tailrace.lab.gadget.events.distributions import Draws

INPUTS = ("first.event.generator.", "second.event.generator.")
_OF_INPUT = (
    "type",
    "events",
    "watermark.frequency",
    "watermark.events",
    "outoforder.percentage",
    "lateness.threshold",
    "add.percentage",
    "key.popularity.distrib",
    "event.occurrence.gap.distrib",
    "file.path",
    "file.format",
    "file.header",
    "file.separator",
    "file.inorder",
    "key.index",
    "event.time.index",
    "event.time.unit",
    "event.type.index",
    "add.types",
    "end.types",
)
_OF_OPERATOR = (
    "operator.type",
    "expected.num.operations",
    "window.length",
    "sliding.length",
    "session.gap",
    "upper.bound",
    "lower.bound",
    "bucket.length",
    "allowed.lateness",
    "lateness.length",
    "operator.key.size.distrib",
    "operator.value.size.distrib",
    "two.input.schedule",
    "seed",
)
_ACCEPTED = re.compile(
    r"(first|second)\.event\.generator\.arrival\.interarrival\.distrib\..*"
    r"|operator\.(key\.popularity|service\.time)\.distrib\..*|wrapper\..*|trace\.file\.path"
)
DISTRIBUTIONS: dict[str, Mapping[str, Callable[..., Draws]]] = {
    "key.popularity.distrib": distributions.KEYS,
    "event.occurrence.gap.distrib": distributions.NUMBERS,
    "operator.key.size.distrib": distributions.NUMBERS,
    "operator.value.size.distrib": distributions.NUMBERS,
}
DEFAULTS = {
    "key.popularity.distrib": "zipf:s=1,keyspacesize=1000000",
    "event.occurrence.gap.distrib": "exponential:lambda=10",
    "operator.key.size.distrib": "constant:constant=10",
    "operator.value.size.distrib": "constant:constant=10",
}


def names() -> Iterable[str]:
    for prefix, names in (*((one, _OF_INPUT) for one in INPUTS), ("", _OF_OPERATOR)):
        for name in names:
            if name in DISTRIBUTIONS:
                yield f"{prefix}{name}.type"
            else:
                yield prefix + name


def known(name: str) -> bool:
    if name in names() or _ACCEPTED.fullmatch(name):
        return True
    for prefix in (*INPUTS, ""):
        if name.startswith(prefix):
            kind, params, parameter = name[len(prefix) :].partition(".params.")
            if params and parameter and kind in DISTRIBUTIONS and (not prefix) == kind.startswith("operator."):
                return True
    return False
