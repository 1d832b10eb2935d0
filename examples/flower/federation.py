"""A whole federation on this machine: one SuperLink, two SuperNodes, one run of the app; loopback only, no Ray.

    python federation.py captures

What is started is stopped by its process id. Files of Flower's own go to a temporary folder.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path

HERE = Path(__file__).resolve().parent
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "OMP_NUM_THREADS": "1",
}


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def command(name: str, path: str) -> str:
    """The full name of one of Flower's commands."""
    full = shutil.which(name, path=path)
    if full is None:
        raise SystemExit(f"{name} is not installed; pip install 'leakgauge[flower]'")
    return full


@contextlib.contextmanager
def daemon(arguments: list[str], environment: Mapping[str, str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that is ended, whatever happens, when the block is left."""
    with log.open("ab") as output:
        process = subprocess.Popen(arguments, env=dict(environment), stdout=output, stderr=output, cwd=log.parent)
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def healthy(address: str, link: subprocess.Popen[bytes], log: Path, patience: float = 60.0) -> None:
    """Wait for the SuperLink."""
    until = time.monotonic() + patience
    while time.monotonic() < until and link.poll() is None:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"http://{address}/health", timeout=2) as answer:
            if answer.status == 200:
                return
        time.sleep(0.2)
    raise RuntimeError(f"the SuperLink at {address} did not start:\n{log.read_text()[-2000:]}")


def run(
    app: Path, home: Path, *, server: Mapping[str, str], node: Mapping[str, str], nodes: int = 2, rounds: int = 1
) -> str:
    """Run the app once; what ``flwr run`` printed. ``server`` and ``node`` are added to the environments."""
    home.mkdir(parents=True, exist_ok=True)
    address = f"127.0.0.1:{free_port()}"
    (home / "config.toml").write_text(
        f'[superlink]\ndefault = "lab"\n[superlink.lab]\naddress = "{address}"\ninsecure = true\n'
    )
    # Flower starts its own commands by their names: those beside this Python come first
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    common = {**os.environ, **QUIET, "FLWR_HOME": str(home), "PATH": path}
    link = [
        command("flower-superlink", path),
        "--insecure",
        "--host",
        "127.0.0.1",
        "--port",
        address.rpartition(":")[2],
    ]
    with contextlib.ExitStack() as stack:
        log = home / "superlink.log"
        healthy(address, stack.enter_context(daemon(link, {**common, **server}, log)), log)
        for i in range(nodes):
            arguments = [
                command("flower-supernode", path),
                "--insecure",
                "--superlink",
                address,
                "--port",
                str(free_port()),
            ]
            arguments += ["--node-config", f"partition-id={i} num-partitions={nodes}"]
            stack.enter_context(daemon(arguments, {**common, **node}, home / f"node-{i}.log"))
        arguments = [command("flwr", path), "run", str(app), "lab", "--stream", "-c", f"num-server-rounds={rounds}"]
        done = subprocess.run(arguments, env=common, capture_output=True, text=True, timeout=300, cwd=home)
    if done.returncode:
        raise RuntimeError(f"flwr run ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
    return done.stdout + done.stderr


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path, help="where the clients write what they send")
    parser.add_argument("--rounds", type=int, default=1)
    chosen = parser.parse_args()
    folder = chosen.folder.resolve()
    with tempfile.TemporaryDirectory() as home:
        run(HERE, Path(home), server={}, node={"LEAKGAUGE_CAPTURE": str(folder)}, rounds=chosen.rounds)
    for path in sorted(folder.rglob("*.safetensors")):
        print(path)


if __name__ == "__main__":
    main()
