"""A real server, and a real forkserver, under thousands of malformed calls: they live, accept none, and tell no secret.

What is malformed is drawn at random, by a seed that is printed. Calls that are right in form and of the right run are
not among those that come with the token: who has it may say what it likes.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import socket
import struct
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest
from pyarrow import flight

from support.hostile import as_json, changed_bytes, changed_json, depth_bomb, odd_json
from support.servers.forkservers import CONTEXT, Forks, fork_folder, parent, wait_for_the_end
from support.servers.state_servers import SHARDS, SPEC, StandIn, config, eventually, frame, rows, running, stage, start
from tailrace.commit.manifest import EMPTY
from tailrace.env.randomness import short_id
from tailrace.log.typed_json import MalformedError
from tailrace.operators.ingest.frame import FRAME_SCHEMA
from tailrace.server.process.fork_client import LENGTH
from tailrace.server.transport.client import StateClient
from tailrace.server.transport.epoch_messages import OutputTicket, Request
from tailrace.server.transport.file_stage import StagedFile, StagedPart
from tailrace.server.transport.folder import ServerFolder
from tailrace.server.transport.hint_message import HintMessage
from tailrace.server.transport.local_message import ANSWER, CALL, REFUSAL, TOKEN, BrokenLine, receive, send
from tailrace.server.transport.server_config import ProcessConfig, ServerAddress, ServerConfig
from tailrace.server.transport.stage_messages import StageKey, StageReceipt
from tailrace.server.transport.wire import TOKEN_HEADER, decode, encode
from tailrace.spark.tasks.ingest import IngestTask
from tailrace.spark.tasks.row_objects import RowsPlace

LONG = os.environ.get("TAILRACE_TEST_LONG") == "1"
CALLS = 50_000 if LONG else 3000
SECRET = "secret-token"
"""As in ``state_servers.config``."""
PASSWORD = "hunter2-of-the-store"

ACTIONS = ("open", "commit", "upload", "run_epoch", "exchange", "prepare", "forget", "compact", "give_up")


class Hostile:
    """Draws malformed calls for a server of this run."""

    def __init__(self, run: str, seed: int) -> None:
        self.rng = random.Random(seed)
        key = StageKey(run, SPEC.name, 0, 0, 7, 0)
        receipt = StageReceipt(1, 1, 8, 5)
        request = Request(run, 0, 0, SPEC.name, (), manifest=EMPTY, shards=(0,))
        self._right: dict[str, bytes] = {
            **{name: request.to_json() for name in ACTIONS},
            "shutdown": request.to_json(),
            "stage_file": StagedFile(key, "handed-0-x", (8, 8, 8, 8), receipt).to_json(),
            "stage_part": StagedPart(key, "handed-0-x", (8, 8, 8, 8), 0).to_json(),
            "emit_file": encode(OutputTicket(run, SPEC.name, 0, 0, 0, 1)),
        }
        batch = pa.RecordBatch.from_pydict({"k": pa.array([1, 2, 3])})
        self._hint = HintMessage("another run", SPEC.name, 0, 0, "source").to_bytes(batch)
        self._readers: dict[str, Callable[[bytes], Any]] = {
            "stage_file": StagedFile.from_json,
            "stage_part": StagedPart.from_json,
            "emit_file": lambda data: OutputTicket(**json.loads(data)),
        }

    def call(self) -> tuple[str, bytes]:
        """A malformed call: of no action, with a body that is none, or of another run."""
        name = self.rng.choice([*self._right, "hint", "no such action", "\N{SNOWMAN}" * 500, ""])
        if name == "hint":
            return name, changed_bytes(self.rng, self._hint)
        right = self._right.get(name, b"{}")
        while True:
            kind = self.rng.randrange(4)
            if kind == 0:
                body = changed_bytes(self.rng, right)
            elif kind == 1:
                body = as_json(odd_json(self.rng))
            else:
                body = as_json(changed_json(self.rng, json.loads(right)))
            if name not in self._right or self._is_malformed(name, body):
                return name, body
            changed = json.loads(body)
            if name != "shutdown" and isinstance(changed, dict):
                # Right in form by chance: then it is of a run that is not this server's.
                changed.get("key", changed)["run"] = "another run"
                return name, as_json(changed)

    def stage_key(self, right: bytes) -> bytes:
        """A malformed one, or one of another run."""
        changed = changed_bytes(self.rng, right)
        try:
            return encode(replace(decode(StageKey, changed), run="another run"))
        except MalformedError:
            return changed

    def _is_malformed(self, name: str, body: bytes) -> bool:
        try:
            self._readers.get(name, Request.from_json)(body)
        except (MalformedError, TypeError, ValueError):
            return True
        return False


class Server:
    """A real one, and what is known of it before anybody is hostile."""

    def __init__(self, common: ServerConfig, address: ServerAddress) -> None:
        self.common, self.address = common, address
        self.client = StateClient(address, common.access)
        self.client.open(range(SHARDS))
        self.epoch = -1
        self.sums: dict[int, tuple[int, int]] = {}
        self.works()
        self.process = psutil.Process(address.pid)
        self.threads, self.files = self.process.num_threads(), self.process.num_fds()

    def works(self) -> None:
        """A whole epoch gives what it must after all epochs so far, and no row more."""
        self.epoch += 1
        staged = stage(self.client, self.common.run, self.epoch, 0, 100 + self.epoch, 0, frame([1, 2, 3]))
        done = self.client.run_epoch(self.epoch, 0, [staged], 0, 0, commit=True)
        self.sums = {key: (self.epoch + 1, key * (self.epoch + 1)) for key in (1, 2, 3)}
        assert rows(done.batches) == self.sums and done.status.rows == 3 and done.status.staged_bytes == 0
        if self.epoch:
            self.client.forget(self.epoch - 1)

    def is_unharmed(self) -> None:
        assert running(self.address.pid)
        self.works()
        assert eventually(lambda: self.process.num_threads() <= self.threads + 24), "threads that nobody ended"
        assert eventually(lambda: self.process.num_fds() <= self.files + 24), "files that nobody closed"
        log = Path(self.address.log_path).read_text(errors="replace")
        assert "Fatal Python error" not in log
        for secret in (SECRET, PASSWORD):
            assert secret not in log
            for file in ("cmdline", "environ"):
                assert secret.encode() not in Path(f"/proc/{self.address.pid}/{file}").read_bytes()

    @property
    def line(self) -> str:
        return ServerFolder(os.path.dirname(self.address.log_path)).local_rpc(self.address.server)


@pytest.fixture(scope="module")
def executor() -> Iterator[StandIn]:
    stand_in = StandIn()
    yield stand_in
    stand_in.end()


@pytest.fixture(scope="module", params=["unix", "tcp"])
def server(
    request: pytest.FixtureRequest, executor: StandIn, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    short = tempfile.mkdtemp(prefix="tr-")
    common = config(
        tmp_path_factory.mktemp("store"), transport=request.param, store_options={"AWS_SECRET_ACCESS_KEY": PASSWORD}
    )
    made = Server(common, start(common, executor, Path(short), host="127.0.0.1"))
    yield made
    made.client.shutdown()
    made.client.close()
    assert eventually(lambda: not running(made.address.pid))
    shutil.rmtree(short, ignore_errors=True)


def _seed() -> int:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    return seed


def _tells_nothing(text: str) -> None:
    assert SECRET not in text and PASSWORD not in text and len(text) < 20_000


# Local RPC -----------------------------------------------------------------------------------------------------------


def _exchange(path: str, data: bytes) -> list[tuple[int, list[bytearray]]]:
    """Send bytes, and hear what comes until the server ends the line or goes on waiting."""
    heard = []
    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout(20)
        line.connect(path)
        with suppress(BrokenPipeError, ConnectionResetError):
            line.sendall(data)
            line.shutdown(socket.SHUT_WR)
            with suppress(BrokenLine):
                while (message := receive(line)) is not None:
                    heard.append(message)
    return heard


def _message(kind: int, *parts: bytes) -> bytes:
    sizes = struct.pack(f"<{len(parts)}Q", *map(len, parts))
    return struct.pack("<BI", kind, len(parts)) + sizes + b"".join(parts)


def test_without_the_token_the_local_line_gives_nothing(server: Server) -> None:
    if server.common.transport == "tcp":
        assert not os.path.exists(server.line)
        return
    hostile = Hostile(server.common.run, _seed())
    right = _message(CALL, b"ping", b"{}") + _message(CALL, b"shutdown", Request(server.common.run).to_json())
    tokens = [b"", SECRET[:-1].encode(), SECRET.encode() + b"\0", b"\xff" * 100, b"x" * 4000]
    starts = [b"", *(_message(TOKEN, token) for token in tokens), _message(TOKEN), _message(TOKEN, b"a", b"b")]
    starts += [_message(ANSWER, SECRET.encode()), _message(CALL, SECRET.encode(), b"")]
    for number in range(CALLS // 2):
        start_ = starts[number % len(starts)]
        sent = start_ + (right if number % 3 else (changed_bytes(hostile.rng, start_ + right)))
        if sent.startswith(_message(TOKEN, SECRET.encode())):
            continue
        heard = _exchange(server.line, sent)
        assert all(kind == TOKEN and not parts for kind, parts in heard), "nothing but that the token is wrong"
    server.is_unharmed()


def test_malformed_messages_on_the_local_line(server: Server) -> None:
    if server.common.transport == "tcp":
        return
    hostile = Hostile(server.common.run, _seed())
    token = _message(TOKEN, SECRET.encode())
    right = _message(CALL, b"ping", b"{}")
    announced = [struct.pack("<BI", CALL, 2**32 - 1), struct.pack("<BIQ", CALL, 1, 2**64 - 1)]
    announced += [struct.pack("<BI2Q", CALL, 2, 4, 2**31 - 4) + b"ping", struct.pack("<BI2Q", CALL, 2, 2**63, 2**63)]
    announced += [_message(CALL, b"\xff\xfe", b"{}"), _message(CALL), _message(9, b"", b""), depth_bomb()]
    for number in range(CALLS // 2):
        wrong = announced[number % 40] if number % 40 < len(announced) else changed_bytes(hostile.rng, right)
        for kind, parts in _exchange(server.line, token + wrong):
            assert kind in (ANSWER, REFUSAL)
            _tells_nothing(b"".join(map(bytes, parts)).decode(errors="replace"))
    server.is_unharmed()


# Actions -------------------------------------------------------------------------------------------------------------


def _headers(token: str) -> flight.FlightCallOptions:
    return flight.FlightCallOptions(timeout=60, headers=[(TOKEN_HEADER.encode(), token.encode())])


def _outcome(call: Callable[[], Any]) -> Exception | Any:
    try:
        return call()
    except (flight.FlightError, pa.ArrowException, OSError) as error:
        return error


def test_malformed_calls_are_refused(server: Server) -> None:
    """Of every action, by gRPC and, where there is one, by the local line; each is answered, with an error."""
    hostile = Hostile(server.common.run, _seed())
    line = None
    if os.path.exists(server.line):
        line = socket.socket(socket.AF_UNIX)
        line.settimeout(60)
        line.connect(server.line)
        send(line, TOKEN, [SECRET.encode()])
    with flight.FlightClient(server.address.uri) as client:
        for number in range(CALLS):
            name, body = hostile.call()
            if line is not None and number % 4:
                send(line, CALL, [name.encode(), body])
                heard = receive(line)
                assert heard is not None
                refused, said = heard[0] == REFUSAL, b" ".join(map(bytes, heard[1])).decode()
            else:
                action = flight.Action(name, body)
                found = _outcome(lambda action=action: list(client.do_action(action, _headers(SECRET))))
                refused, said = isinstance(found, Exception), str(found)
            assert refused, f"{name[:40]!r} was accepted: {body[:500]!r}"
            _tells_nothing(said)
    if line is not None:
        line.close()
    server.is_unharmed()


def test_malformed_streams_and_tickets_are_refused(server: Server) -> None:
    hostile = Hostile(server.common.run, _seed())
    key = encode(StageKey(server.common.run, SPEC.name, server.epoch + 1, 0, 7, 0))
    right = [cell.tobytes() for cell in frame([1, 2]).cells]
    with flight.FlightClient(server.address.uri) as client:
        for number in range(CALLS // 8):
            cells = list(right)
            which = number % 4
            cells[which] = changed_bytes(hostile.rng, cells[which])
            command = key if number % 3 else hostile.stage_key(key)
            batch = pa.RecordBatch.from_arrays([pa.array([c], pa.large_binary()) for c in cells], schema=FRAME_SCHEMA)
            if number % 5 == 0:
                batch = pa.RecordBatch.from_pydict({"x": pa.array([1, 2, 3])})

            def put(command: bytes = command, batch: pa.RecordBatch = batch, number: int = number) -> None:
                descriptor = flight.FlightDescriptor.for_command(command)
                writer, reader = client.do_put(descriptor, batch.schema, _headers(SECRET))
                writer.write_batch(batch)
                if number % 2:
                    writer.write_metadata(changed_bytes(hostile.rng, encode(StageReceipt(1, 2, 3, 4))))
                writer.done_writing()
                reader.read()
                writer.close()

            found = _outcome(put)
            assert isinstance(found, Exception), "no such stream has a right receipt"
            _tells_nothing(str(found))
            ticket = changed_bytes(hostile.rng, encode(OutputTicket("another run", SPEC.name, 0, 0, 0, 1)))
            found = _outcome(lambda ticket=ticket: client.do_get(flight.Ticket(ticket), _headers(SECRET)).read_all())
            assert isinstance(found, Exception)
            _tells_nothing(str(found))
    server.is_unharmed()


def test_without_the_token_grpc_gives_nothing(server: Server) -> None:
    request = Request(server.common.run)
    calls: list[Callable[[flight.FlightClient, flight.FlightCallOptions], Any]] = [
        lambda c, o: list(c.do_action(flight.Action("ping", b""), o)),
        lambda c, o: list(c.do_action(flight.Action("shutdown", request.to_json()), o)),
        lambda c, o: list(c.list_actions(o)),
        lambda c, o: list(c.list_flights(b"", o)),
        lambda c, o: c.get_flight_info(flight.FlightDescriptor.for_command(b""), o),
        lambda c, o: c.get_schema(flight.FlightDescriptor.for_command(b""), o),
        lambda c, o: c.do_get(flight.Ticket(encode(OutputTicket(server.common.run, SPEC.name, 0, 0, 0, 1))), o)
        .read_all(),
        lambda c, o: c.do_exchange(flight.FlightDescriptor.for_command(b""), o)[1].read_all(),
        lambda c, o: c.do_put(flight.FlightDescriptor.for_command(b""), FRAME_SCHEMA, o)[0].close(),
    ]  # fmt: skip
    with flight.FlightClient(server.address.uri) as client:
        twice = [(TOKEN_HEADER.encode(), SECRET.encode()), (TOKEN_HEADER.encode(), b"x")]
        strangers = [flight.FlightCallOptions(timeout=60), flight.FlightCallOptions(timeout=60, headers=twice)]
        strangers += [_headers(token) for token in ("", SECRET + "x", SECRET[:-1])]
        for call in calls:
            for stranger in strangers:
                found = _outcome(partial(call, client, stranger))
                assert isinstance(found, Exception) and "wrong or missing token" in str(found), found
                _tells_nothing(str(found))
    assert server.client.ping(30)
    server.is_unharmed()


def test_noise_on_the_grpc_socket(server: Server) -> None:
    hostile = Hostile(server.common.run, _seed())
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes.fromhex("000000040000000000")
    for number in range(CALLS // 8):
        with socket.socket(socket.AF_UNIX if server.common.transport == "unix" else socket.AF_INET) as line:
            line.settimeout(5)
            if server.common.transport == "unix":
                line.connect(server.address.uri.removeprefix("grpc+unix://"))
            else:
                host, port = server.address.uri.removeprefix("grpc://").split(":")
                line.connect((host, int(port)))
            noise = changed_bytes(hostile.rng, preface * 3) if number % 2 else hostile.rng.randbytes(200)
            with suppress(OSError):
                line.sendall(noise)
    server.is_unharmed()


def test_what_holds_secrets_does_not_show_them(tmp_path: Path) -> None:
    """Whatever is put into a log or an error by its repr: configs, the tasks that Spark ships, their plans."""
    common = config(tmp_path, store_options={"AWS_SECRET_ACCESS_KEY": PASSWORD})
    place = RowsPlace(common.store_uri, common.store_options)
    whole = ProcessConfig("s", "/d", "h", 1, "1", common)
    task = IngestTask("{}", (), common.access, place)
    for each in (common, common.access, place, whole, task):
        _tells_nothing(repr(each))
    assert SECRET in whole.to_json() and PASSWORD in whole.to_json(), "by its stdin a server gets them"


# The forkserver ------------------------------------------------------------------------------------------------------


@pytest.fixture
def forks(tmp_path: Path, short_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Forks]:
    monkeypatch.setenv(CONTEXT, short_id())
    executor = StandIn()
    made = Forks(fork_folder(), executor, tmp_path / "store", short_path)
    yield made
    executor.end()
    wait_for_the_end(made.place)


def test_malformed_requests_to_the_forkserver(forks: Forks) -> None:
    forks.start()
    (forkserver,) = forks.forkservers()
    hostile = Hostile("run", _seed())
    owner = [forks.executor.facts.pid, forks.executor.facts.started]
    right = [*owner, "{}", "{}"]
    with open(os.devnull, "wb") as log:
        for number in range(CALLS // 8):
            body = as_json(changed_json(hostile.rng, right))
            body = changed_bytes(hostile.rng, body) if number % 3 == 0 else body
            if number % 7 == 0:
                body = as_json([["\0", "1"], "x", "{}", "{}"] if number % 2 else ["\0", "1", SECRET, "{}"])
            length = LENGTH.pack(len(body)) if number % 5 else hostile.rng.randbytes(8)
            given = [log.fileno()] * hostile.rng.choice([0, 1, 2, 2, 2, 3])
            with socket.socket(socket.AF_UNIX) as line, suppress(BrokenPipeError, ConnectionResetError):
                line.connect(forks.place.socket)
                if given:
                    socket.send_fds(line, [length], given)
                else:
                    line.sendall(length)
                line.sendall(body)
    address = forks.start(replace(forks.config(), run=short_id() * 2))
    assert parent(address) == forkserver and forks.forkservers() == [forkserver], "the same one, and alone"
    assert SECRET not in Path(forks.place.log).read_text(errors="replace")
