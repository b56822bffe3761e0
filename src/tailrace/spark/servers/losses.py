"""What a query does about losses of state servers: it tries again, until nothing has come of it for a stated time.

One ``RetryBudget`` belongs to a query for as long as that lives. Whoever tries again asks it: an epoch, the opening of
servers, a start of the query itself. So losses that follow each other in different places are counted together, and
every one is a single line of the log.
"""

from __future__ import annotations

import logging

from tailrace.env import clock, randomness, tasks
from tailrace.errors import QueryStopped
from tailrace.ids import NO_EPOCH

FIRST_PAUSE_S, PAUSE_S_MAX = 0.1, 10.0
LOSSES_LEAST = 3
"""So many losses never end a query, however long the tries between them have taken."""
_LINE_CHARS_MAX = 400
_log = logging.getLogger("tailrace")


class RetryBudget:
    """Bounds the time without progress, from the first loss after the newest epoch on. Safe from any thread.

    A query that waits for rows has lost nothing, so idle time does not count. Progress is an epoch that was never done
    before: one that is replayed again and again is none.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._stopping = tasks.event()
        self._newest: int = NO_EPOCH
        self._losses = 0
        self._first_loss = 0.0

    def progress(self, epoch: int) -> None:
        """The epoch is done."""
        if epoch > self._newest:
            self._newest, self._losses = epoch, 0

    @property
    def spent(self) -> bool:
        return self._losses >= LOSSES_LEAST and clock.monotonic() - self._first_loss >= self._limit_s

    def lost(self, where: str, error: Exception) -> None:
        """Count a loss, log it and pause; the caller then tries again.

        The first loss is followed by no pause, the next ones by pauses that grow. Raises ``error`` where the budget is
        spent, ``QueryStopped`` where the query is being stopped.
        """
        self._losses += 1
        if self._losses == 1:
            self._first_loss = clock.monotonic()
        self._raise_if_stopped(error)
        if self.spent:
            waited_s = clock.monotonic() - self._first_loss
            error.add_note(
                f"No epoch was done for {waited_s:.0f} s, in which state servers were lost {self._losses} times "
                "(option recoveryTimeout)."
            )
            raise error
        _log.warning(
            "%s: a state server was lost (%d since the last epoch), trying again: %s",
            where,
            self._losses,
            one_line(error),
        )
        if self._losses > 1:
            pause_s = min(PAUSE_S_MAX, FIRST_PAUSE_S * 2 ** min(self._losses - 2, 10))
            self._stopping.wait(pause_s * (0.5 + randomness.fraction() / 2))
            self._raise_if_stopped(error)

    def stop(self) -> None:
        """The query is being stopped: nothing is tried again."""
        self._stopping.set()

    def _raise_if_stopped(self, error: Exception) -> None:
        if self._stopping.is_set():
            raise QueryStopped(f"the query was stopped while it recovered from a loss: {one_line(error)}") from error


def one_line(error: BaseException) -> str:
    """The first line of an error's text: Spark's errors carry its stack traces."""
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0][:_LINE_CHARS_MAX]
