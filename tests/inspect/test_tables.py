"""Captured updates of tables: known rows are scored by the share of their features."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from leakgauge.cli.app import app
from leakgauge.errors import DomainError
from leakgauge.inspect import captured, inspect
from leakgauge.inspect.scoring import Ruler
from leakgauge.storage.states import read_state
from leakgauge.types import Domain, Feature, Records

ROWS = torch.rand(4, 6, generator=torch.Generator().manual_seed(5))
LABELS = torch.tensor([2, 0, 1, 3])
DOMAIN = Domain("table", (6,), 4, tuple(Feature(f"column {i}", spread=0.3) for i in range(6)))


def build() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 4))


def files(folder: Path, std: float = 0.0) -> tuple[Path, Path]:
    """A stranger's client: one step on the first row."""
    model = build()
    torch.save(model.state_dict(), folder / "before.pt")
    nn.functional.cross_entropy(model(ROWS[:1]), LABELS[:1]).backward()
    torch.optim.SGD(model.parameters(), lr=0.1).step()
    torch.save({n: v + std * torch.randn(v.shape) for n, v in model.state_dict().items()}, folder / "after.pt")
    return folder / "before.pt", folder / "after.pt"


def test_the_row_behind_an_update_is_named_and_no_other(tmp_path: Path) -> None:
    before, after = map(read_state, files(tmp_path))
    known = Records(ROWS, LABELS, DOMAIN)
    (made,) = inspect(build(), DOMAIN, [captured(before, after, build())], known=known)
    assert made.nearer == (True, False, False, False)
    assert made.scores[0] == 1.0
    assert max(made.null_scores) < 0.75
    assert made.psnr == ()
    assert made.sentence.startswith("Best known record 0: share of features 1.00, from noise 0.")
    assert made.as_json()["metric"] == "feature_share"


def test_noise_names_no_row(tmp_path: Path) -> None:
    before, after = map(read_state, files(tmp_path, std=1.0))
    known = Records(ROWS, LABELS, DOMAIN)
    (made,) = inspect(build(), DOMAIN, [captured(before, after, build())], known=known)
    assert not any(made.nearer)


def test_the_command_scores_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, after = files(tmp_path)
    (tmp_path / "rows_clinic.py").write_text(
        "from torch import nn\n\n\ndef build() -> nn.Module:\n"
        "    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 4))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    known, out = tmp_path / "rows.npz", tmp_path / "out"
    np.savez(known, inputs=ROWS.numpy(), labels=LABELS.numpy())
    arguments = ["inspect", "--before", before, "--after", after, "--model", "rows_clinic:build"]
    done = CliRunner().invoke(app, [*map(str, arguments), "--known", str(known), "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert "share of features 1.00" in done.output
    assert json.loads((out / "inspect.json").read_text())[0]["nearer"][0]


def test_the_update_of_another_model_in_a_folder_leaves_the_others_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "other_rows_clinic.py").write_text(
        "from torch import nn\n\n\ndef build() -> nn.Module:\n"
        "    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 4))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    folder = tmp_path / "rounds"
    folder.mkdir()
    before, after = files(tmp_path)
    before.rename(folder / "r1.pt")
    after.rename(folder / "r1-client1.pt")
    torch.save({"0.weight": torch.zeros(3, 3)}, folder / "r1-client0.pt")
    arguments = ["inspect", "--folder", folder, "--model", "other_rows_clinic:build", "--out", tmp_path / "out"]
    done = CliRunner().invoke(app, [*map(str, arguments), "--shape", "6", "--draws", "3"])
    assert done.exit_code == 0, done.output
    assert "not inspected" in done.output
    assert "r1-client1.pt: The reconstruction explains 100.0%" in done.output


def test_one_row_has_no_spread_and_is_refused_before_anything_is_attacked(tmp_path: Path) -> None:
    before, after = map(read_state, files(tmp_path))
    domain = Domain("table", (6,), 4, tuple(Feature(f"column {i}", spread=0.0) for i in range(6)))
    known = Records(ROWS[:1], LABELS[:1], domain)
    with pytest.raises(DomainError, match="no feature of the table varies"):
        inspect(build(), domain, [captured(before, after, build())], known=known, attacks=[])


def test_images_are_scored_by_their_own_metric_in_decibels() -> None:
    ruler = Ruler.of(Domain("image", (1, 28, 28), 10))
    assert ruler.metric.meaning.name == "psnr"
    pictures = Records(torch.rand(2, 1, 28, 28), torch.zeros(2).long(), Domain("image", (1, 28, 28), 10))
    assert ruler.scores([pictures.inputs[:1]], pictures)[0] == 999.0


def test_guesses_that_know_nothing_are_beyond_noise_as_seldom_as_stated() -> None:
    """600 tables of six columns: about every third has a column right by chance."""
    generator = torch.Generator().manual_seed(0)
    domain = Domain("table", (6,), 4)
    ruler, known = Ruler.of(domain), Records(torch.zeros(1, 6), torch.zeros(1).long(), domain)
    found = 0
    for _ in range(600):
        guess, *noise = torch.randn(6, 1, 6, generator=generator)
        found += sum(ruler.beyond([guess], noise, known, level=0.01))
    assert found <= 15


def test_two_columns_are_enough_for_an_exact_row() -> None:
    domain = Domain("table", (2,), 4)
    known = Records(torch.tensor([[0.3, 0.7]]), torch.zeros(1).long(), domain)
    noise = list(torch.randn(3, 1, 2, generator=torch.Generator().manual_seed(0)))
    assert Ruler.of(domain).beyond([known.inputs + 1e-6], noise, known, level=0.01) == [True]
