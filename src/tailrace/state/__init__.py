"""Keyed state: the stores of it, and for users the way into what a query has kept (``tailrace.state.open``).

The stores themselves know nothing of checkpoints: what users ask for here is imported when they do.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tailrace.state_table.checkpoint import SavedState as SavedState
    from tailrace.state_table.checkpoint import open_state as open  # noqa: F401 - the users' word
    from tailrace.state_table.operator_state import OperatorState as OperatorState
else:
    _PUBLIC = {"SavedState": "SavedState", "open": "open_state"}

    def __getattr__(name):
        if name in _PUBLIC:
            from tailrace.state_table import checkpoint  # lazy: see above

            return getattr(checkpoint, _PUBLIC[name])
        if name == "OperatorState":
            from tailrace.state_table.operator_state import OperatorState  # lazy: see above

            return OperatorState
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
