"""The chart of measured results in README: one SVG from run records, so that no number in it is written by hand.

    python scripts/readme_chart.py [RECORD or FOLDER ...] [--out docs/results.svg]

It takes the newest record of each of the benches ``rmw``, ``nexmark``, ``overhead`` and ``start`` that there is. A bar
is how many times as fast as Spark's RocksDB store Tailrace is in the same run. The machine and the versions are those
of the records.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from tailrace.errors import TailraceError
from tailrace.lab.records.record import Record, folder, read_all

WIDTH, LABEL, BAR, GAP, TOP = 880, 330, 20, 8, 64
INK, FAINT, OURS, PEER = "#1d2f40", "#5b7083", "#0d9488", "#e8772e"


@dataclass(frozen=True)
class Bar:
    group: str
    label: str
    times_as_fast: float


def bars(newest: dict[str, Record]) -> Iterator[Bar]:
    """In the order in which they are drawn."""
    if "rmw" in newest:
        record = newest["rmw"]
        ratio = record.summary["ratios"].get("speedup_rocksdb")
        if ratio is not None:
            yield Bar("Throughput", f"aggregates of {record.parameters['keys']:,} keys", ratio)
    if "nexmark" in newest:
        for query, ratio in newest["nexmark"].summary["ratios"].items():
            yield Bar("Throughput", f"NEXMark {query}", ratio)
    for name, ratio_name, label in (
        ("overhead", "p50_ratio", "a micro-batch of {rows:,} rows (median)"),
        ("start", "start_ratio", "from start() to the first row"),
        ("start", "restart_ratio", "the same, from a checkpoint"),
    ):
        ratio = newest[name].summary["ratios"].get(ratio_name) if name in newest else None
        if ratio:
            yield Bar("Time", label.format(rows=newest[name].parameters["rows"]), round(1 / ratio, 2))


def svg(drawn: Sequence[Bar], records: Sequence[Record]) -> str:
    longest = max(1.0, *(bar.times_as_fast for bar in drawn))
    scale = (WIDTH - LABEL - 90) / longest
    lines: list[str] = []
    y, group = TOP, ""
    for bar in drawn:
        if bar.group != group:
            y += 14
            lines.append(f'<text x="20" y="{y}" font-weight="600" fill="{INK}">{bar.group}</text>')
            y, group = y + 12, bar.group
        middle = y + BAR - 5
        width = max(1.0, bar.times_as_fast * scale)
        colour = OURS if bar.times_as_fast >= 1 else PEER
        lines.append(f'<text x="{LABEL - 10}" y="{middle}" text-anchor="end" fill="{INK}">{escape(bar.label)}</text>')
        lines.append(f'<rect x="{LABEL}" y="{y}" width="{width:.1f}" height="{BAR}" rx="3" fill="{colour}"/>')
        text = f"{bar.times_as_fast:.3g} ×"
        lines.append(f'<text x="{LABEL + width + 8:.1f}" y="{middle}" font-weight="600" fill="{INK}">{text}</text>')
        y += BAR + GAP
    one = LABEL + scale
    lines.append(f'<path d="M{one:.1f} {TOP - 8}V{y}" stroke="{FAINT}" stroke-dasharray="4 4"/>')
    lines.append(
        f'<text x="{one:.1f}" y="{TOP - 14}" text-anchor="middle" fill="{FAINT}">Spark\'s RocksDB store</text>'
    )
    newest = max(records, key=lambda record: record.started_s)
    machine, versions = newest.machine, newest.versions
    days = sorted({record.started[:10] for record in records})
    about = (
        f"{machine['cores']} cores, {machine['memory_gib']} GiB; pyspark {versions['pyspark']}, "
        f"Python {versions['python']}; measured {days[0]}{f' to {days[-1]}' if len(days) > 1 else ''}"
    )
    lines.append(f'<text x="20" y="{y + 26}" font-size="12" fill="{FAINT}">{escape(about)}</text>')
    spoken = "; ".join(f"{bar.label}: {bar.times_as_fast:.3g} times as fast" for bar in drawn)
    height = y + 44
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="system-ui, sans-serif" '
        f'font-size="13" role="img" aria-label="{escape(spoken, quote=True)}">\n'
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>\n'
        f'<text x="20" y="28" font-size="16" font-weight="600" fill="{INK}">'
        "Tailrace: how many times as fast as Spark's RocksDB state store, in the same run</text>\n"
        + "\n".join(lines)
        + "\n</svg>\n"
    )


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("paths", nargs="*", type=Path, help="records and folders of them (else where benches put them)")
    parser.add_argument("--out", type=Path, default=Path("docs/results.svg"))
    given = parser.parse_args(arguments)
    try:
        records, problems = read_all(given.paths or [folder()])
    except TailraceError as error:
        print(error, file=sys.stderr)
        return 1
    for problem in problems:
        print(f"left out: {problem}", file=sys.stderr)
    newest = {record.name: record for record in records if record.kind == "bench"}  # they come oldest first
    drawn = list(bars(newest))
    if not drawn:
        print("no record of rmw, nexmark, overhead or start compares with Spark's RocksDB store", file=sys.stderr)
        return 1
    used = [newest[name] for name in ("rmw", "nexmark", "overhead", "start") if name in newest]
    given.out.write_text(svg(drawn, used), encoding="utf-8")
    print(f"{given.out}: {len(drawn)} bars from {len(used)} records")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
