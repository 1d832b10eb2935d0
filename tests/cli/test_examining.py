"""``doctor``, ``preflight`` and ``inspect`` from the command line."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import typer
from safetensors.torch import save_file
from torch import nn
from typer.testing import CliRunner

from leakgauge.cli.app import Program
from leakgauge.cli.audit import audit
from leakgauge.cli.doctor import doctor
from leakgauge.cli.inspect import inspect
from leakgauge.cli.preflight import preflight
from leakgauge.study import SpecError, Study

app = typer.Typer(cls=Program, rich_markup_mode=None, pretty_exceptions_enable=False)
for command in (doctor, preflight, inspect):
    app.command()(command)

MODULE = """
from torch import nn
def build():
    return nn.Sequential(nn.Flatten(), nn.Linear(144, 16), nn.Sigmoid(), nn.Linear(16, 4))
"""


def ran(*args: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, list(args), env={"COLUMNS": "200"})
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result.exit_code, result.output


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a stranger's module, one update of a plain loop, its batch, and a spec."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "strangers_net", raising=False)
    (tmp_path / "strangers_net.py").write_text(MODULE)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(144, 16), nn.Sigmoid(), nn.Linear(16, 4))
    x, y = torch.rand(1, 1, 12, 12), torch.tensor([2])
    save_file(model.state_dict(), tmp_path / "a.safetensors")
    nn.functional.cross_entropy(model(x), y).backward()
    gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    save_file(gradients, tmp_path / "g.safetensors")
    with torch.no_grad():
        for p in model.parameters():
            assert p.grad is not None
            p -= 0.05 * p.grad
    save_file(model.state_dict(), tmp_path / "b.safetensors")
    np.savez(tmp_path / "x.npz", inputs=x.numpy(), labels=y.numpy())
    many = np.random.default_rng(0).random((60, 1, 12, 12), np.float32)
    np.savez(tmp_path / "d.npz", inputs=many, labels=np.arange(60) % 4)
    (tmp_path / "spec.toml").write_text(spec(0.05))
    return tmp_path


def spec(rate: float) -> str:
    return f"""\
[task]
model = "strangers_net:build"
data = "d.npz"
records = 6
[task.recipe]
learning_rate = {rate}
[task.replay]
before = "a.safetensors"
after = "b.safetensors"
batch = "x.npz"
"""


def test_doctor(home: Path) -> None:
    code, said = ran("doctor", "spec.toml", "--own-code")
    assert code == 0, said
    assert "this imports your code: strangers_net:build" in said
    assert "\nreplays\n" in said
    (home / "spec.toml").write_text(spec(0.2))
    code, said = ran("doctor", "spec.toml", "--own-code")
    assert code == 4
    assert "Set learning_rate = 0.05" in said
    code, said = ran("doctor", "spec.toml", "--own-code", "--json")
    assert json.loads(said.splitlines()[-1])["status"] == "replays otherwise"


def test_doctor_on_a_bad_spec(home: Path) -> None:
    (home / "spec.toml").write_text(spec(0.2).replace("b.safetensors", "c.safetensors"))
    code, said = ran("doctor", "spec.toml", "--own-code")
    assert code == 2
    assert "task.replay.after" in said
    assert "no such file" in said


def test_commands_without_a_verdict_ask_for_no_records(home: Path) -> None:
    """Three updates cannot reach a level of 0.05: that stops an audit, and nobody else."""
    for command in ("doctor", "preflight"):
        (home / "spec.toml").write_text(spec(0.05).replace("records = 6", "records = 3"))
        code, said = ran(command, "spec.toml", "--own-code")
        assert code == 0, said
    with pytest.raises(SpecError, match="cannot reach"):
        Study.load(home / "spec.toml")


def test_preflight(home: Path) -> None:
    code, said = ran("preflight", "spec.toml", "--own-code")
    assert code == 0, said
    assert " exact  first linear layer: The layer '1' is linear" in said
    code, said = ran("preflight", "spec.toml", "--own-code", "--json")
    assert json.loads(said.splitlines()[-1])[0]["severity"] == "exact"


@pytest.mark.parametrize(
    "sent", [("--after", "b.safetensors"), pytest.param(("--gradient", "g.safetensors"), marks=pytest.mark.slow)]
)
def test_inspect(home: Path, sent: tuple[str, str]) -> None:
    start = ("inspect", "--before", "a.safetensors", *sent, "--model", "strangers_net:build", "--draws", "3")
    code, said = ran(*start, "--known", "x.npz", "--out", "seen")
    assert code == 0, said
    assert "this imports your code" in said
    (made,) = json.loads((home / "seen" / "inspect.json").read_text())
    assert made["labels"] == [2]
    assert made["metric"] == "psnr"
    assert made["scores"][0] > 40
    for name in ("inspect.json", "inspect.png", "reconstructions.safetensors"):
        assert (home / "seen" / name).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--shape", "1,12,12"), "nothing to inspect"),
        (("--before", "a.safetensors"), "shape of a record is missing"),
        (("--before", "a.safetensors", "--shape", "1,12,12"), "given exactly once"),
        (("--before", "a.safetensors", "--after", "b.safetensors", "--shape", "one"), "not a list of numbers"),
        (("--before", "a.safetensors", "--after", "no.safetensors", "--shape", "1,12,12"), "no such file"),
        (("--before", "a.safetensors", "--after", "b.safetensors", "--shape", "1,5,5"), "does not take inputs"),
        (
            ("--before", "a.safetensors", "--after", "b.safetensors", "--shape", "1,12,12", "--labels", "1,2"),
            "2 labels for a batch of 1",
        ),
        (("--before", "a.safetensors", "--after", "b.safetensors", "--mode", "tran"), "train or eval"),
    ],
)
def test_inspect_says_what_is_missing(home: Path, args: tuple[str, ...], said: str) -> None:
    code, output = ran("inspect", "--model", "strangers_net:build", *args)
    assert code == 2
    assert said in output


@pytest.mark.parametrize("command", ["doctor", "preflight", "inspect"])
def test_help_teaches(command: str) -> None:
    code, said = ran(command, "--help")
    assert code == 0
    assert "Examples:" in said
    assert "Imports your code" in said


def test_an_audit_of_another_client_is_invalid_and_attacks_nothing(home: Path) -> None:
    program = typer.Typer(cls=Program, rich_markup_mode=None, pretty_exceptions_enable=False)
    program.command()(audit)
    program.command()(doctor)
    (home / "spec.toml").write_text(spec(0.2))
    ended = CliRunner().invoke(program, ["audit", "spec.toml", "--quiet", "--own-code"], env={"COLUMNS": "200"})
    assert ended.exit_code == 4, ended.output
    made = json.loads((home / "spec-run" / "result.json").read_text())
    assert {d["attack"]["verdict"] for d in made["checkpoints"][0]["defenses"]} == {"invalid"}
    assert not list((home / "spec-run").glob("cells/*"))
    assert "learning_rate = 0.05" in ended.output
