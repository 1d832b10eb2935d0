"""The commands, from inside: what they print, and what becomes of errors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import leakgauge
from leakgauge import expr
from leakgauge.cli import app, listing
from leakgauge.errors import DataError, LeakgaugeError


class Ran:
    """What a command left behind; both streams, whatever the version of typer calls them."""

    def __init__(self, *args: str) -> None:
        result = CliRunner().invoke(app, list(args), env={"COLUMNS": "200"})
        self.code, self.out = result.exit_code, result.output
        self.exception = result.exception


@pytest.fixture(autouse=True)
def _empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEAKGAUGE_CACHE", str(tmp_path / "cache"))


def test_version() -> None:
    ran = Ran("--version")
    assert (ran.code, ran.out) == (0, f"leakgauge {leakgauge.__version__}\n")


@pytest.mark.parametrize("args", [("--help",), ("data", "--help"), ("data", "fetch", "--help"), ("list", "--help")])
def test_help_has_examples_one_per_line(args: tuple[str, ...]) -> None:
    ran = Ran(*args)
    assert ran.code == 0
    lines = [line.strip() for line in ran.out.splitlines()]
    after = lines[lines.index("Examples:") + 1 :]
    assert after[0].startswith("leakgauge ")
    assert after[1].startswith("leakgauge ")


def test_no_command_shows_the_help() -> None:
    assert "leakgauge data fetch mnist" in Ran().out


@pytest.mark.parametrize("args", [("frobnicate",), ("data", "fetch"), ("data", "show", "a", "b"), ("--nope",)])
def test_bad_usage_is_2(args: tuple[str, ...]) -> None:
    assert Ran(*args).code == 2


# --- list


def test_list_shows_every_registered_part() -> None:
    ran = Ran("list")
    assert ran.code == 0
    for kind, made in expr.REGISTRY.items():
        assert kind in ran.out
        for name in made:
            assert f"{name}(" in ran.out


def test_list_of_one_kind() -> None:
    ran = Ran("list", "model")
    assert "mlp(width=500, depth=5, uniform=None)" in ran.out
    assert "Logistic regression: one linear layer on the flattened record." in ran.out
    assert "gaussian(std)" not in ran.out
    ran = Ran("list", "modl")
    assert ran.code == 2
    assert "error: list: unknown kind 'modl'; did you mean 'model'?" in ran.out


def test_list_survives_a_narrow_window() -> None:
    result = CliRunner().invoke(app, ["list", "solver"], env={"COLUMNS": "60"})
    assert result.exit_code == 0
    assert "tolerance" in result.output


def test_signature_shows_defaults_that_are_made_afresh() -> None:
    assert "<factory>" not in Ran("list").out


def test_parts_of_other_packages_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    def stranger(size: int = 3) -> None:
        """A part of somebody's own."""

    ours = expr.names()
    monkeypatch.setattr(expr, "names", lambda kind=None: ours | {"stranger": stranger})
    assert listing.parts()[listing.STRANGERS] == {"stranger": stranger}
    ran = Ran("list", listing.STRANGERS)
    assert "stranger(size=3)" in ran.out
    assert "A part of somebody's own." in ran.out


def test_summary_drops_the_markup() -> None:
    def part() -> None:
        """``log p`` as :meth:`~a.b` says.

        More.
        """

    assert listing.summary(part) == "log p as a.b says."


# --- data


def test_data_list_says_what_is_missing_and_what_to_type(tmp_path: Path) -> None:
    ran = Ran("data", "list")
    assert ran.code == 0
    for name in ("mnist", "fashion_mnist", "cifar10"):
        assert f"no; type: leakgauge data fetch {name}" in ran.out
    assert "bundled with leakgauge" in ran.out
    assert str(tmp_path / "cache") in ran.out.replace("\n", "")


def test_data_show_named() -> None:
    ran = Ran("data", "show", "fashion_mnist_sample")
    assert "image records of shape (1, 28, 28), 10 classes" in ran.out
    assert "train: 1000 records" in ran.out
    assert "test: 500 records" in ran.out
    assert "normalise = { mean = [0.2873], std = [0.3552] }" in ran.out
    assert "licence: MIT" in ran.out
    assert any(line.split() == ["9", "Ankle", "boot", "100", "50"] for line in ran.out.splitlines())


def test_data_show_a_file_of_ones_own(tmp_path: Path) -> None:
    x = np.zeros((10, 4, 4, 3), np.uint8)
    x[..., 0] = 255
    x[:5, ..., 1] = 255
    np.savez(tmp_path / "own.npz", inputs=x, labels=np.arange(10) % 2)
    ran = Ran("data", "show", str(tmp_path / "own.npz"))
    assert "own: image records of shape (3, 4, 4), 2 classes" in ran.out
    # of the 8 train records 5 have green: sqrt(5/8 * 3/8) = 0.4841
    assert "mean = [1.0000, 0.6250, 0.0000], std = [0.0000, 0.4841, 0.0000]" in ran.out
    assert "licence" not in ran.out


def test_data_show_what_is_missing() -> None:
    ran = Ran("data", "show", "mnist")
    assert ran.code == 2
    assert ran.out.startswith("error: mnist: the data set is not on this machine")
    assert ran.out.endswith("; type: leakgauge data fetch mnist\n")
    assert ran.out.count("\n") == 1


def test_data_fetch_from_a_file_that_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "a.tgz").write_bytes(b"nothing")
    ran = Ran("data", "fetch", "mnist", "--from", str(tmp_path / "a.tgz"))
    assert ran.code == 2
    assert f"error: {tmp_path / 'a.tgz'}: cannot be read" in ran.out
    assert Ran("data", "fetch", "mnsit").out == "error: data: unknown data set 'mnsit'; did you mean 'mnist'?\n"


# --- errors


def run_raising(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> Ran:
    def broken(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("leakgauge.cli.data.load", broken)
    return Ran("data", "show", "mnist")


def test_each_family_of_errors_has_its_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    class GateError(LeakgaugeError):
        exit_code = 3

    ran = run_raising(monkeypatch, GateError("failed", where="gate", remedy="mend it"))
    assert (ran.code, ran.out) == (3, "error: gate: failed; mend it\n")


def test_an_error_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = run_raising(monkeypatch, DataError("two\nlines", where="here"))
    assert (ran.code, ran.out) == (2, "error: here: two lines\n")


def test_an_interrupt_is_130(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = run_raising(monkeypatch, KeyboardInterrupt())
    assert (ran.code, ran.out) == (130, "interrupted\n")


def test_a_bug_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = run_raising(monkeypatch, ZeroDivisionError("a bug of ours"))
    assert ran.code == 1
    assert isinstance(ran.exception, ZeroDivisionError)


def test_init_into_a_folder_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    ended = CliRunner().invoke(app, ["init", str(tmp_path / "nowhere" / "x.toml")])
    assert ended.exit_code == 2
    assert "cannot be written" in ended.output


def test_train_shows_the_accuracy_of_every_round_and_writes_weights(tmp_path: Path) -> None:
    out = tmp_path / "trained.safetensors"
    options = ("--data", "fashion_mnist_sample", "--clients", "iid(clients=40)", "--per-round", "2", "--rounds", "2")
    ran = Ran("train", *options, "--steps", "1", "--quiet", "--out", str(out))
    assert ran.code == 0, ran.out
    assert [line.split(":")[0] for line in ran.out.splitlines()] == ["round 0", "round 1", "round 2", f"wrote {out}"]
    from leakgauge.storage.states import read_state

    assert set(read_state(out).tensors) == {"linear.weight", "linear.bias"}


def test_a_training_that_breaks_off_keeps_its_rounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from leakgauge.fl import InProcess

    whole = InProcess.run
    monkeypatch.setattr(InProcess, "run", lambda self, jobs: whole(self, jobs) if not jobs[0].key[1] else iter(()))
    out = tmp_path / "trained.safetensors"
    options = ("--data", "fashion_mnist_sample", "--clients", "iid(clients=40)", "--per-round", "2", "--steps", "1")
    ran = Ran("train", *options, "--quiet", "--out", str(out))
    assert ran.code == 2
    assert "round 1: accuracy" in ran.out
    assert "round 2: no client of 2 answered" in ran.out
    assert out.is_file()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--clients", "iid(clients=0)"), "clients must be an integer ≥ 1, got 0"),
        (("--steps", "0"), "steps must be an integer ≥ 1, got 0"),
        (("--clients", "clip(norm=1.0)"), "--clients"),
        (("--clients", "iid(clients=4)", "--per-round", "5"), "5 clients per round of 4"),
        (("--out", "weights.txt"), "weights.txt: the weights cannot be written there"),
        (("--clients", "iid(clients=2)", "--defense", "lrp()"), "2 clients cannot add up their counts in secret"),
    ],
)
def test_train_refuses_what_cannot_be_trained(options: tuple[str, ...], says: str) -> None:
    ran = Ran("train", "--data", "fashion_mnist_sample", *options)
    assert ran.code == 2
    assert says in ran.out
