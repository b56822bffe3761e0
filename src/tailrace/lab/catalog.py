"""Everything that the lab can run: importing this module registers every engine, workload and bench.

Whoever looks a name up in ``registry`` calls `load` first. A new engine, workload or bench is one descriptor in a
module of its own, and one line here.
"""

from __future__ import annotations

from types import ModuleType

from tailrace.lab.bench import memory, overhead, port, rmw, start
from tailrace.lab.bench import nexmark as nexmark_bench
from tailrace.lab.bench import processors as processors_bench
from tailrace.lab.bench.commit import bench as commit
from tailrace.lab.bench.prefetch import bench as prefetch
from tailrace.lab.bench.prefetch import moving as prefetch_moving
from tailrace.lab.bench.stores import bench as stores
from tailrace.lab.engines import peers
from tailrace.lab.gadget import benches as gadget
from tailrace.lab.workloads import bids_window, keyed_sums
from tailrace.lab.workloads.cluster_monitoring import workloads as cluster_monitoring
from tailrace.lab.workloads.linear_road import workloads as linear_road
from tailrace.lab.workloads.nexmark import workloads as nexmark
from tailrace.lab.workloads.processors import workloads as processors
from tailrace.lab.workloads.ysb import workloads as ysb

ENGINES = (peers,)
WORKLOADS = (keyed_sums, bids_window, nexmark, linear_road, cluster_monitoring, ysb, processors)
BENCHES = (
    *(rmw, overhead, start, memory, nexmark_bench, port, processors_bench, stores),
    *(commit, prefetch, prefetch_moving, gadget),
)


def load() -> tuple[ModuleType, ...]:
    """The modules that have registered something: they did so when this module was imported."""
    return (*ENGINES, *WORKLOADS, *BENCHES)
