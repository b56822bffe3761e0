"""A changelog of sessions: output rows with what each of them says, in a column as Spark's change data feeds have it.

An epoch gives for each session that it changed its row: ``insert``, or ``update_postimage`` where its bounds are as
before. Each session of before that has become part of it is given once more as it was: ``delete``, or
``update_preimage``. Sessions of a key do not touch, so that without preimages no two rows of an epoch have the same
group and bounds: the order in which they are applied does not matter.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tailrace.operators.aggregate.spec import CHANGE_TYPE
from tailrace.operators.session.former_sessions import FormerSessions

INSERT, DELETE, PREIMAGE, POSTIMAGE = range(4)
_NAMES = ("insert", "delete", "update_preimage", "update_postimage")
"""No Arrow array: the first one of a process imports pandas, and servers see to it that theirs does not."""


def change_types(former: FormerSessions, starts: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What is said of the sessions with these bounds, and of those that they were."""
    stayed = former.stayed(starts, ends)
    now = np.full(len(starts), INSERT)
    now[former.within[stayed]] = POSTIMAGE
    return now, np.where(stayed, PREIMAGE, DELETE)


def with_change_types(batch: pa.RecordBatch, types: np.ndarray) -> pa.RecordBatch:
    return batch.append_column(CHANGE_TYPE, pa.array(_NAMES).take(pa.array(types)))
