"""Cluster Monitoring: events of tasks in a cluster, and the two queries CM1 and CM2 in the form that MiSA measures."""
