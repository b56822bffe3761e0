"""The lab: benchmarks and the demo. It uses Tailrace as a user does, through its public names only."""
