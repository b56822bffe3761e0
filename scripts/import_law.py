"""The import law: which part of Tailrace may know which, and who may touch disk, clock and randomness.

Run as ``python scripts/import_law.py [source folder]``: prints each violation as ``file:line: what``, exits with 1 if
there is one. It reads the syntax tree only, so it needs nothing installed and imports nothing of what it checks.
Imports inside functions and under ``TYPE_CHECKING`` count like any other.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

PACKAGE = "tailrace"

FLOOR = ("errors", "ids", "types")
"""Below all: everybody may import these, and they import nothing of ours."""

MAY_IMPORT: dict[str, tuple[str, ...]] = {
    # The longest name that matches the importer counts. Inside its own package a module may import what LAYERS allows.
    "errors": (),
    "ids": (),
    "types": (),
    "env": (),
    "log": ("env",),
    "state": ("log", "env"),
    # Not state.segments: an operator asks a store for records, and does not know which of them lie on disk.
    "operators": (
        *("state.layout", "state.metrics", "state.tuning", "state.tiers", "state.rows", "state.cache"),
        *(
            "state.nested",
            "state.hash_table",
            "state.sections",
            "state.append",
            "state.read_modify_write",
            "log",
            "env",
        ),
    ),
    "operators.windows": ("api.duration",),  # windows in a user's words
    # What a driver plans, it plans from what the user wrote: these modules know the API. "*" stands for any operator.
    **{
        f"operators.{module}": ("api", "state.layout", "state.tuning")
        for module in (
            "*.planning",
            "*.window_forms",
            "*.describe",
            "*.kind",
            "*.relation",
            "planning",
            "kind",
            "registry",
        )
    },
    # A descriptor holds all of an aggregate, what users write included.
    "operators.aggregate.functions": ("api.aggregates", "api.columns", "operators", "state", "env.kernels"),
    "commit": ("state", "log", "env"),  # stores do not know commit, nor does commit know operators
    "server": ("operators", "commit", "state", "log", "env"),
    # Loaded in tasks and drivers: no store comes with it.
    "server.transport": ("operators.ingest", "commit", "state.tuning", "log.typed_json", "env"),
    # Checkpoints as tables: of stores it needs the forms of rows and sections alone.
    "state_table": ("operators", "commit", "state.layout", "state.rows", "state.sections", "log.reader", "env"),
    "api": (),
    "api.options": ("state.tuning",),  # the defaults of stores' settings
    "plan": ("api", "operators", "state.tuning"),
    "sinks": ("api.table_options", "env"),  # tables and topics, without Spark
    "spark": (
        *("plan", "api", "operators", "state.cache.frequency_sketch", "commit", "sinks", "state_table", "env"),
        *("server.transport", "server.process.launch"),
    ),
    "testing": ("",),
    "testing.shaped_reads": ("env.files.shaped_reads",),  # a slow disk is part of the environment
    "testing.processors": ("api", "operators", "spark.processors", "spark.sources"),  # what servers run, without them
    "testing.queries": (
        *("api", "operators", "plan", "state.rows", "env.files.scratch"),
        *("spark.processors", "spark.sources", "spark.epoch"),
        "testing",
    ),
    "testing.schemas": ("spark.sources",),
    "testing.bench": (
        "operators",
        "state",
        "env.kernels",
        "env.memory",
        "testing",
    ),  # stores by themselves, for benches
    "lab": ("", "testing"),  # "" is the package itself: public names only, as a user has them
    "cli": ("", "lab", "operators", "commit", "state_table", "env"),  # to compile kernels ahead, to look into state
    "": ("api", "operators.aggregate.functions", "plan", "spark", "state"),
}

DOORS: dict[str, tuple[str, ...]] = {"state": ("state_table",)}
"""Packages whose own name users know: the package alone, and no module of it, leads to what stands behind the name."""

LAYERS: dict[str, tuple[tuple[str, ...], ...]] = {
    # A package's rooms, from the lowest layer to the highest. A room may import itself and the layers below it.
    "env": (
        ("replaceable", "processes", "pandas_import", "forking"),
        ("clock", "randomness"),
        ("tasks", "retry", "memory", "transit_memory"),
        ("kernels",),
        ("files",),
        ("stores",),
    ),
    "log": (("filenames", "typed_json"), ("format",), ("reader", "writer")),
    "commit": (
        ("shard_ranges", "max_pane", "phases", "spark_logs", "plan_file", "lock", "epoch_config", "row_counts"),
        ("shard_pieces", "sink_manifest"),
        ("late_rows",),
        ("objects",),
        ("manifest",),
        ("log", "compaction"),
        ("recovery", "savepoints"),
        ("controller", "inspect", "resharding"),
    ),
    "server": (("transport",), ("checkpoint", "hints"), ("epoch",), ("process",)),
    "state": (
        ("layout", "metrics", "tuning", "tiers", "part_pool"),
        ("rows",),
        ("nested", "cache"),
        ("hash_table",),
        ("sections",),
        ("segments",),
        ("append", "read_modify_write"),
    ),
    "spark": (
        ("private", "state_source"),
        ("expressions",),
        ("tasks", "servers"),
        ("sources", "commit"),
        ("sinks", "hints", "processors"),
        ("epoch",),
        ("query",),
        ("plan_reader",),
    ),
}
"""Inside a package that is not listed here, every module may import every other."""

OPERATOR_FAMILIES = {"session": "aggregate", "count_window": "aggregate"}
"""Packages that are forms of one operator, and share its spec and its results: they may know each other."""

BUILDS_ON = {"stateful_processor": "process", "top_n": "aggregate"}
"""Operators whose state is that of another one: they know it, and it does not know them."""

KNOW_OPERATORS = ("registry", "user_code", "accesses")
"""Rooms of operators/ that serve some operators by name. Every other operator package stands by itself: it is known by
its ``kind`` module, and imports shared rooms only.
"""

FOREIGN: dict[str, tuple[str, ...]] = {
    "pyspark": ("spark", "lab", "testing"),
    "py4j": ("spark.private", "spark.expressions.catalyst"),
    "pyarrow.flight": ("server",),
    "typer": ("cli",),
    "psycopg": ("sinks", "lab"),
    "deltalake": ("sinks",),
    "pyiceberg": ("sinks",),
    "confluent_kafka": ("sinks", "lab"),
    "rich": ("cli", "lab"),
    "obstore": ("env",),
    "time": ("env", "lab", "testing"),
    "random": ("env", "lab", "testing"),
    "uuid": ("env", "lab", "testing"),
    "secrets": ("env", "lab", "testing"),
    "tempfile": ("env", "lab", "testing", "cli"),
    "shutil": ("env", "lab", "testing", "cli"),
    "fcntl": ("env",),
    "mmap": ("env",),
    "numpy.random": ("env", "lab", "testing"),
    "importlib": ("cli", "lab", "sinks.dbapi"),  # an import that the law could not see; users name a database module
}
"""Who may import what is not ours. Lab and testing stand outside the engine, as a user's program does."""

PYSPARK_PRIVATE = ("spark.private", "spark.expressions.catalyst", "lab.spark_private")
"""The only modules that may touch PySpark's underscored API: Spark may change it in any release."""

_PYSPARK_NAMES = """
    _jvm _jdf _jsc _sc _gateway _jsparkSession _jrdd _jc _jwrite _jreader _jsq _jsqm _jconf _jcatalog _java_obj _jseq
    _jmap _jcols _jcol _to_java_column _to_seq _active_spark_context _instantiatedSession _sparkSession
"""
PYSPARK_NAMES = frozenset(_PYSPARK_NAMES.split())
"""Underscored attributes by which PySpark's objects lead to the JVM or to each other."""

LAZY = (
    *("cli", "", "operators.*.kind", "operators.lookup.runtime", "env.stores.location", "sinks.registry"),
    "spark.state_source",
)
"""What may put off an import of much that it may not need, if it says why: commands, the package itself, the kind of an
operator, of which only state servers need all, who opens a table or a store by its name, for its client, and sources
that Spark imports in every session to learn their names.
"""

OWN_DISK_AND_CLOCK = ("env", "lab", "testing", "cli")

_OS_CALLS = """
    open fdopen read write writev pread pwrite fsync fdatasync replace rename renames link symlink unlink remove rmdir
    mkdir makedirs removedirs listdir scandir walk truncate ftruncate utime chmod chown urandom getrandom times
"""
OS_CALLS = frozenset(_OS_CALLS.split())
_PATH_METHODS = "read_text write_text read_bytes write_bytes hardlink_to symlink_to iterdir touch"
PATH_METHODS = frozenset(_PATH_METHODS.split())
CLOCK_METHODS = frozenset({"now", "utcnow", "today"})
NUMPY_NAMES = ("np", "numpy")
BUILTINS = {"open": "opens a file", "__import__": "imports where the law cannot see it"}


@dataclass(frozen=True)
class Violation:
    path: Path
    line: int
    what: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.what}"


def module_name(path: Path, source: Path) -> str:
    """The module's name below the package: ``server.client``, or ``""`` for the package itself."""
    parts = list(path.relative_to(source / PACKAGE).with_suffix("").parts)
    if parts[-1] == "__init__":
        parts.pop()
    return ".".join(parts)


def within(name: str, parent: str) -> bool:
    return name == parent or name.startswith(parent + ".")


def _rule(importer: str) -> tuple[str, ...]:
    parts = importer.split(".")
    for length in range(len(parts), 0, -1):
        name = ".".join(parts[:length])
        any_operator = ".".join([*parts[:1], "*", *parts[2:length]])
        found = MAY_IMPORT.get(name, MAY_IMPORT.get(any_operator))
        if found is not None:
            return found
    raise LookupError(importer)


def _may_import(importer: str, target: str) -> bool:
    if importer == target or any(within(target, floor) for floor in FLOOR):
        return importer not in FLOOR or importer == target
    if any(within(target, behind) for behind in DOORS.get(importer, ())):
        return True
    top = importer.split(".")[0]
    if importer and within(target, top):
        return _layer_allows(top, importer, target)
    allowed = _rule(importer)
    return any(target == "" if name == "" else within(target, name) for name in allowed)


def _layer_allows(package: str, importer: str, target: str) -> bool:
    layers = LAYERS.get(package)
    if layers is None or target == package:
        return True
    rooms = {room: height for height, layer in enumerate(layers) for room in layer}
    own, other = (name.split(".")[1] for name in (importer, target))
    for room in (own, other):
        if room not in rooms:
            raise LookupError(f"{package}.{room}")
    return own == other or rooms[own] > rooms[other]


def _operators_apart(importer: str, target: str, modules: frozenset[str]) -> bool:
    """Whether an operator package leaves the others alone."""
    if not importer.startswith("operators.") or not target.startswith("operators."):
        return True
    own, other = (name.split(".")[1] for name in (importer, target))
    if own == other or own in KNOW_OPERATORS:
        return True
    if f"operators.{other}.kind" not in modules and other not in OPERATOR_FAMILIES:
        return True  # a shared room
    family = OPERATOR_FAMILIES.get(other, other)
    return family in (OPERATOR_FAMILIES.get(own, own), BUILDS_ON.get(own))


class _Check(ast.NodeVisitor):
    def __init__(self, path: Path, name: str, lines: list[str], modules: frozenset[str]) -> None:
        self.path = path
        self.name = name
        self.lines = lines
        self.modules = modules
        self.part = name.split(".")[0]
        self.functions = 0
        self.found: set[Violation] = set()  # a set: one line may import several names of one module

    def _tell(self, node: ast.AST, what: str) -> None:
        self.found.add(Violation(self.path, getattr(node, "lineno", 0), what))

    # Imports.

    def visit_Import(self, node: ast.Import) -> None:
        self._hidden(node)
        for alias in node.names:
            self._imported(node, alias.name)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        self._hidden(node)
        base = node.module or ""
        if node.level:
            self._tell(node, "relative import: write the full name, so that the law can be read off it")
            return
        for alias in node.names:
            full = f"{base}.{alias.name}"
            if within(base, PACKAGE):
                # `from tailrace.server.transport import client` imports the module tailrace.server.transport.client.
                known = full.removeprefix(PACKAGE + ".") in self.modules
                self._imported(node, full if known else base)
            else:
                self._foreign(node, full)
                if base == "os" and alias.name in OS_CALLS and self.part not in OWN_DISK_AND_CLOCK:
                    self._tell(node, f"os.{alias.name} belongs to env/")

    def _hidden(self, node: ast.stmt) -> None:
        if not self.functions:
            return
        put_off = self.name in DOORS or any(fnmatchcase(name, each) for each in LAZY for name in (self.part, self.name))
        if put_off and ("# lazy:" in self.lines[node.lineno - 1]):
            return
        self._tell(node, "import inside a function: move it to the top (commands may say why not: `# lazy: ...`)")

    def _imported(self, node: ast.AST, full: str) -> None:
        if not within(full, PACKAGE):
            self._foreign(node, full)
            return
        target = full.removeprefix(PACKAGE).removeprefix(".")
        try:
            allowed = _may_import(self.name, target) and _operators_apart(self.name, target, self.modules)
        except LookupError as missing:
            self._tell(node, f"{PACKAGE}.{missing.args[0]} has no place in the import law: add it to its tables")
            return
        if not allowed:
            self._tell(node, f"{_shown(self.name)} may not import {_shown(target)}")

    def _foreign(self, node: ast.AST, full: str) -> None:
        for library, parts in FOREIGN.items():
            if within(full, library) and not any(within(self.name, part) for part in parts):
                self._tell(node, f"only {', '.join(map(_place, parts))} may import {library}")
        if within(full, "pyspark") and any(part.startswith("_") for part in full.split(".")):
            self._private(node, full)

    # What may be called.

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self.functions += 1
        self.generic_visit(node)
        self.functions -= 1

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self.functions += 1
        self.generic_visit(node)
        self.functions -= 1

    def visit_Attribute(self, node: ast.Attribute) -> None:
        own = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
        if node.attr in PYSPARK_NAMES and not own:
            self._private(node, f".{node.attr}")
        self.generic_visit(node)

    def _private(self, node: ast.AST, what: str) -> None:
        if self.name not in PYSPARK_PRIVATE:
            places = " and ".join(map(_place, PYSPARK_PRIVATE))
            self._tell(node, f"{what} is private to PySpark: only {places} may touch it")

    def visit_Call(self, node: ast.Call) -> None:
        if self.part not in OWN_DISK_AND_CLOCK:
            self._call(node)
        self.generic_visit(node)

    def _call(self, node: ast.Call) -> None:
        called = node.func
        if isinstance(called, ast.Name):
            if called.id in BUILTINS:
                self._tell(node, f"{called.id}() {BUILTINS[called.id]}: that belongs to env/")
        elif isinstance(called, ast.Attribute):
            owner = ast.unparse(called.value)
            if owner == "os" and called.attr in OS_CALLS:
                self._tell(node, f"os.{called.attr} belongs to env/")
            elif called.attr in PATH_METHODS:
                self._tell(node, f".{called.attr}() touches the disk: that belongs to env/")
            elif called.attr in CLOCK_METHODS and owner.split(".")[-1] in ("datetime", "date"):
                self._tell(node, f"{owner}.{called.attr}() reads the clock: that belongs to env/")
            elif owner in {f"{name}.random" for name in NUMPY_NAMES}:
                self._tell(node, f"{owner}.{called.attr}() is randomness: that belongs to env/")


def _place(part: str) -> str:
    return f"{part.replace('.', '/')}.py" if "." in part else f"{part}/"


def _shown(name: str) -> str:
    return f"{PACKAGE}.{name}" if name else f"{PACKAGE}/__init__.py"


def check(source: Path) -> Iterator[Violation]:
    """Every violation under ``source`` (the folder that holds the package), in order of files and lines."""
    paths = sorted((source / PACKAGE).rglob("*.py"))
    modules = frozenset(module_name(path, source) for path in paths)
    for path in paths:
        text = path.read_text(encoding="utf-8")
        name = module_name(path, source)
        visitor = _Check(path, name, text.splitlines(), modules)
        visitor.visit(ast.parse(text, filename=str(path)))
        yield from sorted(visitor.found, key=lambda violation: (violation.line, violation.what))


def main(arguments: list[str]) -> int:
    source = Path(arguments[0]) if arguments else Path(__file__).parent.parent / "src"
    violations = list(check(source))
    for violation in violations:
        print(violation)
    if violations:
        print(f"import law: {len(violations)} violation(s); the law is the table MAY_IMPORT in scripts/import_law.py")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
