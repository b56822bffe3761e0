"""Which scripted batches each epoch of a query took, by Spark's own log of offsets.

Usually batch i is epoch i. But where a start has rewound Spark, an epoch that was planned and reached no sink is
planned afresh, and Spark's file source then gives it the batch it had and the next one.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa


def as_run(batches: Sequence[pa.Table], checkpoint: Path, source: int = 0) -> tuple[pa.Table, ...]:
    """The rows of each epoch, from scripted batches of a source that is the query's ``source``-th."""
    taken, ends = 0, _ends(checkpoint, source)
    made = []
    for end in ends:
        made.append(pa.concat_tables([batches[0].slice(0, 0), *batches[taken:end]]))
        taken = end
    assert taken == len(batches), f"of {len(batches)} batches {taken} were taken"
    return tuple(made)


def _ends(checkpoint: Path, source: int) -> list[int]:
    """How many batches the epochs up to each one have taken together."""
    files = sorted(
        (path for path in (checkpoint / "offsets").iterdir() if path.name.isdigit()), key=lambda p: int(p.name)
    )
    assert [path.name for path in files] == [str(number) for number in range(len(files))]
    # A line with the version, one with Spark's metadata, then one for each source.
    offsets = [json.loads(path.read_text().splitlines()[2 + source]) for path in files]
    return [0 if each is None else int(each["logOffset"]) + 1 for each in offsets]
