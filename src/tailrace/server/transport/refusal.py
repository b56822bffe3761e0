"""What a caller gets of a call that failed: our errors as the same type; any other is a fault here."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from tailrace import errors
from tailrace.errors import StateServerError, TailraceError
from tailrace.log.typed_json import MalformedError

_log = logging.getLogger(__name__)
_MESSAGE_CHARS_MAX = 4000
"""gRPC sends errors in headers, which are bounded at 8 KiB."""


@dataclass(frozen=True)
class Refusal:
    """``kind``: the name of one of ``tailrace.errors``."""

    kind: str
    message: str

    def error(self, who: str) -> TailraceError:
        """What the caller raises. ``who`` names the server."""
        kind = getattr(errors, self.kind, StateServerError)
        said: TailraceError = kind(f"{self.message} [{who}]")
        return said


def refused(what: str, error: Exception) -> Refusal:
    """What has failed, and why. Logged as well."""
    ours = isinstance(error, TailraceError | MalformedError)
    if ours:
        _log.info("%s refused: %s: %s", what, type(error).__name__, error)
    else:
        _log.error("%s failed", what, exc_info=error)
    message = str(error) if ours else f"{type(error).__name__}: {error}"
    kind = next(kind for kind in (*type(error).__mro__, StateServerError) if hasattr(errors, kind.__name__))
    return Refusal(kind.__name__, message[:_MESSAGE_CHARS_MAX])
