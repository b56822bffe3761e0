"""What makes an epoch durable, and what a restart lands on. See docs/explanation/commit-protocol.md."""
