"""Every error Tailrace raises on purpose.

One root, and a type of its own only where a caller reacts to it differently. A message says what was wrong, where, and
what to do next.
"""

from __future__ import annotations


class TailraceError(Exception):
    """Root of every error that Tailrace raises on purpose."""


class AnalysisError(TailraceError):
    """The query as written cannot run: the user changes the query."""


class CheckpointError(TailraceError):
    """What is stored does not fit what is asked of it, or is damaged: the user looks at the checkpoint."""


class CorruptionError(CheckpointError):
    """A stored file fails its checksum, its length or its version. Names the file."""


class LockedError(TailraceError):
    """Another live query holds this checkpoint: the user stops that one first."""


class FencedError(TailraceError):
    """A newer run has taken over this state location: this run must stop and publish nothing."""


class StateServerError(TailraceError):
    """A state server cannot be reached, or has lost what it was given: the driver gives the epoch a new try."""


class UnansweredError(StateServerError):
    """No answer came to a call that may be made twice: the driver makes it again where the server still lives."""


class CertificateError(StateServerError):
    """Who answers in a state server's place shows a certificate that is not trusted: no start goes on with that."""


class RewindNeeded(StateServerError):
    """An epoch that Spark has committed is lost with a state server: the query starts again from the one before."""


class QueryStopped(TailraceError):
    """The query was stopped while an epoch waited: nobody needs to do anything."""


class SumOverflowError(TailraceError):
    """A sum left the range of its type under ANSI rules, as Spark's own aggregation would report."""


class UserFunctionError(TailraceError):
    """A function of the user failed in a state server: the user mends it and starts the query again."""


class TableError(TailraceError):
    """A lookup table cannot be read, or holds what it may not: the user mends that and starts the query again."""


class ReplayError(TailraceError):
    """A replayed epoch does not carry the rows recorded for it: the source or a transform is not repeatable."""
