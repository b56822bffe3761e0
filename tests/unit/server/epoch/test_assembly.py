"""What a user sets for the stores reaches them, through the line of JSON that a server reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support.operators.window_scenario import CUSTOM, HOLISTIC, INCREMENTAL, spec_of
from tailrace.ids import Micros
from tailrace.operators.accesses.recorder import RecordedOperator
from tailrace.operators.aggregate.spec import AggregateSpec
from tailrace.operators.aggregate.window_aggregate import WindowAggregate
from tailrace.operators.windows.count_window import CountWindowSpec
from tailrace.operators.windows.session_window import SessionWindowSpec
from tailrace.operators.windows.time_window import TimeWindowSpec
from tailrace.server.epoch.assembly import build_engine
from tailrace.server.transport.server_config import ProcessConfig, ServerConfig
from tailrace.state.tuning import DEFAULT_TUNING, Tuning


def built(tmp_path: Path, spec: AggregateSpec, **given: Any) -> Any:
    limits = {"memory_bytes": 1 << 22, "function_timeout_s": 60.0}
    config = ServerConfig("run", "token", (spec.to_json(),), str(tmp_path / "store"), **limits, **given)
    process = ProcessConfig("server", str(tmp_path), "host", 1, "", config)
    engine = build_engine(ProcessConfig.from_json(process.to_json()))
    return engine._runners[spec.name].operator


@pytest.mark.parametrize(
    "spec",
    [
        spec_of(HOLISTIC, window=CUSTOM),
        spec_of(HOLISTIC, window=CountWindowSpec(3), watermarked=False),
        spec_of(HOLISTIC, window=SessionWindowSpec(10)),
        spec_of(HOLISTIC, emit_changed=True, watermarked=False),
    ],
    ids=["custom", "count", "session", "global"],
)
def test_lists(tmp_path: Path, spec: AggregateSpec) -> None:
    (tmp_path / "store").mkdir()
    usual = built(tmp_path, spec)._store._instances[0].settings
    limits = (DEFAULT_TUNING.read_batch_ratio, DEFAULT_TUNING.max_space_amplification)
    assert (usual.read_batch_ratio, usual.max_space_amplification) == limits
    chosen = built(tmp_path, spec, tuning=Tuning(0.25, 3.0))._store._instances[0].settings
    assert (chosen.read_batch_ratio, chosen.max_space_amplification) == (0.25, 3.0)


@pytest.mark.parametrize(
    "given", [{"window": CUSTOM}, {"window": CountWindowSpec(3), "watermarked": False}], ids=["custom", "count"]
)
def test_records(tmp_path: Path, given: dict[str, Any]) -> None:
    (tmp_path / "store").mkdir()
    operator = built(tmp_path, spec_of(INCREMENTAL, **given), tuning=Tuning(max_space_amplification=3.0))
    assert operator._store.spilled._amplification_max == 3.0


def test_accesses_are_recorded_where_asked_for_and_else_the_operator_is_used_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    spec = spec_of(INCREMENTAL, window=TimeWindowSpec(Micros(10), Micros(10), Micros(0)))
    assert type(built(tmp_path, spec)) is WindowAggregate and built(tmp_path, spec).on_close is None
    recorded = built(tmp_path, spec, record_folder=str(tmp_path / "accesses"))
    assert type(recorded) is RecordedOperator and not (tmp_path / "accesses").exists()
    assert recorded.rows == 0 and recorded.shards == frozenset()  # what is not its own is the operator's
