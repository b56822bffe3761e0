"""``tailrace savepoint``: epochs with a name, which outlive cleaning and start other queries."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from tailrace.cli.app import err, out, savepoint
from tailrace.cli.checkpoint import Location, State, opened

if TYPE_CHECKING:
    from tailrace.commit.objects import ObjectRef
    from tailrace.commit.savepoints.savepoint import Savepoint
    from tailrace.env.stores.object_store import ObjectStore

_Name = Annotated[str, typer.Argument(help="The savepoint's name.", show_default=False)]
_Place = Annotated[
    str, typer.Argument(help="A checkpointLocation, a stateLocation, or where copies lie.", show_default=False)
]


@savepoint.command(epilog="Example:  tailrace savepoint create /data/checkpoints/counts before-deploy")
def create(
    location: Location,
    name: _Name,
    epoch: Annotated[
        int | None, typer.Option(help="One that is kept.", show_default="the newest that Spark has committed")
    ] = None,
    state: State = None,
) -> None:
    """Name an epoch, so that cleaning keeps what it needs. The query may be running, and is not disturbed."""
    from tailrace.commit.savepoints.savepoint import make_savepoint  # lazy: see cli.app

    _, store, place = opened(location, state)
    made = make_savepoint(store, place, name, epoch)
    out.print(f"Savepoint {made.name} keeps epoch {made.epoch}: {_size(made)} in {len(made.objects)} objects.")


@savepoint.command("list", epilog="Example:  tailrace savepoint list s3://bucket/saved --json")
def list_(
    location: _Place,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON objects instead, one a line.")] = False,
) -> None:
    """List savepoints: their epochs, who has made them, and when."""
    from tailrace.state_table.location import savepoints_at  # lazy: see cli.app

    found = savepoints_at(location)[1]
    if as_json:
        for each in found:
            said = {name: getattr(each, name) for name in ("name", "epoch", "at", "by", "source")}
            print(json.dumps({**said, "objects": len(each.objects), "bytes": sum(each.objects.values())}))
        return
    table = Table("name", "epoch", "made", "by", "of", "size")
    for each in found:
        table.add_row(*map(Text, (each.name, str(each.epoch), each.at, each.by, each.source, _size(each))))
    out.print(table)


@savepoint.command(epilog="Example:  tailrace savepoint verify s3://bucket/saved before-deploy")
def verify(location: _Place, name: _Name) -> None:
    """Read every byte of a savepoint and check it."""
    from tailrace.commit.savepoints.moving import verify_savepoint  # lazy: see cli.app

    store, found = _found(location, name)
    verify_savepoint(store, found)
    out.print(f"Savepoint {name} is whole: {_size(found)} in {len(found.objects)} objects.")


@savepoint.command(epilog="Example:  tailrace savepoint copy /data/checkpoints/counts before-deploy s3://bucket/saved")
def copy(
    location: _Place,
    name: _Name,
    target: Annotated[str, typer.Argument(help="A path, s3://, gs:// or az://.", show_default=False)],
) -> None:
    """Copy a savepoint to another place, and check the copy. Interrupted, it goes on where it was when run again."""
    from tailrace.commit.savepoints.moving import copy_savepoint  # lazy: see cli.app
    from tailrace.env.stores.location import open_store  # lazy: see cli.app

    store, found = _found(location, name)
    copy_savepoint(store, found, open_store(target), _told)
    out.print(f"Savepoint {name} is at {target}, and whole: {_size(found)}.")


@savepoint.command(epilog="Example:  tailrace savepoint restore s3://bucket/saved before-deploy /data/checkpoints/new")
def restore(
    location: _Place,
    name: _Name,
    checkpoint: Annotated[str, typer.Argument(help="The new query's checkpointLocation.", show_default=False)],
    state: State = None,
) -> None:
    """Make a savepoint the state of a new query, which goes on behind its epoch. The savepoint stays as it is."""
    from tailrace.commit.savepoints.moving import restore_savepoint  # lazy: see cli.app
    from tailrace.env.stores.location import open_store  # lazy: see cli.app

    store, found = _found(location, name)
    target = open_store(state or f"{checkpoint.rstrip('/')}/tailrace")
    restore_savepoint(store, found, target, _told)
    out.print(f"Start the query with checkpointLocation {checkpoint}: it goes on with epoch {found.epoch + 1}.")


@savepoint.command(epilog="Example:  tailrace savepoint delete /data/checkpoints/counts before-deploy")
def delete(location: _Place, name: _Name) -> None:
    """Delete a savepoint. The query's next start deletes what only it has needed."""
    from tailrace.commit.savepoints.savepoint import delete_savepoint  # lazy: see cli.app

    delete_savepoint(*_found(location, name))
    out.print(f"Savepoint {name} is deleted.")


def _found(location: str, name: str) -> tuple[ObjectStore, Savepoint]:
    from tailrace.state_table.location import found_savepoint  # lazy: see cli.app

    return found_savepoint(location, name)


def _told(ref: ObjectRef) -> None:
    err.print(f"{ref.name}: {ref.bytes / 1e6:,.1f} MB", style="dim", highlight=False)


def _size(found: Savepoint) -> str:
    return f"{sum(found.objects.values()) / 1e6:,.1f} MB"
