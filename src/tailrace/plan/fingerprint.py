"""What of a query may not change while its checkpoint lives, and how to say what did.

A fingerprint is a JSON object, kept with the checkpoint: plain data, never the words made of it here, so that wording
may change. How a query is run (route, combine, memory, transport, commit, watermark delay, ANSI mode) is not compared,
on purpose: it may change at any restart. A change of layout needs a new ``VERSION``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tailrace.operators.spec import OperatorSpec
from tailrace.plan.describe import accumulator_text, field_text, output_text, windows_text
from tailrace.plan.physical import PhysicalPlan

VERSION = 1


def fingerprint(plan: PhysicalPlan) -> dict[str, Any]:
    """The JSON object to keep with the checkpoint."""
    return {
        "version": VERSION,
        "watermark_rule": plan.watermark_rule.value,
        "operator": _plain(plan.operator),
        "then": [_plain(stage.operator) for stage in plan.stages[1:]],
    }


def _plain(operator: OperatorSpec) -> Any:
    """Without the user's function, which may be mended from one run to the next."""
    return json.loads(replace(operator, function=None if operator.function is None else "").to_json())


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """In a user's words, what the query was and is now (``shards: was 64, is now 32``); empty where it may go on."""
    if old.get("version") != new.get("version"):
        return [_said("version of the stored description", str(old.get("version")), str(new.get("version")))]
    before, after = _operators(old), _operators(new)
    if len(before) != len(after):
        return [_said("operators", str(len(before)), str(len(after)))]
    return [said for was, now in zip(before, after, strict=True) for said in _changed(was, now, old, new)]


def _changed(was: OperatorSpec, now: OperatorSpec, old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    found = _outputs(was, now)
    before, after = _parts(was, old), _parts(now, new)
    if found:
        # Changed outputs change the columns too, and it is said already.
        del before["output columns"]
    found += [_said(what, before[what], after[what]) for what in before if before[what] != after[what]]
    if not found and (was.accumulators, was.rows) != (now.accumulators, now.rows):
        found.append(_said("values kept in state", _kept(was), _kept(now)))
    return found


def _operators(stored: Mapping[str, Any]) -> list[OperatorSpec]:
    return [OperatorSpec.from_json(json.dumps(each)) for each in (stored["operator"], *stored.get("then", ()))]


def _parts(operator: OperatorSpec, stored: Mapping[str, Any]) -> dict[str, str]:
    return {
        "operator": operator.name,
        "group columns": ", ".join(map(field_text, operator.keys)) or "none",
        "window": windows_text(operator),
        "event time column": field_text(operator.time_column),
        "output mode": "update" if operator.emit_changed else "append",
        "watermark": "set" if operator.watermarked else "not set",
        "watermark rule": str(stored["watermark_rule"]),
        "shards": str(operator.shards),
        "output columns": ", ".join(operator_columns(operator)),
    }


def _outputs(was: OperatorSpec, now: OperatorSpec) -> list[str]:
    before = {output.name: output_text(was, output) for output in was.outputs}
    after = {output.name: output_text(now, output) for output in now.outputs}
    names = [*before, *(name for name in after if name not in before)]
    return [
        _said(f"output {name!r}", before.get(name, "not there"), after.get(name, "not there"))
        for name in names
        if before.get(name) != after.get(name)
    ]


def operator_columns(operator: OperatorSpec) -> list[str]:
    """The names of an operator's output columns, in order."""
    groups = [key.name for key in operator.shown_keys]
    if operator.windowed:
        groups.insert(operator.window_position, operator.window_name)
    return [*groups, *(output.name for output in operator.outputs)]


def _kept(operator: OperatorSpec) -> str:
    if operator.keeps_rows:
        return f"all rows ({', '.join(map(field_text, operator.rows))})"
    return ", ".join(f"{accumulator_text(one)} {one.type}" for one in operator.accumulators)


def _said(what: str, was: str, now: str) -> str:
    return f"{what}: was {was}, is now {now}"
