"""Everything that the lab can run, registered: whoever looks up a name imports this module first."""

from __future__ import annotations

from tailrace.lab.bench import ratios as benches
from tailrace.lab.bench.prefetch import moving as prefetch_moving
from tailrace.lab.engines import peers
from tailrace.lab.workloads import bids_window, keyed_sums
from tailrace.lab.workloads.cluster_monitoring import workloads as cluster_monitoring
from tailrace.lab.workloads.linear_road import workloads as linear_road
from tailrace.lab.workloads.nexmark import workloads as nexmark
from tailrace.lab.workloads.ysb import workloads as ysb

ALL = (peers, keyed_sums, bids_window, nexmark, linear_road, cluster_monitoring, ysb, prefetch_moving, benches)
"""The modules that register something, in the order in which they need each other."""
