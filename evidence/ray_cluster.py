"""A real Ray cluster of two nodes on this machine, in a network namespace that has nothing but loopback.

``python -m evidence.ray_cluster FOLDER`` enters such a namespace, starts a head and a second node with a token of their
own, runs one audit on them in several disturbed ways, and prints what differed from the local engine as JSON. Every
process is ended by its id.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

PORT = 6379
ADDRESS = f"127.0.0.1:{PORT}"
PATIENCE = 600.0
SPEC = """
leave_out = ["adaptive"]
[task]
model = "mlp(width=8, depth=1)"
records = 20
[checkpoints]
train_steps = [2]
[defenses]
none = "identity()"
noisy = "gaussian(std=0.01)"
[adversaries]
generic = "inverting_gradients(steps=20)"
"""
KILLER = """
import os
from dataclasses import dataclass
from leakgauge.attacks import analytic

@dataclass(frozen=True)
class Killer:
    '''Ends its process without a word, as the system does when memory runs out.'''

    def __call__(self, task, observations, **options):
        if "gaussian" in repr(task.protection):
            os._exit(1)
        return analytic()(task, observations, **options)
"""
KILLING = """
leave_out = ["adaptive"]
[task]
model = "mlp(width=8, depth=1)"
records = 8
[defenses]
none = "identity()"
noisy = "gaussian(std=0.01)"
[adversaries]
killer = "killer:Killer()"
"""
PROGRAM = [sys.executable, "-c", "from leakgauge.cli import main; main()"]


def in_a_namespace(folder: Path) -> dict[str, Any]:
    """The answers of :func:`main`, from a namespace of its own."""
    inner = f"ip link set lo up && exec {sys.executable} -m evidence.ray_cluster {folder}"
    done = subprocess.run(["unshare", "-rn", "sh", "-c", inner], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    answers: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answers


def only_loopback() -> bool:
    return [name for _, name in socket.if_nameindex()] == ["lo"]


def contents(run: Path) -> dict[str, bytes]:
    """What a run leaves, but for what says when it happened, locks and reports."""
    skipped = ("log.jsonl", "timings.json", "report.html", "report.md", "junit.xml")
    files = (path for path in run.rglob("*") if path.is_file() and path.name not in skipped)
    return {str(path.relative_to(run)): path.read_bytes() for path in files if not path.name.startswith(".")}


def different(one: Path, other: Path) -> int:
    mine, theirs = contents(one), contents(other)
    return sum(mine.get(name) != theirs.get(name) for name in mine.keys() | theirs.keys())


def until(condition: Callable[[], bool], seconds: float = PATIENCE) -> None:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"not within {seconds} s")
        time.sleep(0.05)


def finished(run: Path) -> int:
    return len(list(run.glob("cells/*.json")))


def processes(*words: str) -> list[int]:
    """The processes of this namespace whose command line has all the words."""
    own, pids = os.readlink("/proc/self/ns/net"), []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdecimal() and os.readlink(entry / "ns" / "net") == own:
                line = (entry / "cmdline").read_bytes().decode(errors="replace").replace("\0", " ")
                if all(word in line for word in words):
                    pids.append(int(entry.name))
    return [pid for pid in pids if pid != os.getpid()]


def parent_of(pid: int) -> int:
    with suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return 0


@contextmanager
def cluster(home: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    """A head and a second node, one processor each; both are ended by their ids."""
    token = home / "token"
    token.touch(0o600)
    token.write_text(secrets.token_hex(32))
    os.environ |= {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(token),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
        "PYTHONPATH": os.pathsep.join([str(home), *filter(None, [os.environ.get("PYTHONPATH")])]),
    }
    start = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--num-cpus=1", "--disable-usage-stats"]
    start += ["--object-store-memory=100000000"]
    nodes: list[subprocess.Popen[bytes]] = []
    with tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as temporary:  # sockets need short paths
        try:
            head = [f"--port={PORT}", "--head", "--include-dashboard=false", f"--temp-dir={temporary}"]
            for more in (head, [f"--address={ADDRESS}"]):
                nodes.append(_started([*start, *more], home / f"node{len(nodes)}.log"))
            until(_open)
            yield nodes
        finally:
            for node in reversed(nodes):
                node.terminate()
            for node in nodes:
                with suppress(subprocess.TimeoutExpired):
                    node.wait(30)
            for pid in processes():  # the namespace is ours alone, and so is everybody in it
                if pid != os.getppid():
                    with suppress(OSError):
                        os.kill(pid, signal.SIGKILL)


def _started(command: list[str], log: Path, attempts: int = 5) -> subprocess.Popen[bytes]:
    """A node that runs. Ray gives its own daemons 30 s to start, which a busy machine may not have: tried again."""
    for _ in range(attempts):
        with log.open("wb") as output:
            node = subprocess.Popen(command, stdout=output, stderr=output)
        until(lambda: b"Ray runtime started" in log.read_bytes() or node.poll() is not None)  # noqa: B023
        if node.poll() is None:
            return node
    raise RuntimeError(log.read_text(errors="replace")[-2000:])


def _open() -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", PORT), 1):
        return True
    return False


def audit(spec: Path, run: Path, *words: str) -> subprocess.Popen[bytes]:
    log = run.with_suffix(".log").open("ab")
    return subprocess.Popen(
        [*PROGRAM, "audit", str(spec), "--quiet", "--out", str(run), *words], stdout=log, stderr=log
    )


def main(home: Path) -> dict[str, Any]:
    """What every way of running the audit on the cluster leaves, compared with the local engine."""
    spec, ray = home / "spec.toml", ("--engine", "ray", "--address", ADDRESS)
    spec.write_text(SPEC)
    (home / "killer.py").write_text(KILLER)
    (home / "killing.toml").write_text(KILLING)
    local = home / "local"
    code = 0 if (local / "result.json").exists() else audit(spec, local).wait()
    answers: dict[str, Any] = {"only loopback": only_loopback(), "local code": code}
    with cluster(home) as nodes:
        for part in (
            lambda: _undisturbed(home, spec, local, ray),
            lambda: _driver_killed(home, spec, local, ray),
            lambda: _worker_and_node_killed(home, spec, local, ray, nodes),
            lambda: _quarantine(home, ray),  # on what is left of the cluster
        ):
            answers |= part()
            print(json.dumps(answers), flush=True)
    answers["left over"] = len([pid for pid in processes("ray") if parent_of(pid) != os.getppid()])
    return answers


def _undisturbed(home: Path, spec: Path, local: Path, ray: tuple[str, ...]) -> dict[str, Any]:
    run = home / "plain"
    code = audit(spec, run, *ray).wait()
    done = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    times = [event["time"] for event in done]
    spent = sum(event.get("seconds", 0.0) for event in done)
    return {
        "undisturbed code": code,
        "undisturbed differs": different(local, run),
        "cells": finished(run),
        "overhead": max(0.0, (max(times) - min(times)) - spent / 2) / max(1, finished(run)),
    }


def _quarantine(home: Path, ray: tuple[str, ...]) -> dict[str, Any]:
    run = home / "killing"
    code = audit(home / "killing.toml", run, "--own-code", *ray).wait()
    text = (run / "log.jsonl").read_text()
    return {"quarantine code": code, "quarantined": text.count("quarantined"), "beside it": finished(run)}


def _driver_killed(home: Path, spec: Path, local: Path, ray: tuple[str, ...]) -> dict[str, Any]:
    run = home / "driver"
    driver = audit(spec, run, *ray)
    until(lambda: finished(run) >= 3 or driver.poll() is not None)
    driver.kill()
    driver.wait()
    before = finished(run)
    code = audit(spec, run, *ray).wait()
    return {"driver killed at": before, "driver code": code, "driver differs": different(local, run)}


def _worker_and_node_killed(
    home: Path, spec: Path, local: Path, ray: tuple[str, ...], nodes: list[subprocess.Popen[bytes]]
) -> dict[str, Any]:
    run = home / "nodes"
    driver = audit(spec, run, *ray)
    until(lambda: (finished(run) >= 2 and bool(processes("ray::visit"))) or driver.poll() is not None)
    victims = processes("ray::visit")[:1]
    for pid in victims:
        os.kill(pid, signal.SIGKILL)
    at = finished(run)
    until(lambda: finished(run) >= at + 2 or driver.poll() is not None)
    raylets = [pid for pid in processes("raylet/raylet") if parent_of(pid) == nodes[1].pid]
    alive = driver.poll() is None
    for pid in raylets:
        os.kill(pid, signal.SIGKILL)
    code = driver.wait()
    return {
        "workers killed": len(victims),
        "nodes killed": len(raylets) * alive,
        "nodes code": code,
        "nodes differs": different(local, run),
    }


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))
