"""What of a query may not change while its checkpoint lives, and how to say what did.

A fingerprint is a JSON object, kept with the checkpoint: plain data, never the words made of it here, so that wording
may change. How a query is run (route, combine, memory, transport, commit, watermark delay, ANSI mode) is not compared,
on purpose: it may change at any restart. A change of layout needs a new ``VERSION``.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

from tailrace.operators.registry import description_of, spec_from_json
from tailrace.operators.spec import OperatorSpec
from tailrace.plan.physical import PhysicalPlan, Stage

VERSION = 7


def fingerprint(plan: PhysicalPlan) -> dict[str, Any]:
    """The JSON object to keep with the checkpoint."""
    return {
        "version": VERSION,
        "watermark_rule": plan.options.watermark.value,
        "idle_epochs": plan.options.idle_timeout is not None,
        "operators": [_plain(stage.operator) for stage in plan.stages],
        "rows_of": [_rows_of(plan, stage) for stage in plan.stages],
        "outputs": [plan.stages[number].operator.name for number in plan.outputs],
        # For whoever reads the state; not compared, since a user may rename columns.
        "names": {} if plan.hop is None else dict(plan.hop.names),
    }


def _rows_of(plan: PhysicalPlan, stage: Stage) -> list[str]:
    """Where an operator's rows come from: streams by their number, operators by their names."""
    streams = [f"stream {number + 1}" for number in stage.inputs if number is not None]
    return [*streams, *(plan.stages[number].operator.name for number in stage.before)]


def _plain(operator: OperatorSpec) -> Any:
    """Without the user's function, which may be mended from one run to the next."""
    return json.loads(operator.without_code().to_json())


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """In a user's words, what the query was and is now (``shards: was 64, is now 32``); empty where it may go on."""
    if old.get("version") != new.get("version"):
        return [_difference("version of the stored description", str(old.get("version")), str(new.get("version")))]
    before, after = _operators(old), _operators(new)
    if len(before) != len(after):
        return [_difference("operators", str(len(before)), str(len(after)))]
    found = [said for was, now in zip(before, after, strict=True) for said in _changed(was, now)]
    if not found:
        found = _wiring(after, old, new)
    if old["idle_epochs"] != new["idle_epochs"]:
        said = [("given" if each["idle_epochs"] else "not given") for each in (old, new)]
        found.append(_difference("option idleTimeout", *said))
    if old["watermark_rule"] != new["watermark_rule"]:
        found.append(_difference("watermark rule", str(old["watermark_rule"]), str(new["watermark_rule"])))
    return found


def _wiring(operators: list[OperatorSpec], old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Where the rows of each operator come from, and which of them the sink gets."""
    named = [f"rows of {operator.name}" for operator in operators]
    was, now = ([*stored["rows_of"], stored["outputs"]] for stored in (old, new))
    return [
        _difference(name, ", ".join(one), ", ".join(other))
        for name, one, other in zip([*named, "output"], was, now, strict=True)
        if one != other
    ]


def _changed(was: OperatorSpec, now: OperatorSpec) -> list[str]:
    before, after = description_of(was), description_of(now)
    if before.title(was) != after.title(now):
        return [_difference("operator", before.title(was), after.title(now))]
    found = _compared(before.outputs(was), after.outputs(now), "output {!r}")
    left_out = {"output columns"} if found else set()  # changed outputs change the columns too, and are named already
    found += _compared(_parts(was), _parts(now), "{}", left_out)
    kept = before.kept(was), after.kept(now)
    return found or ([] if kept[0] == kept[1] else [_difference("values kept in state", *kept)])


def _parts(operator: OperatorSpec) -> dict[str, str]:
    """All that may not change, by name."""
    return {
        "operator": operator.name,
        **description_of(operator).parts(operator),
        "watermark": "set" if operator.watermarked else "not set",
        "shards": str(operator.shards),
        "output columns": ", ".join(field.name for field in operator.emits),
    }


def _operators(stored: Mapping[str, Any]) -> list[OperatorSpec]:
    return [spec_from_json(json.dumps(each)) for each in stored["operators"]]


def _compared(
    before: Mapping[str, str], after: Mapping[str, str], what: str, left_out: Collection[str] = ()
) -> list[str]:
    names = [name for name in dict.fromkeys([*before, *after]) if name not in left_out]
    return [
        _difference(what.format(name), before.get(name, "not there"), after.get(name, "not there"))
        for name in names
        if before.get(name) != after.get(name)
    ]


def _difference(what: str, was: str, now: str) -> str:
    return f"{what}: was {was}, is now {now}"
