"""``tailrace gadget``: state-store traces of streaming operators. See docs/gadget.md.

``gadget_app`` is the group; its other commands are in ``gadget_analysis`` and ``gadget_bench``.
"""

from __future__ import annotations

import typer

from tailrace.cli.app import app

gadget_app = typer.Typer(
    help="Measure any state store with the access patterns of streaming operators.",
    epilog="Examples:  tailrace gadget workloads  ·  tailrace gadget generate tumbling-incremental --out trace.parquet",
    no_args_is_help=True,
)
app.add_typer(gadget_app, name="gadget")
