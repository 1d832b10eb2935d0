"""Run the numeric tests as other processors compute: ``make test-processors``, or ``python -m tests.processors``.

Libraries choose their code by what a processor can do, and sums come out in another order. Environment variables take
abilities away: of torch (ATen), oneDNN, MKL, OpenBLAS, numpy and the C library. One run of pytest for each setting that
this machine can play, one line for each; the exit code is 1 if any failed. ``--all`` runs the whole fast suite instead,
``--only avx2`` one setting; further arguments go to pytest.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[1]

WITHOUT_NUMBERS = (
    *("audit", "benchmarks", "cli", "data", "doctor", "evidence", "inspect", "integrations", "papers", "report"),
    *("claims", "standings", "tune"),
    *("storage", "study", "testing", "expr"),
    *("test_budgets.py", "test_demo.py", "test_docs.py", "test_expr.py", "test_processors.py", "test_quick.py"),
    *("test_readme.py", "test_product_of_features.py", "test_grants.py", "test_notebook.py", "test_stranger.py"),
)
"""Folders and files in tests/ that read, write and say, or compute only what other folders test: left out."""

LEVELS = ("DEFAULT", "AVX2", "AVX512")
"""What torch can call a processor, from least to most; others (ARM, POWER) play the default only."""


@dataclass(frozen=True)
class Setting:
    """Variables that make libraries compute as on a processor whose ability torch calls ``level``."""

    name: str
    level: str
    variables: Mapping[str, str] = field(default_factory=dict)

    def environment(self) -> dict[str, str]:
        known = {name for setting in settings() for name in setting.variables}
        return {name: value for name, value in os.environ.items() if name not in known} | dict(self.variables)


def settings() -> list[Setting]:
    """SSE4.2 throughout; AVX2; AVX-512; and this processor's own code, with MKL's one that is the same everywhere."""
    # numpy names what it could use beyond its baseline, and refuses names that it does not know
    simd = np.show_config(mode="dicts")["SIMD Extensions"]  # type: ignore[call-overload]
    default = {
        "ATEN_CPU_CAPABILITY": "default",
        "ONEDNN_MAX_CPU_ISA": "SSE41",
        "MKL_ENABLE_INSTRUCTIONS": "SSE4_2",
        "OPENBLAS_CORETYPE": "Nehalem",
        "NPY_DISABLE_CPU_FEATURES": " ".join((*simd.get("found", ()), *simd.get("not found", ()))),
        "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX2,-FMA,-AVX512F",
    }
    avx2 = {
        "ATEN_CPU_CAPABILITY": "avx2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
        "OPENBLAS_CORETYPE": "Haswell",
    }
    avx512 = {
        "ATEN_CPU_CAPABILITY": "avx512",
        "ONEDNN_MAX_CPU_ISA": "AVX512_CORE",
        "MKL_ENABLE_INSTRUCTIONS": "AVX512",
        "OPENBLAS_CORETYPE": "SkylakeX",
    }
    return [
        Setting("default", "DEFAULT", default),
        Setting("avx2", "AVX2", avx2),
        Setting("avx512", "AVX512", avx512),
        Setting("compatible", "DEFAULT", {"MKL_CBWR": "COMPATIBLE"}),
    ]


def capability(environment: Mapping[str, str]) -> str:
    """What a fresh Python under ``environment`` takes the processor for."""
    command = [sys.executable, "-c", "import torch; print(torch.backends.cpu.get_cpu_capability())"]
    return subprocess.run(command, env=dict(environment), capture_output=True, text=True, check=True).stdout.strip()


def playable(setting: Setting, own: str) -> bool:
    """Whether a processor of capability ``own`` can compute as the setting wants."""
    return setting.level == "DEFAULT" or (own in LEVELS and LEVELS.index(setting.level) <= LEVELS.index(own))


def chosen(*, everything: bool) -> list[str]:
    """Arguments that select the tests: the fast ones, of the numeric folders (with fewer examples) or of all."""
    numeric = ["--hypothesis-profile=few", *(f"--ignore=tests/{name}" for name in WITHOUT_NUMBERS)]
    return ["-m", "not slow", *([] if everything else numeric)]


def run(setting: Setting, arguments: Sequence[str], *, root: Path = ROOT) -> bool:
    """One session of pytest; prints one line, and what pytest printed if it failed. Returns whether it passed."""
    # budgets are those of `make test`: a processor that plays a lesser one is slower
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:budgets", *arguments]
    start = time.monotonic()
    session = subprocess.run(
        command, cwd=root, env=setting.environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    counts = re.findall(r"\d+ (?:passed|failed|errors?|skipped)", session.stdout.rpartition("\n=")[2] or session.stdout)
    passed = session.returncode == 0
    verdict = "passed" if passed else "FAILED"
    print(f"{setting.name}: {verdict} ({', '.join(counts[-4:])}; {time.monotonic() - start:.0f} s)", flush=True)
    if not passed:
        print(session.stdout, flush=True)
    return passed


def main(arguments: Sequence[str] | None = None) -> int:
    names = [setting.name for setting in settings()]
    parser = argparse.ArgumentParser(prog="python -m tests.processors", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--all", action="store_true", help="the whole fast suite, not the numeric folders alone")
    parser.add_argument("--only", choices=names, action="append", help="this setting alone; may be repeated")
    options, rest = parser.parse_known_args(arguments)
    own = capability(Setting("own", "DEFAULT").environment())
    failed = 0
    for setting in settings():
        if setting.name not in (options.only or names):
            continue
        if not playable(setting, own):
            print(f"{setting.name}: left out, this processor is {own}", flush=True)
            continue
        failed += not run(setting, [*chosen(everything=options.all), *rest])
    return min(failed, 1)


if __name__ == "__main__":
    raise SystemExit(main())
