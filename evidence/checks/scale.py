"""Scale and trust: several processes on one run folder, and signed results."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from evidence import Context, Measurement, Number, at_least, check, exactly

SHARED = """
[task]
model = "mlp(width=8, depth=1)"
records = 24
[checkpoints]
train_steps = [2]
[defenses]
none = "identity()"
noisy = "gaussian(std=0.01)"
[adversaries]
adaptive = "adaptive(steps=60)"
generic = "inverting_gradients(steps=60)"
"""
SIGNED = """
leave_out = ["adaptive"]
[task]
model = "mlp(width=8, depth=1)"
records = 8
[defenses]
none = "identity()"
[adversaries]
linear = "analytic()"
"""
JOIN = """
import sys
from leakgauge.audit import SharedFolder, audit
from leakgauge.study import Study
audit(Study.load(sys.argv[1]), sys.argv[2], engine=SharedFolder(lease=3.0))
"""
PROGRAM = [sys.executable, "-c", "from leakgauge.cli import main; main()"]


@check("shared_folder", rows="shared-folder", cost="minutes")
def shared_folder(context: Context) -> Measurement:
    """Three processes on one folder, one killed and one stopped for longer than its lease while they hold cells."""
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        (home / "spec.toml").write_text(SHARED)
        alone, run = home / "alone", home / "run"
        command = [*PROGRAM, "audit", str(home / "spec.toml"), "--quiet", "--out", str(alone)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        join = [sys.executable, "-c", JOIN, str(home / "spec.toml"), str(run)]
        steady, killed, stopped = (subprocess.Popen(join) for _ in range(3))
        disturbed = int(_holds(run, killed.pid))
        killed.kill()
        killed.wait()
        disturbed += _holds(run, stopped.pid)
        os.kill(stopped.pid, signal.SIGSTOP)
        context.say("one killed, one stopped")
        codes = [steady.wait()]
        first = _contents(run)
        os.kill(stopped.pid, signal.SIGCONT)
        codes.append(stopped.wait())
        after, expected = _contents(run), _contents(alone)
    return Measurement(
        {
            "processes disturbed while they held a cell": Number(disturbed, exactly(2)),
            "processes that ended with a fault": Number(sum(code != 0 for code in codes), exactly(0)),
            "files that differ from the undisturbed run": Number(_different(after, expected), exactly(0)),
            "files that changed when the stopped one went on": Number(_different(first, after, "cells/"), exactly(0)),
            "cells": Number(sum(name.startswith("cells/") and name.endswith(".json") for name in expected)),
        },
        detail="a lease of 3 s; result, plan, records and every cell are compared byte by byte",
    )


@check("signature", rows="signature", cost="minutes")
def signature(context: Context) -> Measurement:
    """Every signed file of a redacted audit, one bit flipped at 20 places of each."""
    from leakgauge.storage.signing import SignatureError, new_key, public_key, verify

    unnoticed, flips = 0, 0
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        (home / "spec.toml").write_text(SIGNED)
        public = public_key(new_key(home / "key"))
        words = ["audit", str(home / "spec.toml"), "--quiet", "--redact", "--sign", str(home / "key")]
        subprocess.run([*PROGRAM, *words, "--out", str(home / "run")], check=True, stdout=subprocess.DEVNULL)
        names = verify(home / "run", public)
        for path in (home / "run" / name for name in names):
            content = path.read_bytes()
            for place in {round(i * (len(content) - 1) / 19) for i in range(20)}:
                path.write_bytes(content[:place] + bytes((content[place] ^ 1 << place % 8,)) + content[place + 1 :])
                flips += 1
                try:
                    verify(home / "run", public)
                    unnoticed += 1
                except SignatureError:
                    pass
            path.write_bytes(content)
        verified = json.loads((home / "run" / "signature.json").read_text())["files"].keys() == set(
            verify(home / "run", public)
        )
    return Measurement(
        {
            "flipped bits": Number(flips, at_least(100)),
            "flipped bits that were not noticed": Number(unnoticed, exactly(0)),
            "redacted reports that verify": Number(int(verified and "report.html" in names), exactly(1)),
        },
        detail=f"signed: {', '.join(names)}",
    )


def _holds(run: Path, pid: int) -> bool:
    """Wait until a process holds a claim on a cell."""
    until = time.monotonic() + 120
    while time.monotonic() < until:
        for path in run.glob("claims/*"):
            try:
                if f" {pid} " in path.read_text():
                    return True
            except OSError:
                continue
        time.sleep(0.02)
    return False


def _contents(run: Path) -> dict[str, bytes]:
    """What a run leaves, but for what says when it happened, claims, locks, and reports."""
    skipped = ("log.jsonl", "timings.json", "report.html", "report.md", "junit.xml")
    files = (path for path in run.rglob("*") if path.is_file() and path.name not in skipped)
    named = {str(path.relative_to(run)): path for path in files if not path.name.startswith(".")}
    return {name: path.read_bytes() for name, path in named.items() if not name.startswith("claims/")}


def _different(one: dict[str, bytes], other: dict[str, bytes], under: str = "") -> int:
    names = {name for name in one.keys() | other.keys() if name.startswith(under)}
    return sum(one.get(name) != other.get(name) for name in names)
