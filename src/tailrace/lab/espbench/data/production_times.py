"""The stream of production times: for each order line when its production began (1) and when it ended (0).

The original's generator names line 1 in nearly every end; ``as_original`` keeps that.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tailrace.lab.espbench.data.business import line_numbers
from tailrace.lab.espbench.data.columns import same


def production_times(orders: np.ndarray, lines_of_order: np.ndarray, as_original: bool = False) -> pa.Table:
    """Two rows a line, in the order of lines."""
    counts = 2 * np.asarray(lines_of_order)
    place = line_numbers(counts) - 1
    lines, begins = place // 2 + 1, place % 2 == 0
    if as_original:
        last = place + 1 == np.repeat(counts, counts)
        lines = np.where(begins | last, lines, 1)
    return pa.table(
        {
            "pt_o_id": np.repeat(np.asarray(orders, np.int32), counts),
            "pt_ol_number": lines.astype(np.int32),
            "pt_pol_number": same(1, len(lines), pa.int32()),
            "pt_is_end": begins.astype(np.int32),
        }
    )
