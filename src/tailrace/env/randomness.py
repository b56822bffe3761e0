"""Names that nobody else has, and secrets that nobody guesses. Safe from any thread."""

from __future__ import annotations

import secrets

from tailrace.ids import RunId


def new_run_id() -> RunId:
    """16 hex digits.

    Runs of one state location are told apart by this alone, so it comes from the system's generator.
    """
    return RunId(secrets.token_hex(8))


def short_id() -> str:
    """8 hex digits, to tell apart objects that one run may write twice under the same numbers."""
    return secrets.token_hex(4)


def new_token() -> str:
    """A per-query secret, for requests to state servers."""
    return secrets.token_urlsafe(32)
