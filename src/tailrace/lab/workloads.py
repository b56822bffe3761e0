"""Everything that the lab can run, registered: whoever looks up a name imports this module first."""

from __future__ import annotations

from tailrace.lab import benches, bids_window, keyed_sums, peers

ALL = (peers, keyed_sums, bids_window, benches)
"""The modules that register something, in the order in which they need each other."""
