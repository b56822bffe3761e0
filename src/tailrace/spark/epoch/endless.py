"""A user's function that never returns, as the driver sees it.

The server itself ends such a call and reports it (``operators.user_code.call_limit``), unless the function never
releases the interpreter's lock: then the server process ends, and the driver only sees a lost server.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tailrace.env import clock
from tailrace.errors import StateServerError, UserFunctionError
from tailrace.operators.spec import OperatorSpec
from tailrace.server.transport.server_config import Access


@contextmanager
def reporting_endless_functions(
    operator: OperatorSpec, epoch: int, limit_s: float, access: Access
) -> Iterator[float | None]:
    """Around the calls to servers of one step. Gives how long a call may take; None: as long as any.

    A server that is lost after ``limit_s`` was lost to the function, which would do the same again: no other try helps.
    """
    if operator.waits_outside:
        yield access.transfer_timeout_s  # it may wait for its table, and reports by itself when that took too long
        return
    if not operator.has_user_code:
        yield None
        return
    began = clock.monotonic()
    try:
        yield access.transfer_timeout_s + limit_s  # a function is called as often as there is work for it
    except StateServerError as error:
        if clock.monotonic() - began < limit_s:
            raise
        raise UserFunctionError(
            f"operator {operator.name}, epoch {epoch}: its function has not returned within {limit_s:g} s (option "
            f"functionTimeout), nor let anything else happen in the state server, which has ended ({error}). Nothing "
            "of the epoch was kept: mend the function and start the query again."
        ) from error
