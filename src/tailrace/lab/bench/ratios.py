"""What each bench's ratios mean, for whoever reads their records: the report, a person."""

from __future__ import annotations

from tailrace.lab.registry import OURS, Bench, Ratio, register

register(
    Bench(
        "rmw",
        "Sum, count and max per key over keys that all exist already: read-modify-write of keyed state.",
        (
            Ratio("speedup_rocksdb", "as fast as Spark's RocksDB store", "spark-rocksdb", OURS),
            Ratio("speedup_memory", "as fast as Spark's in-memory store", "spark-memory", OURS),
            Ratio("over_shuffle_floor", "the shuffle floor", OURS, "shuffle-floor", more_is_better=False),
            Ratio("over_transfer_floor", "the transfer floor", OURS, "transfer-floor", more_is_better=False),
        ),
    ),
    Bench(
        "overhead",
        "The fixed price of a micro-batch: batches too small for the work in them to matter.",
        (
            Ratio("p50_ratio", "the median of Spark's RocksDB store", OURS, "spark-rocksdb", more_is_better=False),
            Ratio("p99_ratio", "the p99 of Spark's RocksDB store", OURS, "spark-rocksdb", 99, more_is_better=False),
        ),
    ),
    Bench(
        "memory",
        "State of ten times its memory: keyed sums with all state in memory, with a tenth of it, and ten times larger.",
        (
            Ratio("slow_down", "with all state in memory", "tenth", "hot", more_is_better=False),
            Ratio("ten_times_larger", "a tenth of the state", "large", "tenth", more_is_better=False),
        ),
    ),
    Bench(
        "nexmark",
        "NEXMark's queries one after the other. A ratio is the throughput over that of Spark's RocksDB store; series "
        "hold the batches of all queries in the order in which they ran.",
        (),  # one ratio a query, under its name
    ),
    Bench(
        "stores",
        "The state stores by themselves, under what NEXMark's bids ask of them. A ratio is the throughput with a "
        "fiftieth of all lists read ahead over that without reading ahead; series hold rounds, not epochs.",
        (
            Ratio(
                "read_ahead",
                "as fast as not ahead, by session",
                "ratio a session a read, 0",
                "ratio a session a read, 0.02",
            ),
            Ratio(
                "read_ahead_epoch",
                "as fast as not ahead, by epoch",
                "ratio an epoch a read, 0",
                "ratio an epoch a read, 0.02",
            ),
        ),
    ),
    Bench(
        "commit",
        "What a commit to a slow store costs a batch, on Linear Road and Cluster Monitoring. A ratio of p99 is that of "
        "Spark's RocksDB store over Tailrace's asynchronous commit, one of throughput the other way round; series hold "
        "the batches of all queries in the order in which they ran.",
        (),  # two ratios a query, under its name
    ),
    Bench(
        "prefetch",
        "What rows wait for state that is not in memory, which is several times as large as memory, where reading one "
        "key takes a millisecond. A ratio of waits is the p99.9 of a baseline over that with hints, one of throughput "
        "that with hints over the best baseline's; series hold the batches of all workloads in order.",
        (),  # three ratios a workload, under its name
    ),
    Bench(
        "prefetch-moving",
        "A join with a slow table behind three steps: the first begins to change the keys, then the table becomes "
        "fast, and the point from which hints come moves.",
        (),
    ),
    Bench(
        "gadget",
        "What streaming operators ask of their state, on state stores by themselves. Stores are the engines; a series "
        "has one value a workload, the milliseconds of a million accesses in micro-batches.",
        (),
    ),
    Bench(
        "gadget-replay",
        "One trace of state accesses on one store, or several at the same time.",
        (),
    ),
    Bench(
        "gadget-analyze",
        "What traces of state accesses tell, as Gadget's paper looks at them: composition, amplification, distance "
        "from the input, locality in time and space, lives of keys, working sets.",
        (),
    ),
)
