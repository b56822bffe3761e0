"""``plan.json``: what the query looked like whose state this is. Kept beside the log, compared at every start.

What may differ is for ``plan`` to say; here it is written, read and checked against its checksum.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from tailrace.env.stores.object_store import ObjectStore, locate
from tailrace.errors import CheckpointError, CorruptionError
from tailrace.log.filenames import PLAN_NAME
from tailrace.log.format import damaged, decode_entry, encode_entry

PLAN = "plan"


def read_plan(store: ObjectStore, digest: str = "") -> dict[str, Any] | None:
    """The stored plan; ``None`` where there is none yet. ``digest``: of the newest durable epoch's.

    While the state is given other shards, there are two, and the epoch says which one is its own.
    """
    try:
        data = store.get(PLAN_NAME)
    except FileNotFoundError:
        return None
    kind, body = decode_entry(data, locate(store, PLAN_NAME))
    if kind != PLAN:
        raise CorruptionError(damaged(locate(store, PLAN_NAME), f"it is of kind {kind!r}"))
    plan, then = body.get("plan"), body.get("then")
    if isinstance(then, dict) and digest == plan_digest(then):
        return then
    if not isinstance(plan, dict):
        raise CorruptionError(damaged(locate(store, PLAN_NAME), "it holds no plan"))
    return plan


def write_plan(
    store: ObjectStore, plan: Mapping[str, Any], *, replace: bool = False, then: Mapping[str, Any] | None = None
) -> None:
    """Keep the plan. ``replace``: only while no state belongs to the stored one, or the new one has it too.

    ``then``: that of an entry which is about to be appended.
    """
    data = encode_entry(PLAN, {"plan": dict(plan)} if then is None else {"plan": dict(plan), "then": dict(then)})
    if replace:
        store.put(PLAN_NAME, [data])
    elif not store.put_if_absent(PLAN_NAME, data) and store.get(PLAN_NAME) != data:
        raise CheckpointError(
            f"{locate(store, PLAN_NAME)} has just been written by another query. Only one query may use a state "
            "location."
        )


def plan_digest(plan: Mapping[str, Any]) -> str:
    """Ties a manifest to the plan its state belongs to."""
    return hashlib.sha256(json.dumps(plan, sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:16]


def refuse_other_plan(stored: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """The default comparison: everything must be equal. The error lists what is not."""
    if differences := list(_differences("", stored, now)):
        raise CheckpointError(
            "The query has changed since its state was written: "
            + "; ".join(differences[:8])
            + ". Restore the query as it was, or start with a new checkpoint location."
        )


def _differences(path: str, stored: Any, now: Any) -> list[str]:
    if isinstance(stored, Mapping) and isinstance(now, Mapping):
        keys = sorted({*stored, *now})
        return [
            line for key in keys for line in _differences(f"{path}.{key}".lstrip("."), stored.get(key), now.get(key))
        ]
    return [] if stored == now else [f"{path or 'plan'} was {stored!r} and is {now!r}"]
