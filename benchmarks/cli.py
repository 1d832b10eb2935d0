"""The command: ``python -m benchmarks [--quick] [--models NAME …] [--repeats N] [--problems N] [--json PATH] …``."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from benchmarks.cases import MODELS, Case, every
from benchmarks.machine import cpu, load, prepare
from benchmarks.measure import Comparison, DisagreementError, Spread, compare
from benchmarks.memory import Memory, measured

HEAD = """\
Our solver against one-image-at-a-time loops on {cpu}, one thread, malloc {malloc}.
Engines take turns in this process; {repeats} repeats, the median with [least, greatest]. All times are per image and
iteration, by processor time unless it says wall. Setting up is left out: iterations are timed from the clock at the end
of each (ours from its progress callback), the first of every run not counted.
  (a) the peers' loop: gradient with create_graph, loss + total variation, backward(), sign, Adam, box
  (b) the same loop differentiating only with respect to the image
Percent of peak: products and convolutions as dispatched, against a large single-precision GEMM of this run.
"""
COLUMNS = (
    "case",
    "N",
    "times (a)",
    "wall",
    "times (b)",
    "ours, ms",
    "(a), ms",
    "MFLOP",
    "% of peak",
    "peak memory, MB",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; 0, or 1 if the engines do not agree on what they compute."""
    options = _parser().parse_args(arguments)
    repeats = 1 if options.quick else options.repeats
    malloc = prepare(options.malloc)
    print(HEAD.format(cpu=cpu(), malloc=malloc, repeats=repeats))
    print(_line(COLUMNS))
    rows = []
    for case in every(tuple(options.models), options.problems):
        try:
            made = compare(case, repeats, steps=1 if options.quick else None)
        except DisagreementError as fault:
            print(fault)
            return 1
        memory = {} if options.quick else {name: measured(case, name, options.malloc) for name in ("ours", "peer")}
        print(_line(_cells(made, memory)), flush=True)
        rows.append({**made.row(), "memory": {name: vars(found) for name, found in memory.items()}})
    print(f"\nload average {load():.1f}; gaps between the engines' objectives are at most {_gap(rows):.0e} (relative).")
    if options.json:
        facts = {"cpu": cpu(), "malloc": malloc, "threads": 1, "repeats": repeats}
        options.json.write_text(json.dumps({**facts, "cases": rows}, indent=2) + "\n", encoding="utf-8")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Our solver against two loops.")
    parser.add_argument("--quick", action="store_true", help="one short repeat, no memory: does it run, do they agree")
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS), metavar="NAME")
    parser.add_argument("--repeats", type=int, default=5, metavar="N")
    parser.add_argument(
        "--problems", type=int, metavar="N", help="as many problems at once, not each model's own number"
    )
    parser.add_argument("--malloc", choices=["tuned", "default"], default="tuned", help="glibc's settings, for all")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write all numbers there, too")
    return parser


def _cells(made: Comparison, memory: dict[str, Memory]) -> tuple[str, ...]:
    case: Case = made.case
    return (
        case.name,
        str(case.problems),
        _spread(made.ratio("peer")),
        f"{made.ratio('peer', 'wall').median:.3g}",
        _spread(made.ratio("peer_image_only")),
        f"{made.milliseconds('ours').median:.3g}",
        f"{made.milliseconds('peer').median:.3g}",
        f"{made.flops['ours'] / 1e6:.3g} ({made.flops['peer'] / 1e6:.3g})",
        f"{made.percent_of_peak('ours'):.0f} ({made.percent_of_peak('peer'):.0f})",
        f"{memory['ours'].peak:.0f} ({memory['peer'].peak:.0f} for one)" if memory else "",
    )


def _spread(found: Spread) -> str:
    return f"{found.median:.3g} [{found.low:.3g}, {found.high:.3g}]"


def _line(cells: Sequence[str]) -> str:
    widths = (22, 4, 18, 6, 18, 9, 8, 16, 10, 0)
    return " ".join(f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True)).rstrip()


def _gap(rows: list[dict[str, dict[str, float]]]) -> float:
    return max(max(row["gap"].values()) for row in rows)
