"""The tries of an epoch: where a state server is lost, every server returns to the end of the epoch before, and the
epoch is done anew under the next number. Nothing of the old try is kept.

What is a loss, whatever the order in which it and its consequences are noticed:
- an error of a call to a server (``StateServerError``), also out of a task, where Spark makes text of it;
- a job of Spark's that the fleet has cancelled, since its tasks would wait for a server that is given up;
- any other error while a server does not answer: what the user's sink says of rows that could not be read.

Threads: the epoch's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from tailrace.errors import (
    CheckpointError,
    FencedError,
    QueryStopped,
    RewindNeeded,
    StateServerError,
    TableError,
    UnansweredError,
    UserFunctionError,
)
from tailrace.spark.commit.commits import Commits
from tailrace.spark.servers.fleet import Fleet
from tailrace.spark.servers.losses import RetryBudget

_JOB_CANCELLED = "SPARK_JOB_CANCELLED"
_OUR_ERRORS = tuple(f"{kind.__module__}.{kind.__name__}:" for kind in (StateServerError, UnansweredError))
"""As a Python worker's traceback names them, which Spark puts into its own error."""
_Done = TypeVar("_Done")


class EpochTries:
    def __init__(self, fleet: Fleet, commits: Commits, budget: RetryBudget) -> None:
        self._fleet = fleet
        self._commits = commits
        self._budget = budget
        self._cancels_known = 0  # of the fleet's, so many have come back as an error

    def run(self, epoch: int, try_once: Callable[[int], _Done]) -> _Done:
        """The result of the first try that succeeds. ``try_once`` gets the number of the try, from 0 on."""
        try_ = 0
        while True:
            try:
                if try_:
                    self._fleet.recover(self._commits.base_of_retry(epoch), try_)
                self._fleet.raise_given_up()
                done = try_once(try_)
            except Exception as error:
                if isinstance(error, CheckpointError):
                    self._commits.check_newest()  # a newer run cleans up what this one still reads
                if not self._is_loss(error):
                    raise
                self._budget.lost(f"epoch {epoch}, try {try_}", error)
                try_ += 1
            else:
                self._budget.progress(epoch)
                return done

    def _is_loss(self, error: Exception) -> bool:
        """Whether a server was lost, and another try helps."""
        if isinstance(error, UserFunctionError | TableError | RewindNeeded | QueryStopped):
            # A user's function that fails, or never ends, would do so again; the table was waited for already.
            return False
        if isinstance(error, FencedError | CheckpointError):
            return False  # whatever has become of the servers: the log, or its store, does not let this run go on
        if isinstance(error, StateServerError):
            return True
        texts = [str(each) for each in _causes(error)]
        if any(_JOB_CANCELLED in text for text in texts) and self._fleet.cancels > self._cancels_known:
            # Not by how many servers were given up when the try began: a cancel may come long after that is counted.
            # And one at a time: of two that were sent together, each may hit a try of its own.
            self._cancels_known += 1
            return True
        return any(name in text for text in texts for name in _OUR_ERRORS) or not self._fleet.all_alive()


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error, and what it was raised for: a sink may have put one of its own around Spark's."""
    seen: set[int] = set()
    found: BaseException | None = error
    while found is not None and id(found) not in seen:
        seen.add(id(found))
        yield found
        found = found.__cause__ or found.__context__
