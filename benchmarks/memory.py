"""Peak memory of one engine, in a process of its own: ``python -m benchmarks.memory CASE PROBLEMS ENGINE MALLOC``."""

from __future__ import annotations

import json
import re
import resource
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.cases import Case, Setting, every
from benchmarks.machine import Malloc, prepare
from benchmarks.measure import engines
from benchmarks.stamps import Stamps

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Memory:
    """The peak of the resident memory in megabytes, and how much of it the observed updates take."""

    peak: float
    observed: float


def measured(case: Case, engine: str, malloc: Malloc) -> Memory:
    """Two iterations in a new process: of all problems at once for our engine, of one image for a loop."""
    # a loop holds one observation at a time
    problems = case.problems if engine == "ours" else 1
    command = [sys.executable, "-m", "benchmarks.memory", case.name, str(problems), engine, malloc]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return Memory(**json.loads(done.stdout.splitlines()[-1]))


def main(name: str, problems: int, engine: str, malloc: Malloc) -> Memory:
    prepare(malloc)
    setting = Setting.of(next(case for case in every(problems=problems) if case.name == name))
    entries = sum(o.numel() for seen in setting.observations for o in seen.rounds[0].observed.values())
    engines(setting)[engine].run(2, Stamps())
    return Memory(_peak(), entries * 4 / 2**20)


def _peak() -> float:
    """The high-water mark of this program's resident memory, in megabytes."""
    try:
        # not getrusage: on Linux its maximum outlives exec, and would be that of the process that started this one
        status = Path("/proc/self/status").read_text(encoding="utf-8")
        return int(re.search(r"^VmHWM:\s*(\d+) kB$", status, re.MULTILINE)[1]) / 1024  # type: ignore[index]
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)


if __name__ == "__main__":
    print(json.dumps(asdict(main(sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]))))  # type: ignore[arg-type]
