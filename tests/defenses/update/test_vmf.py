"""The von Mises-Fisher mechanism: its values beside the reference, its place in chains, its domain."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats

import leakgauge as lg
from leakgauge.defenses import vmf
from leakgauge.defenses.update.vmf_math import mean_resultant
from leakgauge.errors import DomainError, NoDensityError
from leakgauge.testing import example_update, sampler_agrees_with_density, small_records, small_task
from leakgauge.types import Threat
from leakgauge.updates import Batch, Stack, norm, stacked


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_the_density_is_scipys() -> None:
    update = example_update()
    made = vmf(kappa=7.0).release(update, None, generator=generator()).observed
    flat = np.concatenate([v.flatten().numpy() for v in update.values()])
    wanted = stats.vonmises_fisher(flat / np.linalg.norm(flat), 7.0).logpdf(
        np.concatenate([v.flatten().numpy() for v in made.values()])
    )
    found = vmf(kappa=7.0).log_density(stacked([made]), Batch.of(stacked([update])), known={})
    assert float(found) == pytest.approx(float(wanted), rel=1e-10)


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_only_the_direction_leaves(scale: float, dtype: torch.dtype) -> None:
    update = {name: scale * value for name, value in example_update(dtype=dtype).items()}
    made = vmf(kappa=1e12).release(update, None, generator=generator()).observed
    plain = example_update()
    assert float(norm(made)) == pytest.approx(1.0, abs=1e-6)
    for name, value in made.items():
        assert torch.allclose(value.double(), plain[name] / norm(plain), atol=1e-4)
    found = vmf(kappa=2.0).log_density(stacked([made]), Batch.of(stacked([update])), known={})
    assert math.isfinite(float(found)), "a tiny or huge update still has a direction"


def test_draws_have_the_mean_length_of_the_bessel_ratio() -> None:
    update = {"layer.weight": torch.randn(700, dtype=torch.float64, generator=generator())}
    mean = update["layer.weight"] / update["layer.weight"].norm()
    rng = generator(1)
    cosines = [
        float(mean @ vmf(500.0).release(update, None, generator=rng).observed["layer.weight"]) for _ in range(400)
    ]
    error = float(np.std(cosines)) / 20
    assert abs(float(np.mean(cosines)) - mean_resultant(700, 500.0)) < 4 * error


def test_a_mask_before_it_must_be_granted() -> None:
    part = lg.parse("random_prune(p=0.4) | vmf(kappa=3.0)")
    assert sampler_agrees_with_density(part, grant=("mask",), draws=600) > 0
    update = Batch.of({"layer.weight": torch.ones(1, 4)})
    with pytest.raises(NoDensityError, match="not independent entry by entry"):
        part.log_density(Stack({"layer.weight": torch.full((1, 4), 0.5)}), update, known={})


@pytest.mark.parametrize(
    "text",
    ["vmf(kappa=3.0) | random_prune(p=0.4)", "vmf(kappa=3.0) | prune(p=0.4)", "gaussian(std=0.1) | vmf(kappa=3.0)"],
)
def test_nothing_may_act_on_it_and_two_noises_have_no_density(text: str) -> None:
    observed = Stack({"layer.weight": torch.full((1, 4), 0.5)})
    with pytest.raises(NoDensityError):
        lg.parse(text).log_density(observed, Batch.of({"layer.weight": torch.ones(1, 4)}), known={})


@pytest.mark.parametrize("kappa", [-1.0, math.nan, math.inf])
def test_a_bad_concentration_is_refused(kappa: float) -> None:
    with pytest.raises(DomainError, match=r"vmf: kappa must lie in \[0, ∞\), got"):
        vmf(kappa=kappa)


def test_adaptive_attacks_it_by_its_density() -> None:
    task = small_task().protect("random_prune(p=0.1) | vmf(kappa=1e6)")
    seen = lg.observe(task, small_records(2), threat=Threat(grants=frozenset({"mask"})))
    made = lg.attacks.adaptive(steps=5)(task, seen)
    assert bool(made.log_posterior.isfinite().all())
