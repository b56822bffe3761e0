"""Checkpoints of the recovery suite's queries, to be read as tables."""

from __future__ import annotations

import json
import random

from support.crash.recovery import Logs, live
from support.crash.recovery_kinds import Script
from tailrace.commit.plan_file import write_plan
from tailrace.env.stores.local_store import LocalStore
from tailrace.operators.spec import OperatorSpec


def save(spec: OperatorSpec, script: Script, root: str, scratch: str, seed: int) -> None:
    """The state that a query leaves, whose servers are lost and replaced now and then."""
    store = LocalStore(root)
    live(spec, script, store, Logs(), scratch, random.Random(seed))
    write_plan(store, {"operators": [json.loads(spec.without_code().to_json())]}, replace=True)
