"""``leakgauge bound``, driven on its own."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from typer.testing import CliRunner

from leakgauge import bounds
from leakgauge.cli import app as whole
from leakgauge.cli.bound import app
from leakgauge.errors import DomainError, LeakgaugeError

run = CliRunner()


def as_json(*arguments: str) -> Any:
    result = run.invoke(app, [*arguments, "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_gaussian_table_and_json() -> None:
    arguments = ["gaussian", "--sigma", "1", "--clip", "1", "--dim", "13700"]
    table = run.invoke(app, arguments)
    assert table.exit_code == 0
    assert "116.7952146" in table.stdout
    found = as_json(*arguments)
    assert found["log_capacity"]["ball"] == pytest.approx(116.795214658, abs=1e-9)
    assert found["capacity"]["ball"] == pytest.approx(math.exp(116.795214658), rel=1e-8)
    assert found["inputs"]["dim"] == 13700


def test_gaussian_options() -> None:
    common = ["gaussian", "--sigma", "0.5", "--clip", "1"]
    layers = as_json(*common, "--layers", "2,2")["capacity"]
    assert list(layers) == ["product", "sqrt_ball", "sum_ball"]
    assert "√layers ball" in run.invoke(app, [*common, "--layers", "2,2"]).stdout
    assert list(layers.values()) == pytest.approx([30.32, 40.50, 104.6], rel=1e-3)
    assert as_json(*common, "--dim", "2", "--as-printed")["capacity"]["ball"] == pytest.approx(9.0133, abs=1e-4)
    one, three = (as_json(*common, "--dim", "5", "--rounds", t)["log_capacity"]["ball"] for t in ("1", "3"))
    assert three == pytest.approx(3 * one)
    group = as_json("gaussian", "--sigma", "2", "--clip", "1", "--dim", "5", "--group", "4")["log_capacity"]["ball"]
    assert group == pytest.approx(one)
    pruned = as_json(*common, "--dim", "5", "--keep", "0.5")["log_capacity"]["pruned"]
    assert 0 < pruned < one


def test_a_capacity_beyond_float64() -> None:
    arguments = ["gaussian", "--sigma", "0.01", "--clip", "1", "--dim", "1000000000"]
    assert as_json(*arguments)["capacity"]["ball"] is None
    assert "see the log" in run.invoke(app, arguments).stdout


def test_vmf_and_laplace() -> None:
    found = as_json("vmf", "--kappa", "1", "--dim", "3")
    assert found["log_capacity"]["sphere"] == pytest.approx(0.838560638428804)
    assert found["epsilon_at_distance_2"] == 2
    assert "metric privacy" in run.invoke(app, ["vmf", "--kappa", "1", "--dim", "3"]).stdout
    assert as_json("laplace", "--scale", "0.5", "--clip", "1", "--dim", "1")["capacity"]["l1_ball"] == pytest.approx(3)


def test_epsilon_and_back() -> None:
    there = as_json("epsilon", "--sigma", "3", "--delta", "1e-5", "--steps", "10", "--unit", "client")
    assert (there["unit"], there["relation"], there["method"]) == ("client", "add-or-remove", "exact")
    back = as_json("sigma", "--epsilon", str(there["epsilon"]), "--delta", "1e-5", "--steps", "10")
    assert back["sigma"] == pytest.approx(3, rel=1e-6)
    assert "one record is added or removed" in " ".join(
        run.invoke(app, ["epsilon", "--sigma", "3", "--delta", "1e-5"]).stdout.split()
    )


def test_subsampled_epsilon() -> None:
    pytest.importorskip("dp_accounting")
    found = as_json(
        "epsilon", "--sigma", "1", "--delta", "1e-5", "--rate", "0.01", "--steps", "1000", "--method", "rdp"
    )
    assert found["epsilon"] == pytest.approx(2.10137, abs=1e-4)


def test_robustness() -> None:
    by_mu = as_json("robustness", "--guess", "0.1", "--mu", "0.5", "--rounds", "4")
    by_noise = as_json("robustness", "--guess", "0.1", "--sigma", "2", "--clip", "1", "--rounds", "4")
    assert by_mu["value"] == pytest.approx(by_noise["value"]) == pytest.approx(0.38914, abs=1e-4)
    assert by_mu["bound"] == "robustness"
    assert run.invoke(app, ["robustness", "--guess", "0.1", "--mu", "0.5"]).exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["gaussian", "--sigma", "0", "--clip", "1", "--dim", "3"], "sigma must lie in"),
        (["gaussian", "--sigma", "1", "--clip", "1"], "--dim or --layers"),
        (["gaussian", "--sigma", "1", "--clip", "1", "--layers", "2,x"], "10,20,30"),
        (["gaussian", "--sigma", "1", "--clip", "1", "--layers", "2,2", "--dim", "5"], "exclude"),
        (
            ["gaussian", "--sigma", "1", "--clip", "1", "--dim", "5", "--keep", "0.5", "--as-printed"],
            "does not cover pruning",
        ),
        (["vmf", "--kappa", "-1", "--dim", "3"], "kappa must lie in"),
        (["epsilon", "--sigma", "1", "--delta", "2"], "delta must lie in"),
        (["robustness", "--guess", "0.1"], "--mu, or --sigma and --clip"),
        (["robustness", "--guess", "0.1", "--mu", "1", "--sigma", "1", "--clip", "1"], "--mu, or --sigma and --clip"),
    ],
)
def test_bad_input_is_a_domain_error(arguments: list[str], words: str) -> None:
    result = run.invoke(app, arguments)
    assert isinstance(result.exception, DomainError)
    assert words in str(result.exception)


def test_a_whole_protection_as_table_and_json() -> None:
    arguments = ["protection", "clip(norm=1.0, per='example') | gaussian(std=0.5)", "--dim", "13700"]
    found = as_json(*arguments, "--delta", "1e-5", "--guess", "0.01", "--batch", "2")
    assert found["unit"] == "record"
    assert found["ceiling"]["value"] == pytest.approx(bounds.mu_ceiling(0.02, 1.0).value)
    assert found["epsilon"]["value"] == pytest.approx(bounds.epsilon_of(1.0, delta=1e-5).epsilon)
    assert found["log_capacity"]["value"] == pytest.approx(bounds.log_capacity_gaussian(13700, 1.0, 0.5))
    table = run.invoke(app, arguments)
    assert "record" in table.stdout
    assert "adds no noise" in as_json("protection", "prune(p=0.9)", "--dim", "10")["ceiling"]["sentence"]
    assert "none" in run.invoke(app, ["protection", "prune(p=0.9)", "--dim", "10"]).stdout
    layers = as_json("protection", "clip(norm=1.0, per='layer') | gaussian(std=0.5)", "--dim", "4", "--layers", "2,2")
    assert math.exp(layers["log_capacity"]["value"]) == pytest.approx(30.32, rel=1e-3)
    told = as_json(
        "protection", "prune(p=0.5) | clip(norm=1.0) | gaussian(std=1.0)", "--dim", "4", "--grant", "threshold"
    )
    assert told["log_capacity"]["value"] is None


def test_a_corridor_and_its_exit_code() -> None:
    assert as_json("corridor", "--hits", "1", "--trials", "100", "--ceiling", "0.5")["state"] == "open"
    beaten = run.invoke(app, ["corridor", "--hits", "9", "--trials", "10", "--ceiling", "0.2"])
    assert beaten.exit_code == 5
    assert "contradiction" in beaten.stdout


def test_a_discrete_channel() -> None:
    found = as_json("channel", "0.9,0.1;0.2,0.8")
    assert found["capacity"] == pytest.approx(1.7)
    assert found["success with it"] == pytest.approx(0.85)
    assert as_json("channel", "0.9,0.1;0.2,0.8", "--prior", "1,0")["leakage"] == pytest.approx(1)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["channel", "0.9,0.1;0.2"], "different lengths"),
        (["channel", "0.9,x"], "probabilities must be comma-separated numbers"),
        (["channel", "0.9,0.2"], "probability distribution"),
        (["protection", "vmf(kappa=-1.0)", "--dim", "9"], r"vmf: kappa must lie in \[0, ∞\), got -1.0"),
        (["protection", "clip(norm=1.0) | gaussian(std=1.0)", "--dim", "0"], "sizes must be an integer ≥ 1, got 0"),
        (["protection", "identity()", "--dim", "9", "--layers", "1,2"], "layers must have 9 entries in all, got 3"),
        (["corridor", "--hits", "3", "--trials", "2", "--ceiling", "0.5"], "hits must be at most trials"),
    ],
)
def test_bad_protections_channels_and_corridors_are_refused(arguments: list[str], said: str) -> None:
    with pytest.raises(LeakgaugeError, match=said):
        run.invoke(app, arguments, catch_exceptions=False)


def test_a_range_error_carries_a_remedy_and_kappa_means_one_thing() -> None:
    for arguments in (
        ["gaussian", "--sigma", "-1", "--clip", "1", "--dim", "10"],
        ["robustness", "--guess", "1.5", "--mu", "1"],
        ["corridor", "--hits", "3", "--trials", "2", "--ceiling", "0.5"],
        ["epsilon", "--sigma", "1", "--delta", "2"],
        ["channel", "0.9,0.2;0.2,0.8"],
    ):
        done = run.invoke(whole, ["bound", *arguments])
        assert done.exit_code == 2
        assert "; " in done.output
    assert "No such option" in run.invoke(whole, ["bound", "robustness", "--kappa", "0.1", "--mu", "1"]).output


def test_mixing_is_random_but_nothing_is_proven_of_it() -> None:
    said = as_json("protection", "mixup(k=4)", "--dim", "10")["ceiling"]["sentence"]
    assert "mixup() draws at random, but proofs are known only for noise" in said


def test_bad_usage_is_said_in_our_words() -> None:
    done = run.invoke(whole, ["init", "--preset", "fast"])
    assert done.exit_code == 2
    assert "Value error" not in done.output
    assert "'quick', 'standard', 'thorough'" in done.output
