"""What a threat says reaches the adversary through an audit, and the result says what was done about the rest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import leakgauge as lg
from leakgauge.audit import Result, audit
from leakgauge.audit.plan import threats
from leakgauge.study import Study, problems
from leakgauge.study.spec import load
from leakgauge.testing import image_task

CHAIN = """
leave_out = ["generic"]
[task]
model = "mlp(width=8, depth=1)"
records = 7
[defenses]
none = "identity()"
pruned = "random_prune(p=0.5) | gaussian(std=0.01)"
[adversaries]
adaptive = "adaptive(steps=5)"
[threat]
grants = {grants}
"""
MASK = "random_prune.mask"


def audited(folder: Path, grants: str, **options: Any) -> Result:
    folder.mkdir()
    path = folder / "spec.toml"
    path.write_text(CHAIN.format(grants=grants))
    assert problems(load(path), path) == []
    return audit(Study.load(path), folder / "run", **options)


def scores(result: Result, defense: str) -> tuple[float, ...]:
    (adversary,) = result.defenses[defense].adversaries
    return adversary.scores["real"]["psnr"]


def test_a_grant_inside_a_chain_reaches_the_adversary(tmp_path: Path) -> None:
    """By its address and by its bare name; without it the mask is summed out, which ends elsewhere."""
    results = {grants: audited(tmp_path / str(i), grants) for i, grants in enumerate(('["mask"]', f'["{MASK}"]', "[]"))}
    short, whole, hidden = results.values()
    for result, how in ((short, "granted"), (whole, "granted"), (hidden, "summed out")):
        assert not result.faults
        (treatments,) = result.treatments["pruned"].values()
        assert {one.address: one.how for one in treatments}[MASK] == how
    assert scores(short, "pruned") == scores(whole, "pruned")
    assert scores(short, "pruned") != scores(hidden, "pruned")
    assert scores(short, "none") == scores(hidden, "none")


def test_what_a_grant_inside_a_chain_is_worth_is_measured_by_taking_it_away(tmp_path: Path) -> None:
    both = audited(tmp_path / "both", f'["{MASK}"]', ablate=True)
    without = audited(tmp_path / "without", "[]")
    judge = both.metric
    worth = {one.grant: one for one in both.defenses["pruned"].ablation}[MASK]
    means = [
        torch.tensor(adversary.scores["real"][judge]).mean()
        for result in (both, without)
        for adversary in result.defenses["pruned"].adversaries
    ]
    assert worth.mean == pytest.approx(float(means[0] - means[1]), abs=1e-5)  # results round to 1e-6


def changed(rate: str, noise: str, steps: int) -> Result:
    study = lg.Study(
        image_task().model,
        lg.data.load("fashion_mnist_sample"),
        defenses={"noisy": noise},
        adversaries={"adaptive": lg.attacks.adaptive(steps=60)},
        recipe=lg.Recipe(shares="change", local_steps=steps),
        threat=lg.Threat(learning_rate=rate),  # type: ignore[arg-type]
        updates=6,
        leave_out=["generic"],
    )
    return lg.audit(study)


@pytest.mark.parametrize(
    ("noise", "steps"),
    [
        ("gaussian(std=0.0001)", 1),
        pytest.param("laplace(scale=0.0001)", 1, marks=pytest.mark.slow),
        pytest.param("gaussian(std=0.0001)", 5, marks=pytest.mark.slow),
        pytest.param("laplace(scale=0.0001)", 5, marks=pytest.mark.slow),
    ],
)
def test_a_hidden_rate_under_noise_costs_little_and_no_verdict(noise: str, steps: int) -> None:
    """Taken for 1, a hidden rate once cost 15 dB and the verdict. After few steps a search is still on its way."""
    known, unknown = (changed(rate, noise, steps) for rate in ("known", "unknown"))
    assert known.verdicts == unknown.verdicts == {"noisy": "recognisable"}
    means = [sum(scores(result, "noisy")) / 6 for result in (known, unknown)]
    assert means[1] > means[0] - 10
    for result, granted in ((known, True), (unknown, False)):
        (treatments,) = result.treatments["noisy"].values()
        rates = [one.how for one in treatments if one.address == "recipe.learning_rate"]
        assert (rates == ["granted"]) == granted
        assert rates != ["assumed"]


@pytest.mark.parametrize("threat", [lg.Threat(grants=frozenset({"recipe.labels"}), labels="inferred"), lg.Threat()])
def test_labels_are_granted_to_the_null_in_every_spelling(threat: lg.Threat) -> None:
    """Who is told the labels is compared with a guess that is told them, too."""
    study = lg.Study(
        image_task().model,
        lg.data.load("fashion_mnist_sample"),
        defenses={"noisy": "gaussian(std=0.001)"},
        recipe=lg.Recipe(shares="change", local_steps=2),
        threat=threat,
    )
    assert study.labels_granted
    assert torch.equal(study.others.labels, study.records.labels)
    ablated = threats(study)
    assert set(ablated) == {"labels", "learning_rate"}
    assert not ablated["labels"].knows("recipe.labels")
