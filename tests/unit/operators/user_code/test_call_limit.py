"""Calls of a user's function with a limit: returns and errors come through, and one that never ends is given up."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from tailrace.errors import UserFunctionError
from tailrace.operators.user_code.call_limit import NotReturned, set_limit, within_limit
from tailrace.operators.user_code.code import called


@pytest.fixture(autouse=True)
def no_limit_afterwards() -> Iterator[None]:
    yield
    set_limit(None)


@pytest.mark.parametrize("limit", [None, 60.0])
def test_what_a_function_returns_and_raises_comes_through(limit: float | None) -> None:
    set_limit(limit)
    assert within_limit(lambda a, b: a + b, [1, 2]) == 3
    assert within_limit(lambda: None, []) is None
    with pytest.raises(ZeroDivisionError):
        within_limit(lambda: 1 // 0, [])
    with pytest.raises(UserFunctionError, match="operator x raised SystemExit: 3"):
        called(lambda: sys.exit(3), "operator x")


def test_a_call_that_does_not_return_is_given_up() -> None:
    never = threading.Event()
    set_limit(0.05)
    try:
        with pytest.raises(NotReturned, match=r"within 0.05 s \(option functionTimeout\)"):
            within_limit(never.wait, [])
        with pytest.raises(
            UserFunctionError, match=r"operator x did not return within .* Nothing of the epoch was kept"
        ):
            called(never.wait, "operator x")
    finally:
        never.set()


def test_a_call_that_holds_the_interpreter_ends_the_process() -> None:
    script = (
        "import ctypes\n"
        "from tailrace.operators.user_code import call_limit\n"
        "call_limit.GRACE_S = 0.2\n"
        "call_limit.set_limit(0.1)\n"
        "call_limit.within_limit(ctypes.PyDLL(None).sleep, [600])\n"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 1 and "Timeout" in ended.stderr and "within_limit" in ended.stderr
