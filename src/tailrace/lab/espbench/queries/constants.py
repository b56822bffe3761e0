"""What the queries are defined by, and where a sensor's row has it; the validator has numbers of its own."""

from __future__ import annotations

MF01, MF02, MF03 = 2, 3, 4
"""Columns of a sensor's row."""
HIGH_MF01, LOW_MF03 = 14_963, 8_105
WINDOW = 500
"""Records of a window of query 2."""
PERPLEXITY = 30.0
STEPS = 50
THRESHOLD = 0.5
