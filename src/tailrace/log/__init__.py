"""Bytes on disk: their format, names, writer and reader. See docs/reference/log-format.md."""
