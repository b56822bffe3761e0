"""What makes an epoch durable, and where a restart recovers. See docs/explanation/commit-protocol.md."""
