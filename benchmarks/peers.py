"""The two loops we compare with: one image at a time, as good code outside this library is written.

The iteration is that of inverting gradients: the client's gradient with ``create_graph``, the matching loss and total
variation, ``backward()``, the sign, ``torch.optim.Adam``, the box. Nothing of ours is in it.

References:
    Geiping et al., Inverting Gradients, 2020. https://arxiv.org/abs/2003.14053
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from benchmarks.cases import CODES, PRUNED, SCALE, STD, TV, Setting
from benchmarks.stamps import Stamps

Tensors = Sequence[Tensor]
Matching = Callable[[Tensors], Tensor]
"""The client's gradient → the loss; what depends on the observation alone has been computed before."""


def cosine(observed: Tensors, mask: Tensors) -> Matching:
    """``1 − ⟨g, o⟩ / (‖g‖ ‖o‖)``. (The published loops compute ‖o‖ anew in every iteration; here it is a constant.)"""
    length = _sum(o.pow(2).sum() for o in observed).sqrt()

    def loss(gradient: Tensors) -> Tensor:
        dot = _sum((g * o).sum() for g, o in zip(gradient, observed, strict=True))
        square = _sum(g.pow(2).sum() for g in gradient)
        return 1 - dot / (square.sqrt() * length)

    return loss


def l2(observed: Tensors, mask: Tensors) -> Matching:
    return lambda gradient: _sum((g - o).pow(2).sum() for g, o in zip(gradient, observed, strict=True))


def l1(observed: Tensors, mask: Tensors) -> Matching:
    return lambda gradient: _sum((g - o).abs().sum() for g, o in zip(gradient, observed, strict=True))


def scaled_l2(observed: Tensors, mask: Tensors) -> Matching:
    """``min_s ‖s g − o‖² = ‖o‖² − max(0, ⟨g, o⟩)² / ‖g‖²``."""
    square = _sum(o.pow(2).sum() for o in observed)

    def loss(gradient: Tensors) -> Tensor:
        dot = _sum((g * o).sum() for g, o in zip(gradient, observed, strict=True))
        return square - dot.clamp(min=0).pow(2) / _sum(g.pow(2).sum() for g in gradient)

    return loss


def known_mask(observed: Tensors, mask: Tensors) -> Matching:
    constant = _entries(observed) * math.log(STD * math.sqrt(2 * math.pi))

    def loss(gradient: Tensors) -> Tensor:
        residuals = ((g * m - o).pow(2).sum() for g, o, m in zip(gradient, observed, mask, strict=True))
        return _sum(residuals) / (2 * STD**2) + constant

    return loss


def hidden_mask(observed: Tensors, mask: Tensors) -> Matching:
    """``−log((1 − p) N(o; g, σ²) + p N(o; 0, σ²))``: the term without g once, then a softplus of the log odds.

    (``torch.logaddexp`` of two full log densities, which one would write first, is much slower.)
    """
    constant = _entries(observed) * (math.log(STD * math.sqrt(2 * math.pi)) - math.log(PRUNED))
    zero = _sum(o.pow(2).sum() for o in observed) / (2 * STD**2) + constant
    odds = math.log1p(-PRUNED) - math.log(PRUNED)

    def loss(gradient: Tensors) -> Tensor:
        gains = (g * (o - 0.5 * g) / STD**2 + odds for g, o in zip(gradient, observed, strict=True))
        return zero - _sum(nn.functional.softplus(gain).sum() for gain in gains)

    return loss


def laplace(observed: Tensors, mask: Tensors) -> Matching:
    inner, constant = l1(observed, mask), _entries(observed) * math.log(2 * SCALE)
    return lambda gradient: inner(gradient) / SCALE + constant


LOSSES: dict[str, Callable[[Tensors, Tensors], Matching]] = {
    f.__name__: f for f in (cosine, l2, l1, scaled_l2, known_mask, hidden_mask, laplace)
}


def total_variation(x: Tensor) -> Tensor:
    return (x[..., :-1] - x[..., 1:]).abs().mean() + (x[..., :-1, :] - x[..., 1:, :]).abs().mean()


def normed(net: nn.Module, weight: float) -> tuple[nn.Module, Callable[[], Tensor | float]]:
    """The network, and the batch-norm penalty of its last pass; with a weight, a copy in train mode that has hooks.

    In train mode the pass writes running statistics: in the copy, and what is compared with is from before.
    """
    if not weight:
        return net, lambda: 0.0
    own, gaps = copy.deepcopy(net).train(), dict[str, Tensor]()

    def watch(name: str, norm: nn.BatchNorm2d) -> None:
        assert norm.running_mean is not None
        assert norm.running_var is not None
        mean, unbiased = norm.running_mean.clone(), norm.running_var.clone()

        def hook(_: nn.Module, args: tuple[Tensor, ...]) -> None:
            x = args[0]
            count = x.numel() // x.shape[1]
            variance = unbiased * (count - 1) / count
            moments = x.mean((0, 2, 3)), x.var((0, 2, 3), correction=0)
            gaps[name] = (moments[0] - mean).norm() + (moments[1] - variance).norm()

        norm.register_forward_pre_hook(hook)

    for name, module in own.named_modules():
        if isinstance(module, nn.BatchNorm2d):
            watch(name, module)
    return own, lambda: weight * _sum(gaps.values())


@dataclass(frozen=True)
class Peer:
    """The loop on the images of a setting. ``only_image``: differentiate the loss with respect to nothing else."""

    setting: Setting
    only_image: bool

    def objective(self, image: int, x: Tensor) -> Callable[[], Tensor]:
        """The loss of one image as a function of nothing, with its constants computed."""
        client, size = 0 if self.setting.case.shared else image, self.setting.case.model.batch
        seen, label = self.setting.observations[client], self.setting.labels[client * size : (client + 1) * size]
        net, penalty = normed(self.setting.net, self.setting.case.model.statistics)
        params = list(net.parameters())
        names = [name for name, _ in self.setting.net.named_parameters()]
        observed = [seen.rounds[0].observed[name] for name in names]
        mask = seen.rounds[0].granted.get("random_prune.mask", {})
        assert not isinstance(mask, Tensor)
        matching = LOSSES[self.setting.case.kind](observed, [mask[name] for name in names] if mask else [])
        criterion, codes = nn.CrossEntropyLoss(), self.setting.case.model.codes
        decode = self.setting.case.model.generator() if codes else nn.Identity()

        def loss() -> Tensor:
            drawn = decode(x)
            gradient = torch.autograd.grad(criterion(net(drawn), label), params, create_graph=True)
            smooth = matching(gradient) + TV * total_variation(drawn) + penalty()
            return smooth + CODES * 0.5 * x.pow(2).sum() if codes else smooth

        return loss

    def attack(self, image: int, start: Tensor, steps: int, stamps: Stamps) -> Tensor:
        x = start.clone().requires_grad_()
        optimiser = torch.optim.Adam([x], lr=0.1)
        objective = self.objective(image, x)
        stamps.begin()
        for _ in range(steps):
            optimiser.zero_grad()
            self.setting.net.zero_grad()
            loss = objective()
            if self.only_image:
                (x.grad,) = torch.autograd.grad(loss, x)
            else:
                loss.backward()
            assert x.grad is not None
            x.grad.sign_()
            optimiser.step()
            if not self.setting.case.model.codes:
                with torch.no_grad():
                    x.clamp_(0, 1)
            stamps.tick()
        self.setting.net.zero_grad()
        return x.detach()

    @property
    def images(self) -> int:
        """How many images one run attacks, or batches."""
        model = self.setting.case.model
        return min(model.images, len(self.setting.labels) // model.batch)

    def run(self, steps: int, stamps: Stamps) -> None:
        """``steps`` iterations of each of the first images."""
        generator = torch.Generator().manual_seed(1)
        for image in range(self.images):
            start = torch.randn(self.setting.case.model.batch, *self.setting.case.model.unknown, generator=generator)
            self.attack(image, start, steps, stamps)


def _sum(terms: Iterable[Tensor]) -> Tensor:
    return torch.stack(list(terms)).sum()


def _entries(tensors: Tensors) -> int:
    return sum(t.numel() for t in tensors)
