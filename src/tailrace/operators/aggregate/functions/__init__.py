"""The aggregates: a descriptor for each, and the function that users call. See ``descriptor``.

What a module lists in ``__all__`` is public: ``tailrace`` exports it, typed, without a second list.
"""

from inspect import Parameter as _Parameter
from inspect import signature as _signature
from typing import TYPE_CHECKING

from tailrace.api.aggregates import BY_NAME as _BY_NAME
from tailrace.operators.aggregate.functions.chosen_by import *
from tailrace.operators.aggregate.functions.collections import *
from tailrace.operators.aggregate.functions.counts_and_sums import *
from tailrace.operators.aggregate.functions.distinct import *
from tailrace.operators.aggregate.functions.extremes import *
from tailrace.operators.aggregate.functions.hyperloglog import *
from tailrace.operators.aggregate.functions.moments import *
from tailrace.operators.aggregate.functions.quantile_sketch import *
from tailrace.operators.aggregate.functions.quantiles import *
from tailrace.operators.aggregate.functions.user import *

if not TYPE_CHECKING:  # type checkers follow the imports above, and would take this list for an empty one
    __all__ = [name for name, one in sorted(globals().items()) if callable(one) and not name.startswith("_")]
    for _name in __all__:
        _first, *_others = _signature(globals()[_name]).parameters.values()
        if all(_one.default is not _Parameter.empty or _one.kind is _Parameter.VAR_POSITIONAL for _one in _others):
            _BY_NAME[_name] = globals()[_name]
