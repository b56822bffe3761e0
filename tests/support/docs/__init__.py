"""Help for tests of the documentation."""
