"""The kinds of windows that an aggregation may have: one entry each in ``FORMS``."""

from __future__ import annotations

from tailrace.api.windows import AnyWindow, CustomWindow, Window
from tailrace.errors import AnalysisError
from tailrace.operators.aggregate.accumulators import Accumulator
from tailrace.operators.aggregate.spec import AggregateSpec, needs_rows
from tailrace.operators.aggregate.window_form import WindowForm, WindowStores
from tailrace.operators.count_window.planning import COUNT
from tailrace.operators.pattern import Pattern, StoreChoice
from tailrace.operators.planning.user_functions import packed
from tailrace.operators.planning.windows import plan_time_window
from tailrace.operators.session.planning import DYNAMIC_SESSION, SESSION
from tailrace.operators.windows.any_window import AnyWindowSpec
from tailrace.operators.windows.custom_window import CustomWindowSpec
from tailrace.operators.windows.time_window import TimeWindowSpec
from tailrace.types import Field

_BY_WINDOW = "every row is appended by window, and all keys' rows are read when it ends"
_BY_LIST = "every row is appended by key and window and read when the window ends"

_TUMBLING = WindowStores(
    incremental=StoreChoice(
        Pattern.RMW,
        "the aggregates are incremental and windows do not overlap: one record a key and window, changed in place",
    ),
    holistic=StoreChoice(
        Pattern.AAR,
        "an aggregate needs every row of its group, and all keys' windows end together: rows are appended by window, "
        "read in pieces when it ends, and dropped as a whole",
    ),
    others={Pattern.AAR: _BY_WINDOW, Pattern.AUR: _BY_LIST},
)
_SLIDING = WindowStores(
    incremental=StoreChoice(
        Pattern.RMW,
        "the aggregates are incremental and windows overlap: one record a key and pane, one write a row whatever the "
        "overlap",
    ),
    holistic=StoreChoice(
        Pattern.AAR,
        "an aggregate needs every row of its group, and all keys' windows end together: rows are appended by pane, "
        "once whatever the overlap, read in pieces when a window ends, and dropped with the last one",
    ),
    others={
        Pattern.AAR: "every row is appended by pane, and all keys' rows are read when a window ends",
        Pattern.AUR: "every row is appended by key and pane, once whatever the overlap, read for each window that "
        "ends, and dropped with the last one",
    },
)
_CUSTOM = WindowStores(
    incremental=StoreChoice(
        Pattern.RMW,
        "the aggregates are incremental and each row is in one window: one record a key and window, changed in place",
    ),
    holistic=StoreChoice(
        Pattern.AUR,
        "an aggregate needs every row of its group, and windows of your own may start and end in any order: rows are "
        "appended by key and window, and those that will be read next are read ahead, many together",
    ),
    others={Pattern.AAR: _BY_WINDOW, Pattern.AUR: _BY_LIST},
)
_NO_WINDOW = WindowStores(
    incremental=StoreChoice(
        Pattern.RMW, "the aggregates are incremental and there is no window: one record a key, changed in place"
    ),
    holistic=StoreChoice(
        Pattern.AUR,
        "an aggregate needs every row of its group, and there is no window: rows are appended by key, and all rows of "
        "the keys that changed are read in every epoch; nothing is ever dropped, so the state grows with every row",
    ),
    others={
        Pattern.AUR: "every row is appended by key, and all rows of the keys that changed are read in every epoch; "
        "nothing is ever dropped, so the state grows with every row",
    },
    refused={Pattern.AAR: "AAR drops rows when a window ends, and without a window none ever does"},
)


def _plan_custom(window: CustomWindow, expires: bool) -> CustomWindowSpec:
    return CustomWindowSpec(packed(window.assign), None if window.trigger is None else packed(window.trigger))


FORMS: tuple[WindowForm, ...] = (
    WindowForm(
        window=Window,
        spec=TimeWindowSpec,
        plan=lambda window, expires: plan_time_window(window),
        stores=lambda spec: _TUMBLING if spec.tumbling else _SLIDING,
    ),
    WindowForm(window=CustomWindow, spec=CustomWindowSpec, plan=_plan_custom, stores=lambda spec: _CUSTOM),
    SESSION,
    DYNAMIC_SESSION,
    COUNT,
)
_BY_API = {form.window: form for form in FORMS}
_BY_SPEC = {form.spec: form for form in FORMS}


def plan_window(window: AnyWindow | None, *, expires: bool) -> AnyWindowSpec | None:
    """``expires``: whether keys do, by a time-to-live."""
    return None if window is None else _BY_API[type(window)].plan(window, expires)


def first_accumulators(window: AnyWindow | None, time: Field | None, *, expires: bool) -> list[Accumulator]:
    """What windows of this kind keep before all else."""
    return [] if window is None else _BY_API[type(window)].accumulators(window, time, expires)


def form_of(window: AnyWindowSpec) -> WindowForm:
    return _BY_SPEC[type(window)]


def choose_store(operator: AggregateSpec) -> StoreChoice:
    """The store that semantics ask for, or the one that the user has chosen, and why."""
    window = operator.window
    stores = _NO_WINDOW if window is None else form_of(window).stores(window)
    usual = stores.incremental if operator.usual_pattern is Pattern.RMW else stores.holistic
    if operator.store is None:
        return usual
    wanted = operator.pattern
    if wanted is usual.pattern:
        return StoreChoice(wanted, usual.reason, by_user=True)
    if wanted in stores.others:
        return StoreChoice(wanted, stores.others[wanted], by_user=True)
    if wanted is Pattern.RMW and operator.holistic:
        needing = next(out.name for out in operator.outputs if needs_rows(out))
        problem = f"a record of it holds a few merged values, and {needing} needs every row of its group"
    else:
        problem = stores.refused[wanted]
    raise AnalysisError(
        f"{operator.name}: store {wanted} cannot keep this: {problem}. Without .store(...) it is {usual.pattern}"
    )
