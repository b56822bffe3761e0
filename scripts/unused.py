"""What nothing uses: modules, names, options, metrics and RPCs of Tailrace. Tests do not count as users.

Run as ``python scripts/unused.py [source folder]``: prints each finding as ``file:line: what``, exits with 1 if there
is one. It reads the syntax trees only, so it needs nothing installed and imports nothing of what it checks.

- A *module* is used where another one imports it, or names it or its file in a text, as ``python -m`` needs it.
- A *name* (a function, class or constant of a module) is used where any module names it, its own one too. A decorated
  one may be used by its decorator, as a command is; one in ``__all__`` is there for users.
- An *option* (a field that is made by ``option(...)``) is used where another module reads an attribute of its name.
- A *metric* (a name in capitals in a module ``metrics``) is used where another module names it.
- An *RPC* is a public method of ``StateClient``, used where another module calls it on a client; and a key of the
  tables of actions in ``StateService``, used where the client's module names it.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PACKAGE = "tailrace"
FOUND_BY_SPARK = "pyspark_*/__init__.py"
"""Packages beside ours that hand Spark what it looks for."""
SHIPPED = ("testing",)
"""Packages whose modules are there for users to import."""
TEXT_CHARS_MAX = 200
"""Longer texts are documentation, which uses nothing."""
CLIENT, SERVICE = "StateClient", "StateService"
CLIENT_WORDS = ("client", "connect(")
"""What the text of an expression that is a client has in it."""


@dataclass(frozen=True)
class Finding:
    path: Path
    line: int
    what: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.what}"


@dataclass(frozen=True)
class Module:
    path: Path
    name: str
    tree: ast.Module

    @property
    def is_package(self) -> bool:
        return self.path.name in ("__init__.py", "__main__.py")


def read(source: Path) -> list[Module]:
    modules = []
    for path in sorted([*(source / PACKAGE).rglob("*.py"), *source.glob(FOUND_BY_SPARK)]):
        parts = path.relative_to(source).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        modules.append(Module(path, name, ast.parse(path.read_text(encoding="utf-8"), filename=str(path))))
    return modules


def unused_modules(modules: list[Module]) -> Iterator[Finding]:
    named: dict[str, set[str]] = {}
    for module in modules:
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Import):
                found = {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                base = node.module or ""
                found = {base, *(f"{base}.{alias.name}" for alias in node.names)}
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) < TEXT_CHARS_MAX:
                found = set(node.value.split())
            else:
                continue
            for name in found:
                named.setdefault(name, set()).add(module.name)
    for module in modules:
        users = named.get(module.name, set()) | named.get(module.path.name, set())
        if not module.is_package and not _is_shipped(module) and not users - {module.name}:
            yield Finding(module.path, 1, f"nothing imports the module {module.name}")


def unused_names(modules: list[Module]) -> Iterator[Finding]:
    named: set[str] = set()
    for module in modules:
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                named.add(node.id)
            elif isinstance(node, ast.Attribute):
                named.add(node.attr)
            elif isinstance(node, ast.Import | ast.ImportFrom):
                named.update(alias.name for alias in node.names)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) < TEXT_CHARS_MAX:
                named.update(re.findall(r"\w+", node.value))
    for module in modules:
        if _is_shipped(module) or _holds_metrics(module):
            continue
        for statement in module.tree.body:
            for name in _defined(statement):
                if name not in named and not name.startswith("__"):
                    yield Finding(module.path, statement.lineno, f"nothing uses {name}")


def _defined(statement: ast.stmt) -> list[str]:
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        return [] if statement.decorator_list and isinstance(statement, ast.FunctionDef) else [statement.name]
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    if isinstance(statement, ast.AnnAssign):
        targets = [statement.target]
    return [each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)]


def _holds_metrics(module: Module) -> bool:
    return module.name.split(".")[-1] == "metrics"


def _is_shipped(module: Module) -> bool:
    return module.name.split(".")[1:2] in [[name] for name in SHIPPED]


def unused_options(modules: list[Module]) -> Iterator[Finding]:
    read_in: dict[str, set[str]] = {}
    for module in modules:
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                read_in.setdefault(node.attr, set()).add(module.name)
    for module in modules:
        for node in ast.walk(module.tree):
            if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
                continue
            made = node.value
            if not isinstance(made, ast.Call) or not isinstance(made.func, ast.Name) or made.func.id != "option":
                continue
            if not read_in.get(node.target.id, set()) - {module.name}:
                yield Finding(module.path, node.lineno, f"nothing reads the option {ast.unparse(made.args[0])}")


def unused_metrics(modules: list[Module]) -> Iterator[Finding]:
    named: dict[str, set[str]] = {}
    for module in modules:
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Attribute):
                named.setdefault(node.attr, set()).add(module.name)
            elif isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    named.setdefault(alias.name, set()).add(module.name)
    for module in modules:
        if not _holds_metrics(module):
            continue
        for statement in module.tree.body:
            if isinstance(statement, ast.Assign):
                names = [
                    each for target in statement.targets for each in ast.walk(target) if isinstance(each, ast.Name)
                ]
                for name in names:
                    public = name.id.isupper() and not name.id.startswith("_")
                    if public and not named.get(name.id, set()) - {module.name}:
                        yield Finding(module.path, statement.lineno, f"nothing counts or shows the metric {name.id}")


def unused_rpcs(modules: list[Module]) -> Iterator[Finding]:
    clients = [(module, node) for module in modules for node in _classes(module, CLIENT)]
    for module, client in clients:
        called = {
            node.attr
            for other in modules
            if other is not module
            for node in ast.walk(other.tree)
            if isinstance(node, ast.Attribute) and _is_client(node.value)
        }
        for method in client.body:
            if isinstance(method, ast.FunctionDef) and not method.name.startswith("_") and method.name not in called:
                yield Finding(module.path, method.lineno, f"nothing calls {CLIENT}.{method.name}")
    sent = {
        node.value
        for module, _ in clients
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    for module in modules:
        for service in _classes(module, SERVICE):
            for table in ast.walk(service):
                if isinstance(table, ast.AnnAssign) and isinstance(table.value, ast.Dict):
                    for key in table.value.keys:
                        if isinstance(key, ast.Constant) and key.value not in sent:
                            yield Finding(module.path, key.lineno, f"no client sends the action {key.value!r}")


def _classes(module: Module, name: str) -> list[ast.ClassDef]:
    return [node for node in module.tree.body if isinstance(node, ast.ClassDef) and node.name == name]


def _is_client(value: ast.expr) -> bool:
    text = ast.unparse(value).lower()
    return any(word in text for word in CLIENT_WORDS)


def check(source: Path) -> Iterator[Finding]:
    """Every finding under ``source``, the folder that holds the package."""
    modules = read(source)
    for rule in (unused_modules, unused_names, unused_options, unused_metrics, unused_rpcs):
        yield from rule(modules)


def main(arguments: list[str]) -> int:
    source = Path(arguments[0]) if arguments else Path(__file__).parent.parent / "src"
    findings = list(check(source))
    for finding in findings:
        print(finding)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
