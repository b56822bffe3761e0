"""The position of a fingerprint in its cell: guessed by interpolation, and right whatever the distribution."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tailrace.state.segments import kernels as ck
from tailrace.state.segments.segment import FINGERPRINTS


@given(
    st.lists(st.integers(0, FINGERPRINTS - 1), max_size=300),
    st.booleans(),
    st.lists(st.integers(0, FINGERPRINTS), min_size=1),
)
def test_a_tag_is_found_wherever_it_lies(fingerprints: list[int], crowded: bool, wanted: list[int]) -> None:
    """As by binary search, whether fingerprints lie evenly or all in one corner, records dead or not."""
    own = np.sort(np.array(fingerprints, np.uint32) // (1000 if crowded else 1))
    marked = own | (np.arange(len(own), dtype=np.uint32) % 3 == 0).astype(np.uint32) << np.uint32(31)
    for fingerprint in [*wanted, 0, FINGERPRINTS, *own[:3].tolist()]:
        out = np.empty(1, np.int64)
        ck.fingerprint_positions(marked, np.array([0]), np.array([len(own)]), fingerprint, out)
        assert out[0] == np.searchsorted(own, fingerprint), fingerprint
