"""The systems under test: each runs one query in a process of its own, from topics to a topic or the database."""
