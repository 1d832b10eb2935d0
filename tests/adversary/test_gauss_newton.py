"""Gauss-Newton: the same on every path, problem by problem, and what it cannot linearise."""

from __future__ import annotations

import pytest
import torch

from leakgauge.adversary import Adversary, Likelihood, cosine, density, gauss_newton, l2, lbfgs, ramp
from leakgauge.adversary.solver import ball
from leakgauge.errors import DomainError
from leakgauge.observation import observe
from leakgauge.priors import GaussianPrior
from leakgauge.testing.clients import small_records, small_task

FEW = gauss_newton(steps=2, inner=6)


@pytest.mark.parametrize("likelihood", [l2(relative=True), cosine()], ids=repr)
def test_every_path_takes_the_same_steps(likelihood: Likelihood) -> None:
    task, records = small_task(batch=2), small_records(4)
    adversary = Adversary(likelihood, 0.01 * GaussianPrior(), FEW)
    loop, vmap, ghost = (adversary(task, observe(task, records), path=path) for path in ("loop", "vmap", "ghost"))
    assert (loop.path, vmap.path, ghost.path) == ("loop", "vmap", "ghost")
    for other in (vmap, ghost):
        # float64, some thousand operations, times the condition of a damped system
        assert torch.allclose(other.inputs, loop.inputs, atol=1e-7)


def test_a_problem_does_not_see_its_neighbours() -> None:
    task, records = small_task(batch=1), small_records(3)
    adversary, observations = Adversary(l2(), solver=FEW), observe(task, records)
    together, alone = adversary(task, observations), adversary(task, observations[:1])
    assert torch.allclose(together.inputs[0], alone.inputs[0], atol=1e-7)


def test_a_step_is_worth_more_than_a_step_of_lbfgs() -> None:
    task, records = small_task(batch=1), small_records(2)
    observations = observe(task, records)
    newton, quasi = (
        Adversary(l2(relative=True), solver=solver, start="grey")(task, observations).log_posterior
        for solver in (gauss_newton(steps=8), lbfgs(steps=8))
    )
    assert bool((newton > quasi).all())


def test_it_stays_in_the_box() -> None:
    task, records = small_task(batch=1), small_records(2)
    inputs = Adversary(l2(), solver=gauss_newton(steps=3, inner=10))(task, observe(task, records)).inputs
    assert float(inputs.min()) >= 0
    assert float(inputs.max()) <= 1


@pytest.mark.parametrize(
    "how", [{"ball": ball(points=2, delta=0.1)}, {"anneal": ramp(start=0.1)}], ids=["ball", "ramp"]
)
def test_what_changes_the_objective_is_refused(how: dict[str, object]) -> None:
    task, records = small_task(batch=1), small_records(1)
    with pytest.raises(DomainError, match="leave ball and anneal out"):
        Adversary(l2(), solver=FEW, **how)(task, observe(task, records))  # type: ignore[arg-type]


def test_a_defense_of_every_example_is_refused() -> None:
    task, records = small_task(batch=2).protect('clip(norm=1.0, per="example") | gaussian(std=0.1)'), small_records(2)
    with pytest.raises(DomainError, match="acts on every example"):
        Adversary(density(), solver=FEW)(task, observe(task, records))
