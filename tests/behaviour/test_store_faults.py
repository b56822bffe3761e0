"""A cloud store that is reached badly: through the lab's proxy, which breaks, delays and refuses requests on demand.

Also what that proxy and the lab's S3 server promise themselves.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from support.processes import wait_until
from tailrace.env.randomness import short_id
from tailrace.env.stores.location import open_store
from tailrace.env.stores.object_store import ObjectStore, StoredObject
from tailrace.errors import CheckpointError
from tailrace.lab.servers.s3 import S3Server
from tailrace.lab.servers.shaping_proxy import ShapingProxy


@contextmanager
def trouble(proxy: ShapingProxy, **settings: Any) -> Iterator[None]:
    proxy.change(**settings)
    try:
        yield
    finally:
        proxy.change(errors=0, refuse=False, vanish=False, hang=False, hang_next=0, latency_ms=0, mb_per_s=0)


def through(s3: S3Server, proxy: ShapingProxy, **times: str) -> ObjectStore:
    return open_store(s3.uri(short_id()), s3.options(proxy.endpoint) | {"stall_s": "0.4"} | times)


def test_a_store_that_fails_often_does_all_the_same(s3, proxy) -> None:
    store = through(s3, proxy, retry_s="60")
    seed = int(os.environ.get("TAILRACE_SEED", "20"))
    print("seed", seed)
    with trouble(proxy, errors=0.2, seed=seed):
        for each in range(25):
            name = f"n/{each}"
            assert store.put_if_absent(name, name.encode()), "its own first try is not somebody else"
            assert not store.put_if_absent(name, b"other")
            assert store.get(name) == name.encode()
        large = [bytes([each]) * (1 << 20) for each in range(18)]
        assert store.put("large", iter(large)) == 18 << 20
        assert store.get("large") == b"".join(large)
        assert store.get_range("large", (7 << 20) - 2, 4) == b"\x06\x06\x07\x07"
        assert len(store.list("n/")) == 25
        store.delete([each.name for each in store.list("n/")])
        assert [each.name for each in store.list("")] == ["large"]
    seen = proxy.counts()
    assert min(seen["unavailable"], seen["broken_before"], seen["broken_after"]) > 0


def test_a_put_if_absent_whose_answer_was_lost_has_won(s3, proxy) -> None:
    store = through(s3, proxy)
    with trouble(proxy, lose_next=1):
        assert store.put_if_absent("lost", b"ours")
    with trouble(proxy, lose_next=3):
        assert store.put_if_absent("lost-thrice", b"ours")
    with trouble(proxy, hang_next=1):
        assert store.put_if_absent("hung", b"ours")
    for name in ("lost", "lost-thrice", "hung"):
        with trouble(proxy, lose_next=1):
            assert not store.put_if_absent(name, b"theirs")
        assert store.get(name) == b"ours"


def test_hung_requests_are_sent_again(s3, proxy) -> None:
    store = through(s3, proxy)
    store.put("a", [b"one"])
    for do in (
        lambda: store.put("a", [b"two"]),
        lambda: store.get("a"),
        lambda: store.get_range("a", 1, 1),
        lambda: store.list(""),
        lambda: store.delete(["b"]),
    ):
        with trouble(proxy, hang_next=1):
            do()
    assert store.get("a") == b"two"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"refuse": True},
            r"Cannot \w+ {place}: the store refuses the credentials \(InvalidAccess.*AWS_ACCESS_KEY",
        ),
        ({"vanish": True}, r"Cannot \w+ {place}: there is no such bucket.*bring it back"),
        (
            {"hang": True},
            r"Cannot \w+ {place}: \d+ requests in \d s had no success.*Check that the store is up",
        ),
        ({"errors": 1.0}, r"Cannot \w+ {place}: \d+ requests in \d s had no success.*Check that the store is up"),
    ],
    ids=["credentials", "bucket", "silent", "failing"],
)
def test_a_store_that_stays_bad_is_reported_with_place_and_advice(s3, proxy, settings, message) -> None:
    store = through(s3, proxy, retry_s="0.3", stall_s="0.2")
    store.put("x", [b"x"])
    with trouble(proxy, **settings):
        for do in (
            lambda: store.put("x", [b""]),
            lambda: store.put_if_absent("x", b""),
            lambda: store.get("x"),
            lambda: store.delete(["x"]),
        ):
            with pytest.raises(CheckpointError, match=message.format(place=re.escape(f"{store.uri}/x"))):
                do()
        with pytest.raises(CheckpointError, match=r"Cannot list .*last durable epoch"):
            store.list("")
    assert all(each.name == "x" for each in store.list("")), "and it works again"


def test_many_objects_are_deleted_in_few_requests(s3, proxy) -> None:
    store = through(s3, proxy)
    for each in range(30):
        store.put(f"d/{each}", [b"x"])
    before = proxy.counts()["requests"]
    store.delete([f"d/{each}" for each in range(30)])
    assert proxy.counts()["requests"] == before + 1
    assert store.list("") == []


def test_large_objects_go_out_in_parts_and_slow_ones_are_not_cut(s3, proxy) -> None:
    store = through(s3, proxy)
    before = proxy.counts()["PUT"]
    with trouble(proxy, mb_per_s=8, latency_ms=5):
        store.put("slow", [bytes(1 << 20)] * 9)
    assert proxy.counts()["PUT"] == before + 2
    assert store.list("") == [StoredObject("slow", 9 << 20)]


def test_the_proxy_keeps_to_its_line(s3, proxy) -> None:
    """Two uploads at once share the bandwidth; no more than that comes through."""
    store = through(s3, proxy)
    size, mb_per_s = 1_000_000, 4
    started = threading.Barrier(2)

    def put(name: str) -> None:
        started.wait()
        store.put(name, [bytes(size)])

    threads = [threading.Thread(target=put, args=(name,)) for name in "ab"]
    with trouble(proxy, mb_per_s=mb_per_s):
        began = os.times().elapsed
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert os.times().elapsed - began > 2 * size / (mb_per_s * 1e6) - 0.05


def test_a_server_of_the_lab_goes_with_whoever_wanted_it(tmp_path: Path) -> None:
    """Also where that process is killed and can clean up nothing."""
    program = (
        "import sys, time\n"
        "from tailrace.lab.servers.s3 import S3Server\n"
        "from tailrace.lab.servers.shaping_proxy import ShapingProxy\n"
        "with S3Server() as s3, ShapingProxy(s3.port) as proxy:\n"
        "    print(s3.folder, s3.pid, proxy.pid, flush=True)\n"
        "    time.sleep(600)\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env={**os.environ, "TMPDIR": str(tmp_path)}
    )
    try:
        assert child.stdout is not None
        folder, *pids = child.stdout.readline().split()
        assert Path(folder).parent == tmp_path and Path(folder).is_dir()
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
    wait_until("the end of server and proxy", lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), 20)
    wait_until("an empty folder", lambda: not any(tmp_path.iterdir()), 20)
