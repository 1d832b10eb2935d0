"""Leaves that are never formed against the same leaves formed: values and slopes, shared and alone, near and far."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from leakgauge.defenses import gaussian, laplace, random_prune
from leakgauge.updates import Leaf, Mapped, Sharing, absolute_residual, factored, masked, squared_residual
from leakgauge.updates.factored import Factored

OUT, IN = 7, 5
SHARINGS = {"alone": Sharing((1, 1, 1, 1)), "shared": Sharing((4,)), "uneven": Sharing((1, 0, 3))}
Question = Callable[[Leaf, Tensor, Sharing], Tensor]


def _mixture(noise: object) -> Callable[..., Tensor]:
    density = (random_prune(p=0.3) | noise)._entry_density(1, {}, [random_prune(p=0.3)])  # type: ignore[operator]
    return density.log


def _distance(leaf: Leaf, o: Tensor, sharing: Sharing) -> Tensor:
    received = o.flatten(1).square().sum(1)[sharing.rows()]
    return leaf.distance(o, sharing, received)


def _through_mask(leaf: Leaf, o: Tensor, sharing: Sharing) -> Tensor:
    return Mapped(leaf, masked, ((o > 0).to(o),), sharing).entries(squared_residual, (o,), sharing)


QUESTIONS: dict[str, Question] = {
    "square": lambda leaf, o, sharing: leaf.square(),
    "dot": lambda leaf, o, sharing: leaf.dot(o, sharing),
    "distance": _distance,
    "masked": _through_mask,
    "absolute": lambda leaf, o, sharing: leaf.entries(absolute_residual, (o,), sharing),
    "by autograd": lambda leaf, o, sharing: leaf.entries(lambda u, o: (u - o).cosh(), (o,), sharing),
    "gaussian mixture": lambda leaf, o, sharing: leaf.entries(_mixture(gaussian(std=0.5)), (o,), sharing),
    "laplace mixture": lambda leaf, o, sharing: leaf.entries(_mixture(laplace(scale=0.5)), (o,), sharing),
    "sharp mixture": lambda leaf, o, sharing: leaf.entries(_mixture(gaussian(std=0.01)), (o,), sharing),
    "broadcast": lambda leaf, o, sharing: leaf.entries(lambda u, t: u * t, (o[:, :1, :1],), sharing),
}


def check(question: Question, a: Tensor, d: Tensor, o: Tensor, sharing: Sharing, tolerance: float = 1e-10) -> None:
    def ask(formed: bool) -> tuple[Tensor, ...]:
        live = a.clone().requires_grad_(), d.clone().requires_grad_()
        leaf: Leaf = Factored(*live, torch.Size((OUT, IN)))
        value = question(leaf.dense() if formed else leaf, o, sharing)
        weights = torch.arange(1.0, len(value) + 1, dtype=value.dtype)
        return value.detach(), *torch.autograd.grad((value * weights).sum(), live)

    for found, wanted in zip(ask(False), ask(True), strict=True):
        gap = (found - wanted).flatten(1 if found.dim() > 1 else 0)
        assert float(gap.norm() / wanted.norm()) <= tolerance


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("sharing", SHARINGS)
@pytest.mark.parametrize("positions", [1, 3])
@pytest.mark.parametrize("block", [2, 11, 2**19])
def test_a_factored_leaf_answers_as_the_formed_one(
    question: str, sharing: str, positions: int, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(factored, "BLOCK", block)
    a = torch.randn(4, positions, IN, dtype=torch.float64)
    d = torch.randn(4, positions, OUT, dtype=torch.float64)
    o = torch.randn(len(SHARINGS[sharing].counts), OUT, IN, dtype=torch.float64)
    check(QUESTIONS[question], a, d, o, SHARINGS[sharing])


@pytest.mark.parametrize("question", QUESTIONS)
def test_positions_may_lie_last_in_memory(question: str) -> None:
    a, d = (torch.randn(2, size, 3, dtype=torch.float64).transpose(1, 2) for size in (IN, OUT))
    check(QUESTIONS[question], a, d, torch.randn(2, OUT, IN, dtype=torch.float64), Sharing((1, 1)))


def test_a_candidate_near_its_observation_loses_no_digits_and_moves_no_neighbour(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    a, d, noise = torch.randn(3, 1, IN), torch.randn(3, 1, OUT), torch.randn(3, OUT, IN)
    o = d.transpose(1, 2) @ a + torch.tensor([1e-4, 1e-3, 1.0]).view(3, 1, 1) * noise
    exact = d.double().transpose(1, 2) @ a.double() - o.double()
    wanted = exact.flatten(1).square().sum(1)

    def gaps(at: slice) -> Tensor:
        found = _distance(Factored(a[at], d[at], torch.Size((OUT, IN))), o[at], Sharing((1,) * len(o[at])))
        return (found.double() / wanted[at] - 1).abs()

    together = gaps(slice(0, 3))
    assert float(together.max()) < 1e-2
    # three terms of size up to ‖G‖² + ‖o‖², each a sum of 35 products, make up the distance of the one that is far
    far = float((o[2].square().sum() + (d[2].T @ a[2]).square().sum()) / wanted[2])
    torch.testing.assert_close(gaps(slice(2, 3)), together[2:], rtol=0, atol=2 * 35 * torch.finfo(o.dtype).eps * far)
    monkeypatch.setattr(factored, "CANCELLED", 0.0)
    # what the three terms alone would say: a multiple of the spacing of float32 at ‖o‖², three times what is wanted
    assert float(gaps(slice(0, 1))) > 0.4
