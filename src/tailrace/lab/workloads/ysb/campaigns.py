"""The campaigns of ads in a Redis server, which is started for a run and gone with it: each ad's id is a key.

The server's address reaches queries through the environment of the engine's process.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
import redis

from tailrace.errors import TailraceError
from tailrace.lab.registry import Settings, Value
from tailrace.lab.servers.redis import RedisServer
from tailrace.lab.workloads.ysb.ads import table

VARIABLE = "TAILRACE_YSB_REDIS"
_WRITTEN = 10_000


@contextmanager
def serving(settings: Settings) -> Iterator[dict[str, str]]:
    """A server with every known ad. Gives what an engine's environment needs."""
    with RedisServer() as server:
        fill(server.url, settings.values)
        yield {VARIABLE: server.url}


def fill(url: str, values: Mapping[str, Value]) -> None:
    ads, campaigns = (table(values).column(n).to_pylist() for n in range(2))
    client = redis.Redis.from_url(url)
    try:
        client.flushall()
        for at in range(0, len(ads), _WRITTEN):
            client.mset(dict(zip(ads[at : at + _WRITTEN], campaigns[at : at + _WRITTEN], strict=True)))
    finally:
        client.close()


def address() -> str:
    found = os.environ.get(VARIABLE)
    if found is None:
        raise TailraceError(f"{VARIABLE} is not set: it names the Redis server of a run, which `tailrace run` starts")
    return found


@cache
def _client(url: str) -> Any:
    return redis.Redis.from_url(url, decode_responses=True)


def campaigns_of(url: str, ads: np.ndarray) -> list[str | None]:
    """What a program without Tailrace does at its best: each ad of a batch once, all of them in one round trip."""
    if not len(ads):
        return []
    distinct, places = np.unique(ads.astype(str), return_inverse=True)
    said = _client(url).mget(list(distinct))
    return [said[place] for place in places]
