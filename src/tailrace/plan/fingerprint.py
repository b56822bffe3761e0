"""What of a query may not change while its checkpoint lives, and how to say what did.

A fingerprint is a JSON object, kept with the checkpoint: plain data, never the words made of it here, so that wording
may change. How a query is run (route, combine, memory, transport, commit, watermark delay, ANSI mode) is not compared,
on purpose: it may change at any restart. A change of layout needs a new ``VERSION``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tailrace.operators.spec import OperatorSpec
from tailrace.operators.spec_json import spec_from_json
from tailrace.plan.describe import kept_text, kind_text, output_texts, parts
from tailrace.plan.physical import PhysicalPlan

VERSION = 1


def fingerprint(plan: PhysicalPlan) -> dict[str, Any]:
    """The JSON object to keep with the checkpoint."""
    return {
        "version": VERSION,
        "watermark_rule": plan.options.watermark.value,
        "operator": _plain(plan.operator),
        "then": [_plain(stage.operator) for stage in plan.stages[1:]],
    }


def _plain(operator: OperatorSpec) -> Any:
    """Without the user's function, which may be mended from one run to the next."""
    return json.loads(operator.without_code().to_json())


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """In a user's words, what the query was and is now (``shards: was 64, is now 32``); empty where it may go on."""
    if old.get("version") != new.get("version"):
        return [_said("version of the stored description", str(old.get("version")), str(new.get("version")))]
    before, after = _operators(old), _operators(new)
    if len(before) != len(after):
        return [_said("operators", str(len(before)), str(len(after)))]
    found = [said for was, now in zip(before, after, strict=True) for said in _changed(was, now)]
    if old["watermark_rule"] != new["watermark_rule"]:
        found.append(_said("watermark rule", str(old["watermark_rule"]), str(new["watermark_rule"])))
    return found


def _changed(was: OperatorSpec, now: OperatorSpec) -> list[str]:
    if kind_text(was) != kind_text(now):
        return [_said("operator", kind_text(was), kind_text(now))]
    found = _outputs(was, now)
    before, after = parts(was), parts(now)
    if found:
        # Changed outputs change the columns too, and it is said already.
        del before["output columns"]
    found += [_said(what, before[what], after[what]) for what in before if before[what] != after[what]]
    if not found and kept_text(was) != kept_text(now):
        found.append(_said("values kept in state", kept_text(was), kept_text(now)))
    return found


def _operators(stored: Mapping[str, Any]) -> list[OperatorSpec]:
    return [spec_from_json(json.dumps(each)) for each in (stored["operator"], *stored.get("then", ()))]


def _outputs(was: OperatorSpec, now: OperatorSpec) -> list[str]:
    before, after = output_texts(was), output_texts(now)
    names = [*before, *(name for name in after if name not in before)]
    return [
        _said(f"output {name!r}", before.get(name, "not there"), after.get(name, "not there"))
        for name in names
        if before.get(name) != after.get(name)
    ]


def _said(what: str, was: str, now: str) -> str:
    return f"{what}: was {was}, is now {now}"
