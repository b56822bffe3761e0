"""``tailrace espbench``: the benchmark of enterprise streams, from its data to its report."""
