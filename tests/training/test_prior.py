"""Training priors: they learn what the records are, say what they were trained on, and are files like any other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from leakgauge.cli.app import app
from leakgauge.errors import DomainError
from leakgauge.priors import Learned, Patches
from leakgauge.storage.states import FileError
from leakgauge.training.prior import train_patches, train_vae
from leakgauge.types import Candidate, Domain, Records


def stripes(count: int, seed: int = 0) -> Records:
    """Pictures with one bright row each: two numbers say all of one, its place and its brightness."""
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.zeros(count, 1, 8, 8)
    rows = torch.randint(8, (count,), generator=generator)
    inputs[torch.arange(count), 0, rows] = 0.5 + 0.5 * torch.rand(count, 1, generator=generator)
    return Records(inputs, torch.zeros(count, dtype=torch.long), Domain("image", (1, 8, 8), 2))


@pytest.fixture(scope="module")
def vae(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("prior") / "stripes.safetensors"
    trained = train_vae(stripes(200), codes=4, classes=False, widths=(32,), epochs=30, batch=20, learning_rate=3e-3)
    guess = stripes(200).inputs
    assert trained.score > -10 * float((guess - guess.mean(0)).square().mean().log10())  # better than the mean picture
    path.write_bytes(trained.content)
    return path


def test_a_trained_generator_draws_such_records(vae: Path) -> None:
    prior = Learned(str(vae))
    drawn = prior.decoder(torch.zeros(()), (1, 8, 8))(torch.randn(3, 2, prior.codes))
    assert drawn.shape == (3, 2, 1, 8, 8)
    assert 0 <= float(drawn.min()) <= float(drawn.max()) <= 1


def test_it_knows_what_it_was_trained_on(vae: Path) -> None:
    known, unknown = stripes(200).inputs[:5], stripes(5, seed=1).inputs
    assert Learned(str(vae)).trained_on(torch.cat([known, unknown])) == 5


def test_the_same_seed_gives_the_same_file() -> None:
    first, second = (train_vae(stripes(20), codes=2, widths=(4,), epochs=1).content for _ in range(2))
    assert first == second


def test_patches_prefer_pictures_of_their_kind(tmp_path: Path) -> None:
    path = tmp_path / "patches.safetensors"
    path.write_bytes(train_patches(stripes(200), size=4, components=3, samples=2000, iterations=5).content)
    like, noise = stripes(4, seed=2).inputs, torch.rand(4, 1, 8, 8)
    prior, labels = Patches(str(path)), torch.zeros(4, 1, dtype=torch.long)
    assert bool((prior(Candidate(like[:, None], labels)) > prior(Candidate(noise[:, None], labels))).all())
    with pytest.raises(DomainError, match="need pictures"):
        prior(Candidate(torch.rand(4, 1, 7), labels))
    assert prior.trained_on(stripes(200).inputs[:3]) == 3
    with pytest.raises(FileError, match="no prior of the kind 'vae'"):
        Learned(str(path))


@pytest.mark.parametrize("damage", ["missing", "truncated", "tensor", "facts", "shape", "other digest"])
def test_damaged_files_are_refused(vae: Path, tmp_path: Path, damage: str) -> None:
    bad = tmp_path / "bad.safetensors"
    tensors = load_file(vae)
    facts = {"family": "vae", "codes": 4, "widths": [32], "shape": [1, 8, 8], "boxed": True}
    if damage == "truncated":
        bad.write_bytes(vae.read_bytes()[:-50])
    elif damage == "other digest":
        bad.write_bytes(vae.read_bytes())
    elif damage != "missing":
        if damage == "tensor":
            tensors["0.weight"][0, 0] = torch.nan
        facts |= {"facts": {"family": "gan"}, "shape": {"shape": [1, 9, 9]}}.get(damage, {})
        save_file(tensors, bad, {"prior": json.dumps(facts)})
    with pytest.raises(FileError, match=r"bad\.safetensors"):
        Learned(str(bad), sha256="0" * 64 if damage == "other digest" else "")


def test_the_command_writes_a_prior(tmp_path: Path) -> None:
    out = tmp_path / "clothes.safetensors"
    arguments = ["--data", "fashion_mnist_sample", "--records", "40", "--epochs", "1", "--codes", "3", "--quiet"]
    done = CliRunner().invoke(app, ["train-prior", *arguments, "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert "learned(file=" in done.output.replace("\n", "")
    assert Learned(str(out)).codes == 3
    wrong = CliRunner().invoke(app, ["train-prior", *arguments, "--out", str(tmp_path / "clothes.pt")])
    assert wrong.exit_code != 0


def test_fingerprints_that_are_none(vae: Path, tmp_path: Path) -> None:
    facts = {"family": "vae", "codes": 4, "widths": [32], "shape": [1, 8, 8], "boxed": True}
    bad = tmp_path / "bad.safetensors"
    save_file({**load_file(vae), "records": torch.rand(3, 3)}, bad, {"prior": json.dumps(facts)})
    with pytest.raises(FileError, match=r"its fingerprints of records are torch\.float32 of shape \(3, 3\)"):
        Learned(str(bad)).trained_on(stripes(2).inputs)


def test_settings_that_cannot_work_are_named_together() -> None:
    with pytest.raises(DomainError, match=r"widths must be .*learning_rate must lie .*seed must be"):
        train_vae(stripes(20), widths=(), learning_rate=-1.0, seed=-1)
    with pytest.raises(DomainError, match="codes are more than"):
        train_vae(stripes(20), codes=10**8)
    with pytest.raises(DomainError, match=r"samples must be an integer ≥ 10, got 1.*seed must be below"):
        train_patches(stripes(20), samples=1, seed=2**63)
    with pytest.raises(DomainError, match="there are no records"):
        train_patches(stripes(0))


@pytest.mark.parametrize("wrong", [("--seed", "-1"), ("--seed", "99999999999999999999"), ("--records", "-5")])
def test_numbers_of_the_command_that_cannot_work(wrong: tuple[str, str], tmp_path: Path) -> None:
    arguments = ["--data", "fashion_mnist_sample", "--out", str(tmp_path / "prior.safetensors"), *wrong]
    done = CliRunner().invoke(app, ["train-prior", *arguments])
    assert done.exit_code == 2
    assert f"Invalid value for '{wrong[0]}'" in done.output


def test_a_folder_is_no_file_to_write(tmp_path: Path) -> None:
    (tmp_path / "prior.safetensors").mkdir()
    arguments = ["--data", "fashion_mnist_sample", "--out", str(tmp_path / "prior.safetensors")]
    done = CliRunner().invoke(app, ["train-prior", *arguments])
    assert done.exit_code == 2
    assert "cannot be written there" in done.output


def test_too_few_records() -> None:
    with pytest.raises(DomainError, match="too few"):
        train_vae(stripes(5))
