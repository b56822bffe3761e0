"""A planted module, option, metric or RPC that nothing uses is found. `make check` looks at the package."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.scripts import load_script

USED = {
    "__init__": (
        "from tailrace.api import options\nfrom tailrace.spark import fleet\n"
        "__all__ = ['Options', 'StateClient', 'StateService', 'run', 'SERVER', 'GUARD']"
    ),
    "api/options": "class Options:\n    retain: int = option('retain', 2)",
    "state/metrics": "HITS, MISSES = 'hits', 'misses'",
    "server/client": (
        "class StateClient:\n"
        "    def forget(self): self._act('forget')\n"
        "    def ping(self): self._act('ping')\n"
        "    def _act(self, name): ..."
    ),
    "spark/guard": "",
    "server/service": (
        "class StateService:\n    def __init__(self):\n        self._actions: dict = {'forget': 1, 'ping': 2}"
    ),
    "spark/fleet": (
        "from tailrace.server import client\n"
        "from tailrace.state import metrics as names\n"
        "SERVER, GUARD = 'python -m tailrace.server.service', 'guard.py'\n"
        "def run(options, server):\n"
        "    print(options.retain, names.HITS, names.MISSES)\n"
        "    connect(server).forget()\n"
        "    [client.ping for client in server]"
    ),
}


unused = load_script("unused")


def findings(tmp_path: Path, files: dict[str, str]) -> list[str]:
    for name, code in files.items():
        path = tmp_path / "tailrace" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(code)
    return [finding.what for finding in unused.check(tmp_path)]


def test_what_is_used_is_not_found(tmp_path: Path) -> None:
    assert findings(tmp_path, USED) == []


@pytest.mark.parametrize(
    ("name", "before", "after", "what"),
    [
        ("state/table", "", "pass", "nothing imports the module tailrace.state.table"),
        ("spark/fleet", "-m tailrace.server.service", "", "nothing imports the module tailrace.server.service"),
        ("spark/fleet", "guard.py", "", "nothing imports the module tailrace.spark.guard"),
        ("spark/guard", "", "def left(): ...", "nothing uses left"),
        ("spark/fleet", "options.retain, ", "", "nothing reads the option 'retain'"),
        ("spark/fleet", ", names.MISSES", "", "nothing counts or shows the metric MISSES"),
        ("spark/fleet", "    connect(server).forget()\n", "", "nothing calls StateClient.forget"),
        ("server/service", "'ping': 2", "'ping': 2, 'undo': 3", "no client sends the action 'undo'"),
    ],
)
def test_what_is_planted_is_found(tmp_path: Path, name: str, before: str, after: str, what: str) -> None:
    code = USED.get(name, "")
    assert findings(tmp_path, {**USED, name: code.replace(before, after) if before else after}) == [what]
