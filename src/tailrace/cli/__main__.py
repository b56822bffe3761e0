"""``python -m tailrace.cli``."""

from __future__ import annotations

from tailrace.cli import main

if __name__ == "__main__":
    main()
