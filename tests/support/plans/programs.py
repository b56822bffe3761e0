"""Random streaming queries as PySpark programs: text, so that a failure prints what can be run again by hand.

A program is an expression of ``rows`` and ``others``, two streams, and of PySpark's functions ``F``. What it may hold
is what Spark runs and whose rows do not depend on the order in which rows come: of rows with equal keys, for instance,
only the keys are shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from random import Random

from support.plans.expressions import KEY_FAMILIES, Scope, Typed
from support.plans.plan import Plan
from support.plans.rows import KINDS, ONCE, TIME, UNIQUE, Timing, script

ORDERED = ("integer", "extreme", "decimal", "string", "date", "timestamp", "local", "binary", "boolean")
NUMBERS = ("integer", "decimal", "finite")
ANY = (*KEY_FAMILIES, "double", "finite")
SHAPES = (
    *["aggregation"] * 5,
    *["window"] * 7,
    *["session"] * 3,
    *["deduplication"] * 3,
    *["join"] * 5,
    *["chain"] * 3,
)


@dataclass
class Part:
    """A part of a program, and what its rows consist of: families of columns by their names."""

    text: str
    columns: dict[str, str]
    time: str | None = None

    def then(self, call: str) -> Part:
        return Part(self.text + call, dict(self.columns), self.time)


class Drawing:
    """One plan, by what ``rng`` draws."""

    def __init__(self, rng: Random, rare: Random) -> None:
        self.rng = rng
        self.rare = rare  # draws what came later, so that plans without it are those that a number always was
        self.shape = rng.choice(SHAPES)
        self.names = 0
        self.by_epoch = True
        self.mode = "append"
        self.closing = 0
        # A part of the program, and what Spark runs in its place. Filters above it would go below only one of them.
        self.instead = ("", "")
        self.days = self.shape == "window" and rng.random() < 0.15
        self.confs = {
            "spark.sql.session.timeZone": rng.choice(
                ["UTC", "UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata"]
            ),
            "spark.sql.ansi.enabled": rng.choice(["true", "true", "false"]),
            "spark.sql.caseSensitive": rng.choice(["false", "false", "true"]),
            "spark.sql.shuffle.partitions": rng.choice(["1", "1", "2"]),
        }
        self.any_case = self.confs["spark.sql.caseSensitive"] == "false"

    def maybe(self, share: float) -> bool:
        return self.rng.random() < share

    def name(self, prefix: str) -> str:
        self.names += 1
        return f"{prefix}{self.names}"

    def scope(self, part: Part, *without: str) -> Scope:
        columns = {name: family for name, family in part.columns.items() if name not in without}
        return Scope(self.rng, columns, self.any_case)

    # --- without state

    def source(self, variable: str, columns: dict[str, str], prefix: str) -> Part:
        families = {prefix + name: KINDS[kind].family for name, kind in columns.items()}
        own = {prefix + TIME: "timestamp", prefix + UNIQUE: "unique", prefix + ONCE: "integer"}
        return Part(variable, {**own, **families}, prefix + TIME)

    def below(self, part: Part) -> Part:
        """Some of what needs no state, before the watermark."""
        for _ in range(self.rng.choice([0, 0, 0, 1, 1, 2, 3])):
            scope = self.scope(part)
            kind = self.rng.choice(["where", "withColumn", "selectExpr", "union", "explode", "rename", "table"])
            if kind == "where":
                part = part.then(f'.where("{self.kept(part, scope.condition())}")')
            elif kind == "withColumn":
                made, name = scope.any_of(*ANY), self.name("x")
                part = part.then(f'.withColumn("{name}", F.expr("{made.text}"))')
                part.columns[name] = made.family
            elif kind == "selectExpr":
                made, name = scope.any_of(*ANY), self.name("x")
                part = part.then(f'.selectExpr("*", "{made.text} AS {name}")')
                part.columns[name] = made.family
            elif kind == "union" and part.text in ("rows", "others"):
                condition = scope.condition()
                part = part.then(
                    f'.where("{self.kept(part, condition)}").union({part.text}.where("NOT ({condition})"))'
                )
            elif kind == "explode":
                first, name = scope.any_of("integer", "string"), self.name("x")
                part = part.then(f'.withColumn("{name}", F.explode(F.expr("array({first.text}, NULL)")))')
                part.columns[name] = first.family
            elif kind == "table" and part.text.startswith("rows") and "table" not in part.text:
                part = self.with_table(part, scope.column("integer", "1"))
            elif kind == "rename" and scope.columns("string"):
                old, name = self.rng.choice(scope.columns("string")), self.name("T")
                part = part.then(f'.withColumnRenamed("{old}", "{name}")')
                part.columns[name] = part.columns.pop(old)
        return part

    def with_table(self, part: Part, column: str) -> Part:
        how = self.rng.choice(["left", "left", "inner"]) if self.shape not in ("join", "chain") else "left"
        part = part.then(f'.join(table, F.expr("{column} = n"), "{how}")')
        part.columns["title"] = "string"
        return part

    def kept(self, part: Part, condition: str) -> str:
        """The condition, which does not keep the watermark of a join from going on to the end."""
        numbers = [name for name in part.columns if name in (ONCE, f"r{ONCE}")]
        return (
            " OR ".join([condition, *(f"{name} < 0" for name in numbers)])
            if self.shape in ("join", "chain")
            else condition
        )

    def marked(self, part: Part, delay: str | None = None) -> Part:
        delay = delay or self.rng.choice(["0 seconds", "3 seconds", "10 seconds", "1 minute"])
        part = part.then(f'.withWatermark("{part.time}", "{delay}")')
        if self.maybe(0.15) and "table" not in part.text:
            # Not about the event time, nor what is made of it: such a filter Spark leaves behind the watermark.
            scope = self.scope(part, str(part.time), *(name for name in part.columns if name[0] == "x"))
            part = part.then(f'.where("{self.kept(part, scope.condition())}")')
        return part

    def above(self, part: Part, filters: bool = True) -> Part:
        """What Spark does with an operator's rows."""
        hidden = ("window", "key", "inexact", "unique")
        exact = Part("", {name: family for name, family in part.columns.items() if family not in hidden})
        scope = self.scope(exact)
        if filters and not self.instead[0] and exact.columns and self.maybe(0.4):
            condition = scope.condition()
            part = part.then(f'.where("{condition if self.by_epoch else self.kept(part, condition)}")')
        if exact.columns and self.maybe(0.3):
            made, name = scope.any_of(*set(exact.columns.values())), self.name("y")
            part = part.then(f'.withColumn("{name}", F.expr("{made.text}"))')
        if exact.columns and self.by_epoch and self.maybe(0.07) and "table" not in part.text:
            part = self.with_table(part, scope.column("integer", "1"))
        if self.maybe(0.3):
            shown = []
            for name, family in self.rng.sample(list(part.columns.items()), self.rng.randint(1, len(part.columns))):
                shown.append(f'"{name}.*"' if family == "window" and self.maybe(0.5) else f'"{name}"')
            if exact.columns and self.maybe(0.5):
                shown.append(f'F.expr("{scope.any_of(*set(exact.columns.values())).text}")')
            if self.maybe(0.1):
                shown.append(shown[0])  # a name that comes twice
            part = part.then(f".select({', '.join(shown)})")
        return part

    # --- aggregations

    def grouped(self, part: Part, window: str | None, keys_min: int = 0, keys_max: int = 3) -> Part:
        """``groupBy().agg()``. ``window``: the text that makes it."""
        scope = self.scope(part)
        groups, columns = ([], {}) if window is None else ([f'{window}.alias("win")'], {"win": "window"})
        for _ in range(min(keys_max, max(keys_min, self.rng.choice([0, 1, 1, 2, 3])))):
            key, name = scope.any_of(*(("double",) if self.maybe(0.01) else KEY_FAMILIES)), self.name("k")
            if part.time is not None and key.text.lower() == part.time:
                key = Typed(f"upper('{name}')", "string")
            groups.append(f'F.expr("{key.text}").alias("{name}")')
            # A condition on a key is about the rows below, and Spark puts it there; one on the event time it does not.
            of_time = part.time is None or any(
                word in key.text.lower() for word in (part.time, "x", "second(", "hour(")
            )
            columns[name] = "key" if of_time else key.family
        calls = []
        for _ in range(self.rng.randint(1, 5)):
            call, family = self.aggregate(scope, part)
            if call.endswith(")") and not call.startswith("size(") and self.maybe(0.2):
                call += f" FILTER (WHERE {scope.condition()})"
            name = self.name("a")
            columns[name] = family
            calls.append(f'F.expr("{call}").alias("{name}")')
        if self.rare.random() < 0.25:
            call, family = self.nested(part)
            if self.rare.random() < 0.3:
                call += f" FILTER (WHERE {Scope(self.rare, part.columns).condition()})"
            name = self.name("a")
            columns[name] = family
            calls.append(f'F.expr("{call}").alias("{name}")')
        return Part(f"{part.text}.groupBy({', '.join(groups)}).agg({', '.join(calls)})", columns)

    def nested(self, part: Part) -> tuple[str, str]:
        """Structs as values and as orders."""
        scope = Scope(self.rare, part.columns)
        one, other = scope.any_of(*ORDERED), scope.any_of(*ORDERED)
        unique = next((name for name in part.columns if name.endswith(UNIQUE) and len(name) < 3), None)
        pair = f"named_struct('p', {one.text}, 'q', {other.text})"
        made = [f"max({pair})", f"min({pair})", f"collect_set(array({one.text}))", f"max_by({pair}, {pair})"]
        if "withWatermark" in part.text:
            made.append(f"collect_list({pair})")
        if unique is not None:
            made += [f"max_by({pair}, {unique})", f"min_by({one.text}, {unique}, 2)"]
            made.append(f"max_by({other.text}, named_struct('p', {one.text}, 'q', {unique}))")
        return self.rare.choice(made), "inexact"

    def aggregate(self, scope: Scope, part: Part) -> tuple[str, str]:
        rng = self.rng
        number, ordered, any_ = scope.any_of(*NUMBERS), scope.any_of(*ORDERED), scope.any_of(*ANY)
        unique = next((name for name in part.columns if name.endswith(UNIQUE) and len(name) < 3), None)
        summed = number.family if number.family != "finite" else "inexact"
        doubles = scope.columns("double")
        made = [
            ("count(*)", "integer"),
            (f"count({any_.text})", "integer"),
            (f"count({any_.text}, {ordered.text})", "integer"),
            (f"count_if({scope.condition()})", "integer"),
            (f"sum({number.text})", summed),
            (f"avg({number.text})", "inexact"),
            (f"min({ordered.text})", ordered.family),
            (f"max({ordered.text})", ordered.family),
            (f"bool_and({scope.condition()})", "boolean"),
            (f"bool_or({scope.condition()})", "boolean"),
            (f"{rng.choice(['stddev', 'stddev_pop', 'var_samp', 'var_pop'])}({number.text})", "inexact"),
            (f"median({number.text})", "inexact"),
            (f"percentile({number.text}, {rng.choice(['0.0D', '0.3D', '1.0D'])})", "inexact"),
            (f"collect_set({ordered.text})", "inexact"),
            (f"sum({number.text}) + 2 * count(*)", "inexact"),
        ]
        if "withWatermark" in part.text:  # Tailrace gives these by event time
            made += [(f"collect_list({any_.text})", "inexact"), (f"size(collect_list({any_.text}))", "integer")]
        if unique is not None:
            made += [(f"{rng.choice(['min_by', 'max_by'])}({any_.text}, {unique})", "inexact")]
        if doubles:
            made += [(f"{rng.choice(['sum', 'avg', 'max', 'min'])}({rng.choice(doubles)})", "inexact")]
        if self.maybe(0.01):
            made = [(f"first({any_.text})", "inexact"), (f"approx_count_distinct({ordered.text})", "inexact")]
        return rng.choice(made)

    def window(self, time: str) -> str:
        unit = "hours" if self.days else "seconds"
        size = self.rng.choice([24, 48] if self.days else [5, 10, 30])
        slide = self.rng.choice([size, size, size // 5 * 3, max(1, size // 3), max(1, size // 5)])
        if self.days and slide % 24 == 0 and self.maybe(0.7):
            unit, size, slide = "days", size // 24, slide // 24
        bounds = f'"{size} {unit}", "{slide} {unit}"' if slide != size or self.maybe(0.2) else f'"{size} {unit}"'
        if bounds.count(",") and slide > 2 and self.maybe(0.4):
            bounds += f', "{self.rng.choice([-1, 1, 2])} {unit}"'
        return f'F.window("{time}", {bounds})'

    def aggregation(self, part: Part) -> Part:
        self.mode = self.rng.choice(["update", "update", "complete"])
        part = self.marked(part) if self.maybe(0.2) else part
        if self.maybe(0.1):
            self.by_epoch = False  # Spark gives its row in epochs without rows too
            return self.above(self.grouped(part, None, keys_max=0), filters=False)
        return self.above(self.grouped(part, None, keys_min=1))

    def windowed(self, part: Part) -> Part:
        self.mode = self.rng.choice(["append", "append", "update", "complete"])
        if self.mode == "append" or self.maybe(0.8):
            part = self.marked(part)
        return self.above(self.grouped(part, self.window(part.time or TIME)))

    def sessions(self, part: Part) -> Part:
        self.mode = self.rng.choice(["append", "append", "complete"])
        part = self.marked(part) if self.mode == "append" or self.maybe(0.5) else part
        gap = self.rng.choice(['"2 seconds"', '"5 seconds"', '"20 seconds"'])
        if self.maybe(0.3):
            condition = self.scope(part).condition()
            gap = f"F.expr(\"CASE WHEN {condition} THEN '3 seconds' ELSE '11 seconds' END\")"
        return self.above(self.grouped(part, f'F.session_window("{part.time}", {gap})', keys_min=1))

    # --- different rows

    def different(self, part: Part) -> Part:
        self.mode = self.rng.choice(["append", "update"])
        scope, time = self.scope(part), part.time or TIME
        keyable = [name for name in scope.columns(*KEY_FAMILIES, "unique") if name != time]
        kind = self.rng.choice(["dropDuplicates", "dropDuplicates", "within", "distinct"])
        if kind == "within":
            once = next(name for name in keyable if name.endswith(ONCE) and len(name) < 3)
            part = self.marked(part.then(f'.where("{time} IS NOT NULL")'))
            if "explode" in part.text:  # a row comes several times
                return self.above(self._only(part.then(f'.dropDuplicatesWithinWatermark(["{once}"])'), [once]))
            return self.above(part.then(f'.dropDuplicatesWithinWatermark(["{once}"])'))
        keys = self.rng.sample(keyable, min(len(keyable), self.rng.randint(1, 3)))
        if self.maybe(0.4):
            part = self.marked(part)
            if self.maybe(0.6):
                keys.append(time)
        if kind == "distinct":
            names = ", ".join(f'"{key}"' for key in keys)
            chosen = Part(f"{part.text}.select({names}).distinct()", {key: part.columns[key] for key in keys})
            return self.above(chosen)
        shown = ", ".join(f'"{key}"' for key in keys)
        return self.above(self._only(part.then(f".dropDuplicates([{shown}])"), keys))

    @staticmethod
    def _only(part: Part, keys: Sequence[str]) -> Part:
        names = ", ".join(f'"{key}"' for key in keys)
        return Part(f"{part.text}.select({names})", {key: part.columns[key] for key in keys})

    # --- joins

    def joined(self, left: Part, right: Part) -> Part:
        how = self.rng.choice(["inner", "inner", "left", "right", "full", "left_semi"])
        if how == "left_semi" and "explode" in left.text:
            how = "left"  # a row comes several times, which the query that Spark runs instead would not tell apart
        mine, theirs = self.scope(left), self.scope(right)
        equal = []
        expressions = how == "inner" and self.maybe(0.4)  # in the last rows they may be null
        known = [
            Part("", {n: f for n, f in part.columns.items() if expressions or not n.startswith(("x", "title"))})
            for part in (left, right)
        ]
        sides = [self.scope(part) for part in known]
        families = ("integer", "string", "boolean", "date", "decimal")
        shared = [family for family in families if all(side.columns(family) for side in sides)]
        for _ in range(self.rng.choice([1, 1, 2])):
            family = self.rng.choice(shared)
            pair = [s.of(family).text if expressions else s.choose(*s.columns(family)) for s in sides]
            equal.append(f"({pair[0]}) = ({pair[1]})" if family == "boolean" else f"{pair[0]} = {pair[1]}")
        timed = how != "inner" or self.maybe(0.7)
        conditions = list(equal)
        if timed:
            conditions.append(self._near(str(left.time), str(right.time)))
        if self.maybe(0.3):
            side = self.rng.choice([mine, theirs])
            conditions.append(side.condition())
        elif how == "inner" and mine.columns("integer") and theirs.columns("integer") and self.maybe(0.3):
            conditions.append(f"{mine.choose(*mine.columns('integer'))} < {theirs.choose(*theirs.columns('integer'))}")
        if how != "inner":
            self.by_epoch, self.closing = False, 2
            right = right.then(f'.where("{right.time} IS NOT NULL")')
            for each in equal:
                right = right.then(f'.where("{self.kept(right, each.split(" = ")[1] + " IS NOT NULL")}")')
            if self.maybe(0.7):
                time = f"coalesce({left.time}, TIMESTAMP'2026-03-28 20:00:00Z')"
                left = left.then(f'.withColumn("{left.time}", F.expr("{time}"))')
        if timed:
            left, right = self.marked(left), self.marked(right)
        text = f'{left.text}.join({right.text}, F.expr("{" AND ".join(conditions)}"), "{how}")'
        if how != "left_semi":
            return Part(text, {**left.columns, **right.columns}, left.time)
        # Spark loses rows whose match comes in the same batch and is by then too old to be kept.
        dropped = ", ".join(f'"{name}"' for name in right.columns)
        self.instead = text, text.replace('"left_semi")', f'"inner").drop({dropped}).dropDuplicates(["{UNIQUE}"])')
        return Part(text, {**left.columns}, left.time)

    def _near(self, left: str, right: str) -> str:
        before, after = self.rng.choice([0, 2, 10]), self.rng.choice([0, 3, 15])
        forms = [
            f"{right} BETWEEN {left} - INTERVAL {before} SECONDS AND {left} + INTERVAL {after} SECONDS",
            f"{right} >= {left} - INTERVAL {before} SECONDS AND {right} < {left} + INTERVAL {after + 1} SECONDS",
            f"{left} > {right} - INTERVAL {after + 1} SECONDS AND {left} <= {right} + INTERVAL {before} SECONDS",
        ]
        return self.rng.choice(forms)

    # --- chains

    def chain(self, part: Part, other: Part) -> Part:
        self.mode, self.closing = "append", 2
        kind = self.rng.choice(
            ["windows", "windows", "dedup", "dedups", "joined", "then dedup", "same", "union", "pairs"]
        )
        if kind == "windows":
            first = self.grouped(self.marked(part), self.window(part.time or TIME))
            again = first.then('.withColumn("at", F.window_time("win"))')
            families = {"integer", "boolean", "string", "date", "decimal"}
            again.columns = {"at": "timestamp", **{n: f for n, f in again.columns.items() if f in families}}
            again.time = "at"
            return self.above(self.grouped(again, self.window("at")))
        if kind in ("union", "pairs"):
            return self.two_operators(kind, part, other)
        if kind == "same":
            first = self.grouped(self.marked(part), self.window(part.time or TIME))
            again = Part(first.text, {n: f for n, f in first.columns.items() if f in ("integer", "string", "decimal")})
            return self.above(self.grouped(again, 'F.col("win")'))
        if kind == "then dedup":
            first = self.grouped(self.marked(part), self.window(part.time or TIME))
            keys = [name for name, family in first.columns.items() if family in ("integer", "string", "boolean")]
            again = first.then('.withColumn("at", F.window_time("win"))')
            again.columns["at"] = "timestamp"
            return self.above(self._only(again.then(f".dropDuplicates({['at', *keys]})"), ["at", *keys]))
        if kind == "joined":
            return self.above(self.grouped(self.joined(part, other), self.window(part.time or TIME)))
        keys = [str(part.time), *self.rng.sample(self.scope(part).columns("integer", "string", "boolean"), 2)]
        first = self._only(self.marked(part).then(f".dropDuplicates({keys})"), keys)
        first.time = part.time
        if kind == "dedup":
            return self.above(self.grouped(first, self.window(part.time or TIME)))
        return self.above(self._only(first.then(f".dropDuplicates({keys[:2]})"), keys[:2]))

    def two_operators(self, kind: str, part: Part, other: Part) -> Part:
        """Counts of two streams by windows, beside each other or joined."""
        window = '"10 seconds", "5 seconds"' if self.maybe(0.5) else '"10 seconds"'

        def counts(one: Part, prefix: str) -> str:
            key = self.rng.choice(self.scope(one).columns("integer", "string"))
            key = f"CAST({key} AS STRING)"
            groups = f'F.window("{one.time}", {window}).alias("{prefix}win"), F.expr("{key}").alias("{prefix}k")'
            return f'{self.marked(one).text}.groupBy({groups}).agg(F.count("*").alias("{prefix}n"))'

        left, right = counts(part, ""), counts(other, "r" if kind == "pairs" else "")
        if kind == "union":
            return self.above(Part(f"{left}.union({right})", {"win": "window", "k": "key", "n": "integer"}))
        columns = {"win": "window", "k": "key", "n": "integer", "rwin": "window", "rn": "integer"}
        return self.above(Part(f'{left}.join({right}, F.expr("win = rwin AND k = rk"))', columns))


def draw_plan(seed: int) -> Plan:
    """One number is one plan with its rows."""
    rng = Random(seed)
    drawing = Drawing(rng, Random(f"{seed} rare"))
    names = [*(rng.choice(list(KINDS)) for _ in range(rng.randint(2, 5))), "text", "int"]
    columns = {f"{kind}{number}": kind for number, kind in enumerate(names)}
    shape = drawing.shape
    two = shape in ("join", "chain")
    part = drawing.below(drawing.source("rows", columns, ""))
    other = drawing.below(drawing.source("others", columns, "r")) if two else part
    if shape == "join":
        made = drawing.above(drawing.joined(part, other))
    elif shape == "chain":
        made = drawing.chain(part, other)
    else:
        draw = {
            "aggregation": drawing.aggregation,
            "window": drawing.windowed,
            "session": drawing.sessions,
            "deduplication": drawing.different,
        }
        made = draw[shape](part)
    step = timedelta(hours=11) if drawing.days else timedelta(seconds=rng.choice([3, 8, 8, 40]))
    timing = Timing(step, rng.choice([step, step * 2, step / 4]), rng.choice([0.0, 0.1, 0.3]), rng.choice([0.0, 0.1]))
    rule = "spark"
    if drawing.mode == "append" and shape in ("window", "session"):
        drawing.closing = rng.choice([0, 1, 2])
        if "10 seconds" in made.text.split("withWatermark")[1][:20] and drawing.maybe(0.6):
            # What is late differs between the rules, and with the last empty epoch of Spark's all windows are closed.
            rule, drawing.by_epoch = "tailrace", False
            timing = Timing(step, min(step / 4, timedelta(seconds=2)), 0.0, timing.nulls)
            drawing.confs["spark.sql.streaming.noDataMicroBatches.enabled"] = "true"
    sizes = [rng.choice([0, 1, 8, 8, 25]) for _ in range(rng.choice([2, 3, 3]))]
    sizes[0] = max(sizes[0], 8)
    scripts = [script(rng, columns, timing, sizes, drawing.closing)]
    if "others" in made.text:
        scripts.append(script(rng, columns, timing, sizes, drawing.closing, prefix="r"))
    sparks_text = made.text.replace(*drawing.instead) if drawing.instead[0] else made.text
    return Plan(seed, made.text, drawing.mode, tuple(scripts), drawing.confs, drawing.by_epoch, rule, sparks_text)
