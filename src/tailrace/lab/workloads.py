"""Everything that the lab can run, registered: whoever looks up a name imports this module first."""

from __future__ import annotations

from tailrace.lab import benches, bids_window, keyed_sums, peers, prefetch_moving
from tailrace.lab.cluster_monitoring import workloads as cluster_monitoring
from tailrace.lab.linear_road import workloads as linear_road
from tailrace.lab.nexmark import workloads as nexmark
from tailrace.lab.ysb import workloads as ysb

ALL = (peers, keyed_sums, bids_window, nexmark, linear_road, cluster_monitoring, ysb, prefetch_moving, benches)
"""The modules that register something, in the order in which they need each other."""
