"""A user's function: loaded from the text that the plan makes of it, and called so that the user sees what it raises.

It comes with a server's configuration, from the process that started the server, or with Spark's own task, and from
nobody else.
"""

from __future__ import annotations

import base64
import pickle
import traceback
from collections.abc import Callable
from typing import Any

from tailrace.env.pandas_import import show_pandas
from tailrace.errors import UserFunctionError
from tailrace.operators.user_code.call_limit import NotReturned, within_limit

_LINES_SHOWN = 6
NOTHING_KEPT = "Nothing of the epoch was kept: mend the function and start the query again."


def loaded(code: str, operator: str, what: str) -> Callable[..., Any]:
    show_pandas()
    try:
        function: Callable[..., Any] = pickle.loads(base64.b64decode(code))
    except Exception as error:
        raise UserFunctionError(
            f"operator {operator}: {what} cannot be loaded where it is to run ({error!r}): what it imports must be "
            "importable by Spark's Python workers too; install it there, or ship it with sc.addPyFile"
        ) from error
    return function


def said_of(operator: str, epoch: int | None, function: Callable[..., Any]) -> str:
    """How an error names a call."""
    where = f"operator {operator}" if epoch is None else f"operator {operator}, epoch {epoch}"
    return f"{where}: function {getattr(function, '__name__', 'function')}"


def called(function: Callable[..., Any], name: str, *arguments: Any) -> Any:
    try:
        return within_limit(function, arguments)
    except NotReturned as error:
        raise UserFunctionError(f"{name} {error}. {NOTHING_KEPT}") from error
    except (Exception, SystemExit) as error:
        said = "".join(traceback.format_exception(error)[-_LINES_SHOWN:])
        raise UserFunctionError(
            f"{name} raised {type(error).__name__}: {error}. {NOTHING_KEPT} Where it failed:\n{said}"
        ) from error
