"""What makes an epoch durable, and what a restart lands on. See docs/commit-protocol.md."""
