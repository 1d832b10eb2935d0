"""Captured updates refute noise that was not added, and never noise that was."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from leakgauge.claims import Asked, Claims, examine_expression
from leakgauge.errors import LeakgaugeError
from leakgauge.integrations.files import Files, run_folder

TEXT = "Defend(protection='clip(norm=1.0) | gaussian(std=0.5)')"
SHAPES = {"weight": (20, 10), "bias": (20,), "scale": ()}


def captured(folder: Path, noise: list[dict[str, np.ndarray]], counter: int | None = None) -> Path:
    files = Files(folder.resolve())
    before = {n: np.zeros(s) for n, s in SHAPES.items()} | (
        {} if counter is None else {"count": np.zeros((), dtype=int)}
    )
    files.start(run_folder(1), 1, before)
    for client, one in enumerate(noise):
        after = {n: v + 1 / 15 for n, v in one.items()}  # what was trained: norm one in all
        after |= {} if counter is None else {"count": np.array(counter)}
        files.sent(run_folder(1), 1, client, after, examples=1, buffers=[])
    return folder


def noise(seed: int, std: float = 0.5) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(seed)
    return {n: np.asarray(generator.normal(0, std, s)) for n, s in SHAPES.items()}


def examined(folder: Path) -> Claims:
    return examine_expression(TEXT, Asked(capture=folder))


def test_the_claimed_noise_is_not_refuted(tmp_path: Path) -> None:
    assert examined(captured(tmp_path, [noise(seed) for seed in range(20)])).hold


def test_too_little_noise_is_bounded_from_above(tmp_path: Path) -> None:
    finding = examined(captured(tmp_path, [noise(0, std=0.1)])).of("broken")[0]
    assert finding.rule == "noise"
    assert 0.1 < finding.numbers["most"] < 0.5  # an upper limit on what was added, below what is claimed


def test_an_entry_without_noise_is_named(tmp_path: Path) -> None:
    bare = noise(0) | {"bias": np.zeros(20)}
    (finding,) = examined(captured(tmp_path, [bare])).of("broken")
    assert "bias" in finding.what
    assert "weight" not in finding.what


def test_a_counter_that_moved_left_without_noise(tmp_path: Path) -> None:
    (finding,) = examined(captured(tmp_path, [noise(0)], counter=2)).of("broken")
    assert "count" in finding.what


def test_noise_that_repeats_is_found(tmp_path: Path) -> None:
    (finding,) = examined(captured(tmp_path, [noise(5), noise(5)])).of("broken")
    assert finding.rule == "repeated noise"


def test_noise_that_repeats_between_files_that_are_no_neighbours_is_found(tmp_path: Path) -> None:
    seeds = [0, 1, 2, 0, 1, 2]
    (finding,) = examined(captured(tmp_path, [noise(seed) for seed in seeds])).of("broken")
    assert finding.rule == "repeated noise"
    assert finding.numbers["pairs"] == 3


@pytest.mark.parametrize("std", [0.0, 0.1])
def test_too_little_noise_is_not_said_to_repeat(std: float, tmp_path: Path) -> None:
    broken = examined(captured(tmp_path, [noise(seed, std=std) for seed in range(3)])).of("broken")
    assert {finding.rule for finding in broken} == {"noise"}


def test_a_torn_file_is_named_and_the_others_are_tested(tmp_path: Path) -> None:
    folder = captured(tmp_path, [noise(0, std=0.1), noise(1)])
    next(folder.rglob("r1-client1.safetensors")).write_bytes(b"half")
    claims = examined(folder)
    assert [finding.level for finding in claims.settings[0].findings if finding.rule == "noise"] == [
        "broken",
        "not probed",
    ]
    next(folder.rglob("r1-client0.safetensors")).write_bytes(b"half")
    with pytest.raises(LeakgaugeError, match="safetensors"):
        examined(folder)


def test_a_folder_without_updates_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(LeakgaugeError, match="holds no"):
        examined(tmp_path)
