"""The command: ``python -m evidence [--only NAME …] [--topic T] [--changed] [--fresh] [--list | --stale | --page]``."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from evidence.page import OLD, WORDS, pages, render
from evidence.registry import CHECKS, Check, load_checks
from evidence.rows import TOPICS, Row, load_rows, problems
from evidence.runner import run, say
from evidence.state import State, seconds, states
from evidence.store import Store, write_atomically

ROOT = Path(__file__).resolve().parent.parent
PASSED, FAILED, INCONSISTENT, INTERRUPTED = 0, 1, 2, 130
Pairs = list[tuple[Row, Check]]


def main(
    arguments: Sequence[str] | None = None,
    *,
    root: Path = ROOT,
    rows: Sequence[Row] | None = None,
    checks: Mapping[str, Check] | None = None,
    isolate: bool = True,
    console: Console | None = None,
) -> int:
    """Measure what is asked for; 0: no bar is missed, 1: one is, 2: rows and checks disagree, 130: interrupted."""
    options = _parser().parse_args(arguments)
    console, store = console or Console(), Store(root)
    rows = load_rows() if rows is None else rows
    wrong: list[str] = []
    if checks is None:
        wrong, checks = load_checks(), CHECKS
    if options.page:
        return _write_pages(rows, checks, store, console)
    selected, unknown = _select(rows, checks, options.only, options.topic)
    wrong += problems(rows, checks)
    for line in wrong:
        say(console, f"inconsistent: {line}")
    for name in unknown:
        say(console, f"--only: no check {name!r} is both registered and listed by a row")
    if options.list or options.stale:
        _show(selected, states(rows, checks, store), console, only_stale=options.stale)
        return INCONSISTENT if wrong or unknown else PASSED
    # --only is for whoever is writing a check: the gaps of others are shown, but do not stop it
    if unknown or (wrong and not options.only):
        say(console, "nothing was run: every row needs its checks, and every check its row (evidence/rows.toml)")
        return INCONSISTENT
    if options.changed:
        selected = _stale(selected, states(rows, checks, store))
    try:
        good = run(selected, store, console, fresh=options.fresh, isolate=isolate)
    except KeyboardInterrupt:
        _write_pages(rows, checks, store, console)
        say(console, "interrupted; finished checks are stored, the same command continues")
        return INTERRUPTED
    return _write_pages(rows, checks, store, console) or (PASSED if good else FAILED)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m evidence", description="Measure every claim of the project.")
    parser.add_argument("--only", nargs="+", metavar="NAME", default=[], help="run these checks and no others")
    parser.add_argument("--topic", choices=list(TOPICS), help="run the checks of this topic only")
    parser.add_argument(
        "--changed", action="store_true", help="run only what is older than the code or not measured, quickest first"
    )
    parser.add_argument("--fresh", action="store_true", help="run again even where the stored result is current")
    parser.add_argument("--list", action="store_true", help="show rows, checks and the state of their results")
    parser.add_argument("--stale", action="store_true", help="show what --changed would run, and how long it takes")
    parser.add_argument("--page", action="store_true", help="only rebuild the texts from the stored results")
    return parser


def _select(
    rows: Sequence[Row], checks: Mapping[str, Check], only: Sequence[str], topic: str | None
) -> tuple[Pairs, list[str]]:
    """The pairs to run in the order of the rows, and the asked-for names that are not among them."""
    pairs = [
        (row, checks[name])
        for row in rows
        for name in row.checks
        if name in checks and (not only or name in only) and topic in (None, row.topic)
    ]
    return pairs, [name for name in only if name not in {check.name for _, check in pairs}]


def _stale(pairs: Pairs, known: Mapping[str, State]) -> Pairs:
    """The pairs without a result of the code as it is, the quickest first."""
    waiting = [(row, check) for row, check in pairs if not known[check.name].current]
    return sorted(waiting, key=lambda pair: seconds(pair[1], known[pair[1].name].result))


def _show(pairs: Pairs, known: Mapping[str, State], console: Console, *, only_stale: bool) -> None:
    """A table of checks, of old ones one line each; and the time that those to be measured take together."""
    stale = _stale(pairs, known)
    table = Table("takes", Column("check", no_wrap=True), "result", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for row, check in stale if only_stale else pairs:
        now = known[check.name]
        name, words = check.name, WORDS[now.word] + (f", {OLD}" if now.old else "")
        if not only_stale:
            name += f"\n{row.topic}: {row.row}"
            words += f" (of {now.result['commit']})" if now.old and now.result else ""
            words += "" if now.numbers is None else "\n" + render(now, judged=True)
        table.add_row(_minutes(seconds(check, now.result)), Text(name), Text(words))
    console.print(table)
    total = sum(seconds(check, known[check.name].result) for _, check in stale)
    say(console, f"{len(stale)} of {len(pairs)} have no result of the code as it is; they take {_minutes(total)}")


def _minutes(spent: float) -> str:
    return f"{spent:.0f} s" if spent < 100 else f"{spent / 60:.0f} min"


def _write_pages(rows: Sequence[Row], checks: Mapping[str, Check], store: Store, console: Console) -> int:
    try:
        generated = pages(rows, checks, store)
    except LookupError as fault:
        say(console, f"a text asks for a number that does not exist: {fault.args[0]}")
        return INCONSISTENT
    for path, text in generated.items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            write_atomically(path, text)
            say(console, f"wrote {path.relative_to(store.root)}")
    return PASSED
