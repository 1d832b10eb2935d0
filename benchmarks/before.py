"""Faster or slower than another commit: ``python -m benchmarks.before COMMIT [--models NAME …] [--turns N] [--quick]``.

Both commits run their own ``python -m benchmarks`` in turns, each in a process of its own; what is compared is the
ratio to the peers' loop, so that a machine that slows down for a while slows down both sides of it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.cases import MODELS

ROOT = Path(__file__).parents[1]


def against(
    commit: str,
    models: Sequence[str],
    turns: int,
    say: Callable[[str], None] = lambda _: None,
    *,
    quick: bool = False,
) -> dict[str, float]:
    """Case → how our ratio to the peers' loop compares with that of the commit: the median of pairs, 1 is the same."""
    pairs: dict[str, list[float]] = {}
    with _checked_out(commit) as old:
        for turn in range(turns):
            then, now = (_ratios(tree, models, quick) for tree in (old, ROOT))
            for case in now.keys() & then.keys():
                pairs.setdefault(case, []).append(now[case] / then[case])
            say(f"turn {turn + 1} of {turns}: " + ", ".join(f"{case} {one[-1]:.3f}" for case, one in pairs.items()))
    return {case: statistics.median(each) for case, each in sorted(pairs.items())}


@contextmanager
def _checked_out(commit: str) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "before"
        git = ["git", "-C", str(ROOT), "worktree"]
        known = ["git", "-C", str(ROOT), "cat-file", "-e", f"{commit}^{{commit}}"]
        if subprocess.run(known, stderr=subprocess.DEVNULL).returncode:
            raise LookupError(f"there is no commit {commit} here; a shallow clone gets it by git fetch --unshallow")
        subprocess.run([*git, "add", "--quiet", "--detach", str(tree), commit], check=True)
        try:
            yield tree
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)


def _ratios(tree: Path, models: Sequence[str], quick: bool) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ratios.json"
        length = ["--quick"] if quick else ["--repeats", "3"]
        command = [sys.executable, "-m", "benchmarks", *length, "--models", *models, "--json", str(path)]
        environment = {**os.environ, "PYTHONPATH": str(tree / "src")}
        subprocess.run(command, cwd=tree, env=environment, check=True, stdout=subprocess.DEVNULL)
        cases = json.loads(path.read_text(encoding="utf-8"))["cases"]
    return {each["case"]: each["ratio"]["peer"]["cpu"]["median"] for each in cases}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.before", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("commit")
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS), metavar="NAME")
    parser.add_argument("--turns", type=int, default=3, metavar="N")
    parser.add_argument("--quick", action="store_true", help="one short repeat each: does it run, on both sides")
    options = parser.parse_args(arguments)
    try:
        ratios = against(options.commit, options.models, options.turns, print, quick=options.quick)
    except LookupError as fault:
        parser.error(str(fault))
    for case, ratio in ratios.items():
        print(f"{case:<24} {ratio:.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
