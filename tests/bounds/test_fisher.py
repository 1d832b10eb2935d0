"""The Fisher indicator: known Jacobians, and estimators that must not beat van Trees."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.func import functional_call, grad

from leakgauge.bounds import cramer_rao, gram, van_trees
from leakgauge.errors import DomainError


def test_gram_of_a_linear_update(generator: torch.Generator) -> None:
    matrix = torch.randn(7, 4, generator=generator, dtype=torch.float64)
    x = torch.randn(2, 2, generator=generator, dtype=torch.float64)
    found = gram(lambda v: matrix @ v.reshape(-1), x, chunk=3)
    assert torch.allclose(found, matrix.T @ matrix, atol=1e-12)


def test_gram_of_a_real_gradient(generator: torch.Generator) -> None:
    """The update of a small network, against its full Jacobian."""
    net = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Tanh(), torch.nn.Linear(5, 3)).double()
    parameters = {name: p.detach() for name, p in net.named_parameters()}
    label = torch.tensor([1])

    def loss(parameters: dict[str, Tensor], x: Tensor) -> Tensor:
        return torch.nn.functional.cross_entropy(functional_call(net, parameters, (x,)), label)

    def update_of(x: Tensor) -> Tensor:
        return torch.cat([g.reshape(-1) for g in grad(loss)(parameters, x).values()])

    x = torch.randn(1, 6, generator=generator, dtype=torch.float64)
    jacobian = torch.func.jacrev(update_of)(x).reshape(-1, 6)
    assert torch.allclose(gram(update_of, x), jacobian.T @ jacobian, atol=1e-12)
    found = cramer_rao(update_of, x, 0.1)
    assert found.rank == 6
    assert found.cramer_rao == pytest.approx(0.01 * float(torch.linalg.inv(jacobian.T @ jacobian).trace()) / 6)


def test_least_squares_reaches_cramer_rao(generator: torch.Generator) -> None:
    """Unbiased and linear: its error is the bound. A biased guess of zero is better, which is why it proves nothing."""
    matrix = torch.randn(6, 3, generator=generator, dtype=torch.float64) * 0.1
    x = torch.tensor([0.1, -0.1, 0.05], dtype=torch.float64)
    found = cramer_rao(lambda v: matrix @ v, x, 1.0)
    noise = torch.randn(20_000, 6, generator=generator, dtype=torch.float64)
    error = (noise @ torch.linalg.pinv(matrix).T).square().mean()
    assert float(error) == pytest.approx(found.cramer_rao, rel=0.05)
    assert float(x.square().mean()) < found.cramer_rao
    assert not found.is_proof
    assert found.harmonic <= found.cramer_rao


def test_a_direction_that_is_not_seen() -> None:
    found = cramer_rao(lambda v: v[:2], torch.ones(3, dtype=torch.float64), 1.0)
    assert (found.rank, found.entries, found.cramer_rao) == (2, 3, math.inf)
    assert found.harmonic == pytest.approx(1.5)
    nothing = cramer_rao(lambda v: 0 * v, torch.ones(3, dtype=torch.float64), 1.0)
    assert (nothing.rank, nothing.harmonic) == (0, math.inf)


def test_the_posterior_mean_reaches_van_trees(generator: torch.Generator) -> None:
    """Linear update, Gaussian prior: the bound is the error of the posterior mean, and any shrinkage is worse."""
    matrix = torch.randn(5, 4, generator=generator, dtype=torch.float64)
    tau, sigma = 0.7, 0.9
    draws = tau * torch.randn(3, 4, generator=generator, dtype=torch.float64)
    found = van_trees(lambda v: matrix @ v, draws, sigma, tau)
    covariance = torch.linalg.inv(matrix.T @ matrix / sigma**2 + torch.eye(4, dtype=torch.float64) / tau**2)
    assert found.bound == pytest.approx(float(covariance.trace()) / 4)
    x = tau * torch.randn(50_000, 4, generator=generator, dtype=torch.float64)
    y = x @ matrix.T + sigma * torch.randn(50_000, 5, generator=generator, dtype=torch.float64)
    mean = y @ matrix @ covariance / sigma**2
    assert float((mean - x).square().mean()) == pytest.approx(found.bound, rel=0.02)
    for shrink in (0.0, 0.5, 1.3):
        assert float((shrink * mean - x).square().mean()) > found.bound
    assert found.trace_form <= found.bound


def test_no_estimator_beats_van_trees_on_a_curved_update(generator: torch.Generator) -> None:
    """One unknown, u(x) = x + x³: the exact posterior mean by quadrature stays above the bound."""
    tau, sigma = 1.0, 1.0
    draws = tau * torch.randn(400, 1, generator=generator, dtype=torch.float64)
    found = van_trees(lambda v: v + v**3, draws, sigma, tau)
    grid = torch.linspace(-6, 6, 1201, dtype=torch.float64)
    x = tau * torch.randn(20_000, generator=generator, dtype=torch.float64)
    y = x + x**3 + sigma * torch.randn(20_000, generator=generator, dtype=torch.float64)
    log_weight = -((y[:, None] - grid - grid**3) ** 2) / 2 - grid**2 / 2
    error = ((torch.softmax(log_weight, 1) @ grid - x) ** 2).mean()
    assert float(error) >= found.bound


def test_bad_input() -> None:
    x = torch.ones(2)
    with pytest.raises(DomainError, match="sigma"):
        cramer_rao(lambda v: v, x, 0.0)
    with pytest.raises(DomainError, match="prior_std"):
        van_trees(lambda v: v, x[None], 1.0, -1.0)
    with pytest.raises(DomainError, match="prior_draws"):
        van_trees(lambda v: v, x, 1.0, 1.0)
    with pytest.raises(DomainError, match="finite"):
        gram(lambda v: v * torch.inf, x)
