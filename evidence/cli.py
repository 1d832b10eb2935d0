"""The command: ``python -m evidence [--only NAME …] [--issue N] [--fresh] [--list] [--page]``."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from evidence.page import pages, render
from evidence.registry import CHECKS, Check, load_checks
from evidence.rows import Row, load_rows, problems
from evidence.runner import current, run, say
from evidence.store import Store, write_atomically

ROOT = Path(__file__).resolve().parent.parent
PASSED, FAILED, INCONSISTENT, INTERRUPTED = 0, 1, 2, 130


def main(
    arguments: Sequence[str] | None = None,
    *,
    root: Path = ROOT,
    rows: Sequence[Row] | None = None,
    checks: Mapping[str, Check] | None = None,
    isolate: bool = True,
    console: Console | None = None,
) -> int:
    """Measure what is asked for; 0 if all of it passes, 1 if not, 2 if rows and checks disagree, 130 if interrupted."""
    options = _parser().parse_args(arguments)
    console, store = console or Console(), Store(root)
    rows = load_rows() if rows is None else rows
    if options.page:
        return _write_pages(rows, store, console)
    wrong: list[str] = []
    if checks is None:
        wrong, checks = load_checks(), CHECKS
    selected, unknown = _select(rows, checks, options.only, options.issue)
    wrong += problems(rows, checks)
    for line in wrong:
        say(console, f"inconsistent: {line}")
    for name in unknown:
        say(console, f"--only: no check {name!r} is both registered and listed by a row")
    if options.list:
        console.print(_listing(selected, store))
        return INCONSISTENT if wrong or unknown else PASSED
    # --only is for whoever is writing a check: the gaps of others are shown, but do not stop it
    if unknown or (wrong and not options.only):
        say(console, "nothing was run: every row needs its checks, and every check its row (evidence/rows.toml)")
        return INCONSISTENT
    try:
        good = run(selected, store, console, fresh=options.fresh, isolate=isolate)
    except KeyboardInterrupt:
        _write_pages(rows, store, console)
        say(console, "interrupted; finished checks are stored, the same command continues")
        return INTERRUPTED
    return _write_pages(rows, store, console) or (PASSED if good else FAILED)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m evidence", description="Measure every claim of the project.")
    parser.add_argument("--only", nargs="+", metavar="NAME", default=[], help="run these checks and no others")
    parser.add_argument("--issue", type=int, metavar="N", help="run the checks of this issue's rows only")
    parser.add_argument("--fresh", action="store_true", help="run again even where the stored result is current")
    parser.add_argument("--list", action="store_true", help="show rows, checks and the state of their results")
    parser.add_argument("--page", action="store_true", help="only rebuild the texts from the stored results")
    return parser


def _select(
    rows: Sequence[Row], checks: Mapping[str, Check], only: Sequence[str], issue: int | None
) -> tuple[list[tuple[Row, Check]], list[str]]:
    """The pairs to run in the order of the rows, and the asked-for names that are not among them."""
    pairs = [
        (row, checks[name])
        for row in rows
        for name in row.checks
        if name in checks and (not only or name in only) and issue in (None, row.issue)
    ]
    return pairs, [name for name in only if name not in {check.name for _, check in pairs}]


def _listing(pairs: Sequence[tuple[Row, Check]], store: Store) -> Table:
    table = Table("check", "row", "issue", "cost", "state", "measured")
    for row, check in pairs:
        stored = store.read(check.name)
        state = "missing" if stored is None else "pass" if stored["passed"] else "FAIL"
        stale = " (stale)" if stored and not current(store, row, check.name) else ""
        table.add_row(check.name, row.row, str(row.issue), check.cost, state + stale, render(stored))
    return table


def _write_pages(rows: Sequence[Row], store: Store, console: Console) -> int:
    try:
        made = pages(rows, store)
    except LookupError as fault:
        say(console, f"a text asks for a number that does not exist: {fault.args[0]}")
        return INCONSISTENT
    for path, text in made.items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            write_atomically(path, text)
            say(console, f"wrote {path.relative_to(store.root)}")
    return PASSED
