"""YCSB's workloads against a plain version of its rules, and traces of other tools as text."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from tailrace.errors import TailraceError
from tailrace.lab.gadget.events import ycsb
from tailrace.lab.gadget.events.ycsb import REQUESTS, Ycsb, core, tuned_to
from tailrace.lab.gadget.traces.text_traces import read_text_trace
from tailrace.lab.gadget.traces.trace import Operation, TraceError

ROWS = 50_000


def plain_fnv(value: int) -> int:
    found = 0xCBF29CE484222325
    for at in range(8):
        found = ((found ^ ((value >> (8 * at)) & 0xFF)) * 1099511628211) % (1 << 64)
    return abs(found - (1 << 64) if found >= 1 << 63 else found)


def plain_zipf(u: float, items: int, zeta: float) -> int:
    theta = 0.99
    if u * zeta < 1:
        return 0
    if u * zeta < 1 + 0.5**theta:
        return 1
    eta = (1 - (2 / items) ** (1 - theta)) / (1 - (1 + 0.5**theta) / zeta)
    return int(items * (eta * u - eta + 1) ** (1 / (1 - theta)))


def test_hash_and_zipf_are_ycsbs() -> None:
    values = np.array([0, 1, 2, 255, 256, 10**9, (1 << 62) + 5])
    assert ycsb._fnv(values).tolist() == [plain_fnv(value) for value in values.tolist()]
    u = np.random.default_rng(1).random(500)
    zeta = sum(rank**-0.99 for rank in range(1, 1_001))
    assert ycsb._zipf(u, 1_000, zeta).tolist() == [plain_zipf(one, 1_000, zeta) for one in u.tolist()]


@pytest.mark.parametrize("requests", REQUESTS)
@pytest.mark.parametrize(("name", "composition"), [("A", (0.5, 0.5)), ("D", (0.95, 0.05)), ("F", (2 / 3, 1 / 3))])
def test_core_workloads(name: str, composition: tuple[float, float], requests: str) -> None:
    trace = core(name, requests=requests, operations=ROWS).trace(3)
    shares = np.bincount(trace.operations, minlength=4) / len(trace)
    assert tuple(shares[:2]) == pytest.approx(composition, abs=0.01) and shares[2:].sum() == 0
    assert trace.keys.max() + 1 == trace.distinct_keys == len(np.unique(trace.keys))
    assert set(trace.value_sizes[trace.operations == Operation.PUT].tolist()) == {256}
    assert trace.key_bytes == 8 and trace.metadata["preloaded"] == "true"
    again = core(name, requests=requests, operations=ROWS).trace(3)
    assert again.keys.tolist() == trace.keys.tolist() and again.operations.tolist() == trace.operations.tolist()
    if name == "F":
        puts = np.flatnonzero(trace.operations == Operation.PUT)
        assert (trace.operations[puts - 1] == Operation.GET).all() and (trace.keys[puts - 1] == trace.keys[puts]).all()
    if name != "D":
        assert trace.distinct_keys <= 1_000


def records(requests: str, count: int = 100) -> Counter[int]:
    of = Ycsb(1.0, requests=requests, records=count, operations=ROWS)
    return Counter(ycsb._chosen(of, np.random.default_rng(5), np.full(ROWS, count - 1)).tolist())


def test_request_distributions() -> None:
    assert set(records("uniform").values()) <= set(range(380, 630))
    assert set(records("sequential").values()) == {500}
    hot = records("hotspot")
    assert sum(hot[record] for record in range(20)) / ROWS == pytest.approx(0.8, abs=0.01)
    latest = records("latest")
    zeta = sum(rank**-0.99 for rank in range(1, 100))
    assert latest[99] / ROWS == pytest.approx(1 / zeta, rel=0.05) and latest.most_common(1)[0][0] == 99
    falling = records("exponential")
    assert max(falling) == 99 and falling[99] > falling[60] > falling[10]
    zipf = records("zipfian")
    favourite = plain_fnv(0) % 101  # rank 0, scrambled over one more record than there are
    assert favourite > 99 or zipf.most_common(1)[0][0] == favourite
    assert set(zipf) <= set(range(100))


@pytest.mark.parametrize("requests", REQUESTS)
@pytest.mark.parametrize("count", [1, 2, 3])
def test_few_records(requests: str, count: int) -> None:
    trace = Ycsb(0.5, insert=0.5, requests=requests, records=count, operations=200).trace(1)
    assert len(trace) == 200


def test_tuned_to_a_trace() -> None:
    trace = core("F", operations=2_000, records=50).trace(1)
    tuned = tuned_to(trace, "latest")
    assert (tuned.records, tuned.operations, tuned.requests) == (trace.distinct_keys, len(trace), "latest")
    assert tuned.read == pytest.approx(2 / 3, abs=0.02) and tuned.value_bytes == 256


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: core("E"), "no YCSB workload is called 'E' .its scans"),
        (lambda: core("A", requests="pareto"), "no request distribution is called 'pareto'"),
        (lambda: core("A", records=0), "records is 0"),
        (lambda: Ycsb(0.5, update=0.6), "add up to 1"),
    ],
)
def test_wrong_workloads(make, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(TailraceError, match=message):
        make()


YCSB_TEXT = """***************** properties *****************
"workload"="site.ycsb.workloads.CoreWorkload"
**********************************************
READ usertable user6284781860667377211 [ <all fields>]
UPDATE usertable user8517097267634966620 [ field1=abc ]
SCAN usertable user8517097267634966620 5 [ <all fields>]
INSERT usertable user1 [ field0=x ]
READ usertable user8517097267634966620 [ <all fields>]
[OVERALL], RunTime(ms), 12
"""


def test_text_of_ycsb(tmp_path: Path) -> None:
    (tmp_path / "run.txt").write_text(YCSB_TEXT)
    trace = read_text_trace(tmp_path / "run.txt", "ycsb", 100)
    assert trace.operations.tolist() == [0, 1, 1, 0] and trace.keys.tolist() == [0, 1, 2, 1]
    assert trace.value_sizes.tolist() == [0, 100, 100, 0] and trace.metadata["scans_left_out"] == "1"
    assert read_text_trace(tmp_path / "run.txt", "ycsb", update="merge").operations.tolist() == [0, 2, 1, 0]


def test_text_of_gadget_and_flink(tmp_path: Path) -> None:
    (tmp_path / "gadget.log").write_text(
        "1 get 0000000001 null a b\n2 merge 0000000001 00000 a b\n3 seek x null a b\n4 delete 7 null a b\n"
    )
    trace = read_text_trace(tmp_path / "gadget.log", "gadget")
    assert trace.operations.tolist() == [0, 2, 3] and trace.value_sizes.tolist() == [0, 5, 0]
    assert trace.keys.tolist() == [0, 0, 1]
    (tmp_path / "flink.log").write_text("12:00\tput  k1 v\n\n12:01 next k1\n12:02 get k2\n")
    trace = read_text_trace(tmp_path / "flink.log", "flink")
    assert trace.operations.tolist() == [1, 0] and trace.value_sizes.tolist() == [256, 0] and trace.key_bytes == 2


@pytest.mark.parametrize(
    ("form", "text", "message"),
    [
        (
            "ycsb",
            "READ usertable user1\nREED usertable user1\n",
            "line 2 of .*: 'REED usertable user1' is no ycsb access",
        ),
        ("flink", "1 get\n", "line 1 of .* is no flink access"),
        ("flink", "1 get a\n2 fetch a\n", "line 2 of"),
        ("gadget", "\n", "holds no gadget accesses"),
        ("zoo", "", "no text format is called 'zoo'"),
    ],
)
def test_wrong_texts_are_named(tmp_path: Path, form: str, text: str, message: str) -> None:
    (tmp_path / "a.txt").write_text(text)
    with pytest.raises(TraceError, match=message):
        read_text_trace(tmp_path / "a.txt", form)
