"""The program as a whole: other processors, tables, what is parsed how often, nothing lost, a new user."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from evidence import Context, Measurement, Number, at_least, at_most, below, check, exactly
from leakgauge.audit import Result, audit
from leakgauge.expr import reading
from leakgauge.report import report
from leakgauge.study import Study
from leakgauge.study.roles import digest
from leakgauge.task import Task

ROOT = Path(__file__).resolve().parents[2]


# --- processors


@check("processors", rows="processors", cost="long", uses=("tests/", "src/leakgauge/"))
def processors(context: Context) -> Measurement:
    """`make test-processors`: the numeric tests as other processors compute."""
    return _processors(context, ["-n", "2", "--dist", "worksteal"])


@check("processors_all", rows="processors", cost="long", uses=("tests/", "src/leakgauge/", "evidence/", "docs/"))
def processors_all(context: Context) -> Measurement:
    """The whole fast suite under every setting."""
    return _processors(context, ["--all", "-n", "2", "--dist", "worksteal"])


def _processors(context: Context, arguments: list[str]) -> Measurement:
    """One run of the script per setting, so that an interrupted check goes on with the next."""
    from tests.processors import settings

    table = []
    for setting in settings():
        path = context.scratch / f"{setting.name}.txt"
        if not path.exists():
            command = [sys.executable, "-m", "tests.processors", "--only", setting.name, *arguments]
            path.write_text(subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout)
        line = path.read_text().partition("\n")[0]
        context.say(line)
        word = "left out" if "left out" in line else "passed" if ": passed (" in line else "failed"
        table.append({"setting": setting.name, "outcome": word, "said": re.sub(r"; \d+ s\)", ")", line)})
    outcomes = Counter(row["outcome"] for row in table)
    return Measurement(
        {
            "settings that passed": Number(outcomes["passed"], at_least(1)),
            "settings that failed": Number(outcomes["failed"], exactly(0)),
            "settings that this machine cannot play": Number(outcomes["left out"]),
        },
        detail="SSE4.2, AVX2, AVX-512 (where the machine has it), and MKL's compatible code",
        table=table,
    )


# --- tables

TABLE = """
[task]
model = "evidence.planted:table_network"
data = "breast_cancer"
records = 20
[defenses]
none = "identity()"
drowned = "clip(norm=1.0) | gaussian(std=3.0)"
[adversaries]
generic = "inverting_gradients(steps=100)"
adaptive = "adaptive(steps=100)"
"""


@check("table_audit", rows="table-audit", cost="minutes", uses=("evidence.planted", "leakgauge.report"))
def table_audit(context: Context) -> Measurement:
    """Breast cancer (30 features), a 100-50-2 ReLU network, batch 1, from a spec to the report in Chromium."""
    return _table_audit(context, TABLE)


def _table_audit(context: Context, spec: str) -> Measurement:
    from playwright.sync_api import sync_playwright

    from evidence.browser import ARGUMENTS, CHROMIUM, Watched

    run = context.scratch / "run"
    (context.scratch / "spec.toml").write_text(spec)
    result = audit(Study.load(context.scratch / "spec.toml"), run)
    (page,) = report(run, formats=["html"])
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=str(CHROMIUM), args=ARGUMENTS)
        watched = [Watched(browser, page, color_scheme=scheme) for scheme in ("light", "dark")]
        tables = watched[0].page.locator("table.features").count()
        browser.close()
    bare, drowned = result.defenses["none"], result.defenses["drowned"]
    ceiling = None if drowned.bound is None else drowned.bound.ceiling
    right = min(column.right for column in bare.columns)
    return Measurement(
        {
            "without a defense, called exact": Number(int(bare.verdict == "exact"), exactly(1)),
            "without a defense, least share of records in which a feature is right": Number(right, exactly(1)),
            "clipped and drowned, called no evidence": Number(int(drowned.verdict == "no evidence"), exactly(1)),
            "its ceiling": Number("none" if ceiling is None else ceiling, below(1)),
            "tables of features in the report": Number(tables, at_least(1)),
            "messages on the console": Number(sum(len(one.said) for one in watched), exactly(0)),
        },
        detail=f"{len(bare.columns)} features; {bare.attack.why}; {drowned.attack.why}",
        table=[
            {"feature": column.name, "right": column.right, "null": column.null, "drowned": other.right}
            for column, other in zip(bare.columns, drowned.columns, strict=True)
        ],
    )


# --- text is parsed once


@contextmanager
def _counted() -> Iterator[tuple[Counter[str], Counter[tuple[str, str]]]]:
    """How often each text was parsed, and each task (defense, weights) built, in this process."""
    texts, tasks = Counter[str](), Counter[tuple[str, str]]()
    read, prepare = reading._tree, Task.__post_init__

    def reads(text: str) -> Any:
        texts[text] += 1
        return read(text)

    def prepares(task: Task) -> None:
        prepare(task)
        tasks[repr(task.protection), digest({**task.params, **task.buffers})] += 1

    reading._tree, Task.__post_init__ = reads, prepares  # type: ignore[method-assign, assignment]
    try:
        yield texts, tasks
    finally:
        reading._tree, Task.__post_init__ = read, prepare  # type: ignore[method-assign]


@check("parse_once", rows="parse-once", cost="minutes", uses=("examples/demo.toml",))
def parse_once(context: Context) -> Measurement:
    """The demo in one process, with every parse of an expression and every new task counted."""
    return _parse_once((ROOT / "examples" / "demo.toml").read_text())


def _parse_once(spec: str) -> Measurement:
    with tempfile.TemporaryDirectory() as folder, _counted() as (texts, tasks):
        path = Path(folder) / "demo.toml"
        path.write_text(spec)
        study = Study.load(path)
        before = sum(texts.values())
        audit(study, Path(folder) / "run")
        after = sum(texts.values()) - before
    return Measurement(
        {
            "expressions": Number(len(texts), at_least(1)),
            "most times that one was parsed": Number(max(texts.values()), exactly(1)),
            "parsed after the study was made": Number(after, exactly(0)),
            "tasks, by defense and weights": Number(len(tasks), at_least(len(study.defenses))),
            "most times that one was built": Number(max(tasks.values()), exactly(1)),
        },
        detail="one process, the demo's own spec",
        table=[{"expression": text, "parsed": count} for text, count in sorted(texts.items())],
    )


# --- nothing lost

BEFORE = "evidence/before"


@check("nothing_lost", rows="nothing-lost", cost="minutes", uses=(BEFORE,))
def nothing_lost(context: Context) -> Measurement:
    """The demo as it was before nuisances, studies and results became values: verdicts and scores, then and now."""
    out = context.scratch / "run"
    return _compared(audit(Study.load(ROOT / BEFORE / "demo.toml"), out))


def _compared(result: Result) -> Measurement:
    stored = json.loads((ROOT / BEFORE / "demo.json").read_text())["defenses"]
    table, words, gaps, ceilings = [], 0, [], 0
    for name, old in stored.items():
        new = result.defenses[name]
        words += new.verdict != old["verdict"]
        ceilings += (new.bound.ceiling if new.bound else None) != old["ceiling"]
        for adversary in new.adversaries:
            then, now = (old["scores"][adversary.name]["ssim"], adversary.scores["real"]["ssim"])
            gaps.append(sum(now) / len(now) - sum(then) / len(then))
            table.append(
                {
                    "defense": name,
                    "adversary": adversary.name,
                    "verdict then": old["verdict"],
                    "verdict now": new.verdict,
                    "mean SSIM then": round(sum(then) / len(then), 4),
                    "mean SSIM now": round(sum(now) / len(now), 4),
                }
            )
    return Measurement(
        {
            "verdicts that differ": Number(words, exactly(0)),
            "ceilings that differ": Number(ceilings, exactly(0)),
            "largest fall of a mean SSIM": Number(max(0.0, -min(gaps)), at_most(0.01)),
            "largest rise of a mean SSIM": Number(max(0.0, *gaps)),
        },
        detail="five defenses, two adversaries, ten bundled images; scores of another order of sums may differ by "
        "rounding that an optimiser carries on",
        table=table,
    )


# --- a new user


@check("new_user", rows="new-user", cost="minutes", uses=("tests/test_stranger.py", "leakgauge"))
def new_user(context: Context) -> Measurement:
    """A defense with a nuisance, its bound and its attack in another package, as the docs say, and audited."""
    path = ROOT / "tests" / "test_stranger.py"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(path)]
    done = subprocess.run(command, cwd=ROOT, env=dict(os.environ), capture_output=True, text=True)
    counts = {word: int(n) for n, word in re.findall(r"(\d+) (passed|failed|error|skipped)", done.stdout[-500:])}
    return Measurement(
        {
            "tests that pass": Number(counts.get("passed", 0), at_least(1)),
            "that do not": Number(counts.get("failed", 0) + counts.get("error", 0), exactly(0)),
            "exit code": Number(done.returncode, exactly(0)),
        },
        detail="tests/test_stranger.py: each part is under 25 lines and imports nothing but the public package",
    )
