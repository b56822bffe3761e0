"""The epoch config: what beside rows and state decides an epoch's output, recorded before its rows reach a sink.

A replay must give the sink the same rows. The rows follow from the source, the state before, and this config: whether
tasks combine, the route, the epoch's time, the delays of watermarks. Where an epoch's manifest is durable before its
sink they are in it. In the asynchronous modes the sink comes first, so they have an object of their own, put only if
absent: whoever runs the epoch again uses what was put first. Where an epoch has the config of the manifest before it,
it needs none, unless an earlier run may have begun the same epoch (``spark.commit.commits``).

Functions here hold no state: safe from any thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tailrace.env.stores.object_store import ObjectStore, locate
from tailrace.errors import CorruptionError
from tailrace.log import filenames
from tailrace.log.format import damaged, decode_entry, encode_entry

_KIND = "epoch_config"


def read_epoch_config(store: ObjectStore, epoch: int) -> dict[str, Any] | None:
    """What was put for the epoch, or None. A damaged object is refused: what a sink has seen cannot be known then."""
    name = filenames.epoch_config_name(epoch)
    where = locate(store, name)
    try:
        kind, body = decode_entry(store.get(name), where)
    except FileNotFoundError:
        return None
    if kind != _KIND or body.get("epoch") != epoch:
        raise CorruptionError(damaged(where, f"it is not the config of epoch {epoch}"))
    config = body.get("epoch_config")
    if not isinstance(config, dict):
        raise CorruptionError(damaged(where, "it holds no config"))
    return config


def put_epoch_config(store: ObjectStore, epoch: int, epoch_config: Mapping[str, Any]) -> dict[str, Any]:
    """Record the config unless that was done before; returns the one that the epoch must use."""
    body = {"epoch": epoch, "epoch_config": dict(epoch_config)}
    if store.put_if_absent(filenames.epoch_config_name(epoch), encode_entry(_KIND, body)):
        return dict(epoch_config)
    found = read_epoch_config(store, epoch)
    return dict(epoch_config) if found is None else found


def forget_epoch_configs(store: ObjectStore, before: int) -> None:
    """Delete those of epochs below ``before``. Lists: for a start, not for every epoch."""
    names = [each.name for each in store.list(filenames.EPOCH_CONFIG_PREFIX)]
    store.delete(
        [name for name in names if (epoch := filenames.epoch_config_epoch(name)) is not None and epoch < before]
    )
