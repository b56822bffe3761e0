"""``tailrace checkpoint``: look into what a query has left on disk, have it go back, give it other shards."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from tailrace.cli.app import checkpoint, err, out

if TYPE_CHECKING:
    from tailrace.commit.objects import ObjectRef
    from tailrace.commit.spark_logs.log_files import SparkLogPlace
    from tailrace.env.stores.object_store import ObjectStore


Location = Annotated[
    str, typer.Argument(help="The query's checkpointLocation: a path, s3://, gs:// or az://.", show_default=False)
]
State = Annotated[
    str | None, typer.Option(help="Its stateLocation, where that is not beside the checkpoint.", show_default=False)
]


@checkpoint.command(
    epilog="Examples:  tailrace checkpoint inspect /data/checkpoints/counts  ·  tailrace checkpoint inspect ck --state "
    "s3://bucket/counts --json"
)
def inspect(
    location: Location,
    state: State = None,
    local: Annotated[
        str | None, typer.Option(help="Its localLocation, where that was given, on this machine.", show_default=False)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")] = False,
) -> None:
    """Show epochs, sizes, acknowledgements and what a restart would do. Changes nothing; the query may be running."""
    from tailrace.commit.inspect import inspect as look  # lazy: see cli.app
    from tailrace.commit.spark_logs.log_files import spark_epochs  # lazy: see cli.app
    from tailrace.env.stores.local_copy import copies_of  # lazy: see cli.app
    from tailrace.env.stores.location import is_remote  # lazy: see cli.app

    spark, store, folder = opened(location, state)
    copies = copies_of(store, local, sweep=False) if is_remote(store) else None
    found = look(store, spark_epochs(spark, "commits"), spark_epochs(spark, "offsets"), copies, folder)
    if as_json:
        print(json.dumps(found.to_json()))
        return
    table = Table(title=f"The log at {found.state}", title_justify="left")
    for name, justify in (("entry", "right"), ("what", "left"), ("run", "left"), ("objects", "right"), ("MB", "right")):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    for entry in found.to_json()["log"]:
        durable = entry["kind"] == "durable"
        what = f"epoch {entry['epoch']}, try {entry['try']}: durable" if durable else entry["kind"]
        if entry["kind"] == "fence":
            what = f"start on {entry['host']}, {entry['at']}"
        sizes = (f"{entry['objects']}", f"{entry['bytes'] / 1e6:,.1f}") if durable else ("", "")
        table.add_row(str(entry["number"]), what, entry.get("run", ""), *sizes)
    out.print(table)
    table = Table(title="Epochs, and who has acknowledged what of them", title_justify="left")
    for name in ("epoch", "Spark", "saved here, MB", "in the store, MB", "durable by entry"):
        table.add_column(name, justify="left" if name == "Spark" else "right")
    for each in found.epochs:
        by_spark = "committed" if each.committed else "planned" if each.planned else ""
        megabytes = ("" if size is None else f"{size / 1e6:,.3f}" for size in (each.saved, each.uploaded))
        table.add_row(str(each.epoch), by_spark, *megabytes, "" if each.entry is None else str(each.entry))
    out.print(table)
    newest = {log: max(epochs, default=None) for log, epochs in found.to_json()["spark"].items()}
    out.print(f"Spark: newest commit {newest['commits']}, newest offset {newest['offsets']}")
    out.print(
        f"Objects: {len(found.objects)}, {sum(found.objects.values()) / 1e6:,.1f} MB; {len(found.orphans)} that no "
        f"durable epoch lists; {len(found.missing)} missing"
    )
    out.print(Text(found.verdict(), style="bold"))


@checkpoint.command("go-back", epilog="Example:  tailrace checkpoint go-back /data/checkpoints/counts 41")
def go_back(
    location: Location,
    epoch: Annotated[int, typer.Argument(help="One of those that `inspect` lists as durable.", show_default=False)],
    state: State = None,
) -> None:
    """Have the query continue from an older epoch, which is still kept: where newer state is gone or damaged.

    The epochs behind it are run again, each with the rows that it had: no sink gets others. The query must not run.
    """
    from tailrace.commit.controller import Controller  # lazy: see cli.app

    _, store, folder = opened(location, state)
    plan = _plan_of(store)
    controller = Controller.start(store, plan, folder, retain=sys.maxsize, go_back_to=epoch)
    controller.close()
    last = controller.recovery_point.manifest.replayed_until
    again = f"It will run epochs {epoch + 1} to {last} again, as they were." if last > epoch else "It is there already."
    out.print(f"The query continues behind epoch {epoch} when it is started. {again}")


@checkpoint.command("reshard", epilog="Example:  tailrace checkpoint reshard /data/checkpoints/counts --shards 256")
def reshard_(
    location: Location,
    shards: Annotated[int, typer.Option(help="How many there will be.", min=1, max=4096, show_default=False)],
    state: State = None,
) -> None:
    """Divide a query's state into another number of shards. The query must not run.

    Interrupted, the query can be started as before, or the command be run again: it goes on where it was.
    """
    from tailrace.commit.resharding import Change, reshard  # lazy: see cli.app
    from tailrace.operators.resharding import compacting, resharded, shards_of  # lazy: see cli.app

    _, store, folder = opened(location, state)
    plan = _plan_of(store)
    if (before := shards_of(plan)) == shards:
        out.print(f"The state has {shards} shards.")
        return
    change = Change(before, shards, plan, resharded(plan, shards), compacting(plan), _told)
    done = reshard(store, folder, change)
    out.print(f"Start the query with the option shards={shards}: it goes on behind epoch {done.epoch}.")


def _told(ref: ObjectRef) -> None:
    err.print(f"{ref.name}: {ref.bytes / 1e6:,.1f} MB", style="dim", highlight=False)


def _plan_of(store: ObjectStore) -> dict[str, Any]:
    from tailrace.commit.log import CommitLog  # lazy: see cli.app
    from tailrace.commit.plan_file import read_plan  # lazy: see cli.app
    from tailrace.errors import CheckpointError  # lazy: see cli.app

    newest = CommitLog(store).read().newest
    if (plan := read_plan(store, "" if newest is None else newest.plan)) is None:
        raise CheckpointError(f"There is no state at {store.uri}. Say with --state where the query's stateLocation is.")
    return plan


def opened(location: str, state: str | None) -> tuple[ObjectStore, ObjectStore, SparkLogPlace]:
    """Spark's checkpoint, the state, and the checkpoint once more as the place of Spark's logs."""
    from tailrace.commit.spark_logs.log_files import SparkLogFolder, SparkLogObjects  # lazy: see cli.app
    from tailrace.env.stores.local_store import LocalStore  # lazy: see cli.app
    from tailrace.env.stores.location import open_store  # lazy: see cli.app

    spark = open_store(location)
    if isinstance(spark, LocalStore) and not spark.root.is_dir() and state is None:
        raise typer.BadParameter(f"there is no folder {location}", param_hint="LOCATION")
    store = open_store(state or f"{location.rstrip('/')}/tailrace")
    return spark, store, SparkLogFolder(spark.root) if isinstance(spark, LocalStore) else SparkLogObjects(spark)
