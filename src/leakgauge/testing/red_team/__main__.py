"""``python -m leakgauge.testing.red_team [words]``: ask about every case whose name holds one of the words."""

from __future__ import annotations

import argparse
import sys
import warnings

from rich.console import Console
from rich.table import Table

from leakgauge.testing.red_team import answered, counted, every


def main(arguments: list[str] | None = None) -> int:
    """Run the cases and print the table; 1 if an answer was wrong-safe or a crash, 2 if no case has such a name."""
    parser = argparse.ArgumentParser(prog="python -m leakgauge.testing.red_team", description="Try to fool leakgauge.")
    parser.add_argument("words", nargs="*", help="only cases whose name holds one of these; all if none is given")
    words = parser.parse_args(arguments).words
    console, answers, cases = Console(), [], every()
    chosen = [case for case in cases if not words or any(word in case.name for word in words)]
    if not chosen:
        parser.error(f"no case has {' or '.join(map(repr, words))} in its name; one is called {cases[0].name!r}")
    table = Table("case", "truth", "answer", "worth", "s", title=f"{len(chosen)} cases")
    for place, case in enumerate(chosen, 1):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            answer = answered(case)
        answers.append(answer)
        console.print(f"[{place}/{len(chosen)}] {case.name}: {answer.word} ({answer.worth})", markup=False)
        truth = "leaks" if case.leaks else "safe"
        table.add_row(case.name, truth, answer.word.splitlines()[-1], answer.worth, f"{answer.seconds:.0f}")
    console.print(table)
    counts = counted(answers)
    console.print(", ".join(f"{count} {name}" for name, count in counts.items()))
    return int(bool(counts["wrong-safe"] or counts["crash"]))


if __name__ == "__main__":
    sys.exit(main())
