"""Worker processes: what stands in the current folder is not executed, and the environment is left alone."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from leakgauge import workers


def test_a_module_in_the_current_folder_does_not_stand_in_for_one_of_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``python -c``, by which workers are started, has the current folder first on its path."""
    for name in ("signal", "runpy", "pickle", "numpy"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\nraise SystemExit(3)\n")
    monkeypatch.chdir(tmp_path)
    with workers.pool(1, int, ()) as pool:
        assert pool.submit(os.getpid).result(timeout=120) != os.getpid()
    assert not (tmp_path / "ran").exists()
    assert os.environ.get(workers.SAFE_PATH) is None


def test_however_a_pool_is_left_no_process_stays() -> None:
    with workers.pool(1, int, ()) as pool:
        pool.submit(os.getpid).result(timeout=120)
        (process,) = (pool._processes or {}).values()
        pool.submit(time.sleep, 600)
    # the pool's own thread waits for it, too: whoever comes second is told for a moment that it is not yet known
    end = time.monotonic() + 60
    while process.is_alive() and time.monotonic() < end:
        time.sleep(0.05)
    assert not process.is_alive()
