"""A program with its rows, and how what it gives is to be compared."""

from __future__ import annotations

from dataclasses import dataclass

from support.plans.rows import Script


@dataclass(frozen=True)
class Plan:
    """``by_epoch``: whether both engines give a row in the same epoch, and not only in the end. ``rule``: Tailrace's
    for the watermark. ``sparks_text``: what Spark runs for it, where it would not give these rows itself.
    """

    seed: int
    text: str
    mode: str
    scripts: tuple[Script, ...]
    confs: dict[str, str]
    by_epoch: bool
    rule: str
    sparks_text: str

    @property
    def keyless(self) -> bool:
        """Whether all rows are one group, of which Spark also tells in epochs without rows, and before the first."""
        return ".groupBy()." in self.text

    def __repr__(self) -> str:
        columns = "; ".join(", ".join(f"{f.name} {f.type}" for f in each.schema) for each in self.scripts)
        return (
            f"Plan {self.seed}, {self.mode}, {self.rule}'s watermark, {self.confs}\n  columns: {columns}\n  {self.text}"
        )

    def _repr_pretty_(self, printer: object, cycle: bool) -> None:
        printer.text(repr(self))  # type: ignore[attr-defined]
