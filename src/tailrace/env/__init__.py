"""Disk, object stores, clock and randomness: the only place that touches them, so that tests can replace them."""
