"""The data sender: a process that sends messages when they are due, however the system under test does."""
