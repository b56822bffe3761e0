"""Bytes on disk: their format, names, writer and reader. See docs/log-format.md."""
