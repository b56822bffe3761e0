"""Shared by the tests: sessions, random cases, the way an engine is run, and the hunt for left-over processes."""
