"""What a call that got no answer raises: by whether it may be made again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tailrace.commit.manifest import EMPTY
from tailrace.errors import StateServerError, UnansweredError
from tailrace.server.transport.client import IDEMPOTENT, StateClient
from tailrace.server.transport.server_config import Access, ServerAddress

CALLS: dict[str, Callable[[StateClient], object]] = {
    "open": lambda client: client.open(range(4)),
    "prepare": lambda client: client.prepare(0, 0, []),
    "run_epoch": lambda client: client.run_epoch(0, 0, None, 0, 0, commit=False),
    "commit": lambda client: client.commit(0, 0, upload=True),
    "upload": lambda client: client.upload([]),
    "forget": lambda client: client.forget(0),
    "compact": lambda client: client.compact(EMPTY),
    "exchange": lambda client: client.exchange(0, 0, "a", "b", 0, 0, ()),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("uri", ["grpc+tcp://127.0.0.1:1", "grpc+unix://{folder}/socket"])
def test_nobody_there(tmp_path: Path, call: str, uri: str) -> None:
    address = ServerAddress("s", uri.format(folder=tmp_path), "here", 1, 1, "")
    client = StateClient(address, Access("a" * 16, "token", timeout_s=10, transfer_timeout_s=10))
    with pytest.raises(StateServerError, match="state server s ") as caught:
        CALLS[call](client)
    assert (type(caught.value) is UnansweredError) == (call in IDEMPOTENT)
    assert not client.ping(5)
    client.close()
