"""A run: servers, a query on a system under test, the sender, and what came of it."""
