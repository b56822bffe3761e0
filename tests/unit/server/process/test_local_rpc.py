"""The direct line: calls as through gRPC, for their own user and with the token alone; what becomes of broken ones."""

from __future__ import annotations

import errno
import logging
import os
import socket
import stat
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.env import clock
from tailrace.env.files.scratch import private_files
from tailrace.errors import FencedError
from tailrace.server.process.local_rpc import LocalRpcServer
from tailrace.server.transport.client import StateClient
from tailrace.server.transport.folder import ServerFolder
from tailrace.server.transport.local_call import LocalRpcClient, Refused, WrongToken
from tailrace.server.transport.local_message import ANSWER, CALL, TOKEN, BrokenLine, receive, send
from tailrace.server.transport.server_config import UNIX_SCHEME, Access, ServerAddress

SECRET = "the token"


class Service:
    """Answers, refuses, fails, or takes its time."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, bytes]] = []
        self.told = threading.Event()
        self.go_on = threading.Event()

    def act(self, name: str, body: pa.Buffer) -> Sequence[bytes | pa.Buffer]:
        self.heard.append((name, body.to_pybytes()))
        if name == "echo":
            return [body, b"", body]
        if name == "fenced":
            raise FencedError("too old")
        if name == "broken":
            raise KeyError("nobody thought of it")
        if name == "slow":
            assert self.go_on.wait(20)
        if name == "told":
            self.told.set()
        return []


@pytest.fixture
def service() -> Service:
    return Service()


@pytest.fixture
def path(short_path: Path, service: Service) -> Iterator[str]:
    path = str(short_path / "d1")
    with private_files():
        line = LocalRpcServer(path, SECRET, service.act)
    yield path
    line.close()
    assert not os.path.exists(path), "the socket goes with the server"


@pytest.fixture
def caller(path: str) -> Iterator[LocalRpcClient]:
    made = LocalRpcClient(path, SECRET)
    yield made
    made.close()


def test_a_call_and_its_answer(caller: LocalRpcClient, service: Service) -> None:
    assert caller.call("echo", b"abc", 10) == [b"abc", b"", b"abc"]
    assert caller.call("nothing", b"", 10) == []
    assert service.heard == [("echo", b"abc"), ("nothing", b"")]


@settings(max_examples=20, deadline=None)
@given(sizes=st.lists(st.sampled_from([0, 1, 70_000, 1 << 21]), max_size=4), kind=st.sampled_from([CALL, ANSWER]))
def test_messages_arrive_as_they_were_sent(sizes: list[int], kind: int) -> None:
    """Also those that are larger than what a socket takes at once."""
    parts = [bytes([number + 1]) * size for number, size in enumerate(sizes)]
    here, there = socket.socketpair()
    with here, there, ThreadPoolExecutor(1) as other:
        got = other.submit(receive, there)
        send(here, kind, parts)
        message = got.result(20)
        assert message is not None
        assert (message[0], [bytes(part) for part in message[1]]) == (kind, parts)
        here.close()
        assert receive(there) is None, "it has ended, between two messages"


def test_a_message_that_breaks_off(path: str) -> None:
    here, there = socket.socketpair()
    with there:
        here.sendall(struct.pack("<BI", CALL, 2) + struct.pack("<QQ", 4, 4) + b"nam")
        here.close()
        with pytest.raises(BrokenLine):
            receive(there)


def test_errors_keep_their_kind(caller: LocalRpcClient) -> None:
    with pytest.raises(Refused) as refused:
        caller.call("fenced", b"", 10)
    assert isinstance(refused.value.refusal.error("server 1"), FencedError)
    assert str(refused.value.refusal.error("server 1")) == "too old [server 1]"
    with pytest.raises(Refused, match="nobody thought of it"):
        caller.call("broken", b"", 10)
    assert caller.call("echo", b"x", 10)[0] == b"x", "the connection is as good as before"


def test_calls_at_once(caller: LocalRpcClient, service: Service) -> None:
    """One that takes its time holds up nobody else."""
    with ThreadPoolExecutor(1) as other:
        slow = other.submit(caller.call, "slow", b"", 20)
        while not service.heard:
            pass
        assert caller.call("echo", b"x", 10)[0] == b"x"
        service.go_on.set()
        assert slow.result(20) == []


def test_an_answer_that_comes_too_late_is_no_answer_to_the_next_call(caller: LocalRpcClient, service: Service) -> None:
    with pytest.raises(TimeoutError):
        caller.call("slow", b"", 0.05)
    service.go_on.set()
    assert caller.call("echo", b"next", 10)[0] == b"next"


def test_a_one_way_call_is_waited_for_later(caller: LocalRpcClient, service: Service) -> None:
    names = ["broken", "fenced", "slow"]
    for name in names:
        caller.post(name, b"x", 10)
    assert caller.call("echo", b"y", 10)[0] == b"y", "it stands behind nothing that was told"
    service.go_on.set()
    caller.drain(10)
    heard = [name for name, _ in service.heard]
    assert [name for name in heard if name != "echo"] == names, "in its order, whatever failed"
    caller.drain(10)


def test_many_one_way_calls(caller: LocalRpcClient, service: Service) -> None:
    """More than a socket takes in answers that nobody reads."""
    count = 5_000
    for number in range(count):
        caller.post("echo", b"x" * 500 + str(number).encode(), 10)
    caller.drain(10)
    assert [int(body[500:]) for _, body in service.heard] == list(range(count))


def test_one_way_calls_that_never_arrive(caller: LocalRpcClient, service: Service) -> None:
    caller.post("slow", b"", 10)
    with pytest.raises(TimeoutError):
        caller.drain(0.05)
    caller.drain(10)  # of what is given up nothing is left to wait for
    caller.post("told", b"", 10)
    assert service.told.wait(10), "on a connection of its own"
    caller.drain(10)
    service.go_on.set()


def test_only_this_user_and_only_with_the_token(path: str, service: Service) -> None:
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    for wrong in ("", "another", SECRET + "x"):
        with pytest.raises(WrongToken):
            LocalRpcClient(path, wrong).call("echo", b"x", 10)
    assert not service.heard


@pytest.mark.parametrize(
    "said",
    [
        lambda line: send(line, CALL, [b"echo", b"x"]),
        lambda line: send(line, TOKEN, [SECRET.encode(), b"more"]),
        lambda line: line.sendall(struct.pack("<BI", TOKEN, 1) + struct.pack("<Q", 1 << 40)),
        lambda line: line.sendall(b"\xff" * 64),
        lambda line: (send(line, TOKEN, [SECRET.encode()]), send(line, CALL, [b"echo"])),
        lambda line: (send(line, TOKEN, [SECRET.encode()]), line.sendall(b"\xff" * 64)),
    ],
    ids=["no token", "a token and more", "much before the token", "garbage", "no body", "garbage after the token"],
)
def test_who_says_what_nobody_understands_is_left(
    path: str, service: Service, said: Callable[[socket.socket], object]
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
        line.settimeout(20)
        line.connect(path)
        said(line)
        try:
            while line.recv(1 << 16):
                pass
        except ConnectionResetError:
            pass
    assert not service.heard
    assert LocalRpcClient(path, SECRET).call("echo", b"x", 10)[0] == b"x", "others are served as before"


def test_a_server_that_is_gone(short_path: Path, service: Service) -> None:
    path = str(short_path / "d2")
    line = LocalRpcServer(path, SECRET, service.act)
    caller = LocalRpcClient(path, SECRET)
    caller.call("echo", b"", 10)
    caller.post("told", b"", 10)
    line.close()
    with pytest.raises(OSError):
        caller.call("echo", b"", 10)
    with pytest.raises(OSError):
        for _ in range(100):  # the first may still find room in the socket
            caller.post("told", b"", 10)
    with pytest.raises(OSError):
        LocalRpcClient(path, SECRET).call("echo", b"", 10)


def test_a_call_under_way_is_answered_before_the_line_closes(short_path: Path, service: Service) -> None:
    """As the call that ends a server."""
    path = str(short_path / "d3")
    line = LocalRpcServer(path, SECRET, service.act)
    caller, idle = LocalRpcClient(path, SECRET), LocalRpcClient(path, SECRET)
    idle.call("echo", b"", 10)
    with ThreadPoolExecutor(2) as other:
        slow = other.submit(caller.call, "slow", b"", 20)
        while ("slow", b"") not in service.heard:
            pass
        closing = other.submit(line.close, 20.0)
        with pytest.raises(OSError):
            for _ in range(100_000):  # until it has begun to close
                idle.call("echo", b"", 10)
        service.go_on.set()
        assert slow.result(20) == []
        closing.result(20)
    with pytest.raises(OSError):
        caller.call("echo", b"", 10)


def test_a_server_out_of_descriptors_goes_on_when_it_has_some(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    accept, failed = socket.socket.accept, threading.Event()

    def fails_once(listener: socket.socket) -> object:
        taken = accept(listener)
        if not failed.is_set():
            failed.set()
            taken[0].close()
            raise OSError(errno.EMFILE, "too many open files")
        return taken

    monkeypatch.setattr(socket.socket, "accept", fails_once)
    LocalRpcClient(path, SECRET).call("echo", b"", 10)  # the thread was already in the accept of old
    with pytest.raises(OSError):
        LocalRpcClient(path, SECRET).call("echo", b"", 10)
    assert failed.is_set()
    assert LocalRpcClient(path, SECRET).call("echo", b"x", 10)[0] == b"x"


def test_who_comes_when_many_wait_waits_too(short_path: Path) -> None:
    path = str(short_path / "d4")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(path)
        listener.listen(0)
        waiting = [socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) for _ in range(2)]
        for each in waiting:
            each.setblocking(False)
            each.connect_ex(path)
        with pytest.raises(TimeoutError):
            LocalRpcClient(path, SECRET).call("echo", b"", 0.1)
        for each in waiting:
            each.close()


def test_a_timeout_is_that_of_the_whole_call() -> None:
    """However often a little comes."""
    here, there = socket.socketpair()
    stop = threading.Event()

    def trickle() -> None:
        data = struct.pack("<BI", ANSWER, 1) + struct.pack("<Q", 1000) + b"x" * 1000
        for byte in data:
            if stop.wait(0.01):
                return
            there.sendall(bytes([byte]))

    slow = threading.Thread(target=trickle)
    slow.start()
    with here, there:
        with pytest.raises(TimeoutError):
            receive(here, until=clock.monotonic() + 0.1)
        stop.set()
        slow.join(10)


def test_what_somebody_wanted_who_has_left_is_not_begun(
    path: str, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a server that was stopped for a while, and finds calls that were given up long ago."""
    accept, go_on = socket.socket.accept, threading.Event()

    def late(listener: socket.socket) -> object:
        taken = accept(listener)
        assert go_on.wait(20)
        return taken

    monkeypatch.setattr(socket.socket, "accept", late)
    LocalRpcClient(path, SECRET).call("echo", b"", 10)  # the thread was already in the accept of old
    with pytest.raises(TimeoutError):
        LocalRpcClient(path, SECRET).call("told", b"", 0.05)
    go_on.set()
    assert LocalRpcClient(path, SECRET).call("echo", b"x", 10)[0] == b"x"
    assert not service.told.wait(0.2)


def test_an_error_that_no_text_can_hold_is_reported(
    path: str, monkeypatch: pytest.MonkeyPatch, service: Service
) -> None:
    monkeypatch.setattr(service, "heard", _Unwilling())
    monkeypatch.setattr(
        logging.getLogger("tailrace.server.transport.refusal"), "disabled", True
    )  # no report could hold it either
    with pytest.raises(Refused, match="no such file"):
        LocalRpcClient(path, SECRET).call("echo", b"", 10)


class _Unwilling:
    def append(self, _: object) -> None:
        raise OSError("no such file: \udcff")


def test_a_client_next_to_its_server_calls_directly(short_path: Path, service: Service) -> None:
    """No gRPC is there to be called: what answers is the direct line."""
    folder = ServerFolder(str(short_path))
    line = LocalRpcServer(folder.local_rpc("7"), SECRET, lambda name, body: [b"7"])
    try:
        address = ServerAddress("7", f"{UNIX_SCHEME}{folder.socket('7')}", "here", 1, 1, folder.log)
        client = StateClient(address, Access("run", SECRET))
        assert client.ping(10.0)
        client.close()
    finally:
        line.close()
