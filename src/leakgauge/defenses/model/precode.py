"""PRECODE: a variational bottleneck in front of the last layer."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

import torch
from torch import Generator, Tensor, nn

from leakgauge import guards
from leakgauge.defenses.stages import ModelPart
from leakgauge.errors import ModelError
from leakgauge.expr import register
from leakgauge.laws import Normal
from leakgauge.types import Domain, Loss, Nuisance

NAME = "precode"
Form = Literal["official", "bayes"]
MOST_ADDED = 200_000_000
"""Weights of a bottleneck: `check` builds it, and must not fill memory for a number in a spec."""


class Bottleneck(nn.Module):
    """``h ↦ μ, σ = encode(h);  b = μ + ε σ;  decode(b)``, with ``ε`` in the buffer ``noise``.

    Official: one linear layer gives μ and ``σ = softplus``, one linear layer decodes. In the form of the Bayes paper
    a layer with ReLU comes first, two heads give μ and ``log σ²``, and the decoder ends in a ReLU. ``divergence`` is
    ``KL(N(μ, σ²) ‖ N(0, 1))`` of the pass under way, summed over the code: in bits officially, else in nats.
    """

    noise: Tensor

    def __init__(self, features: int, k: int, form: Form) -> None:
        super().__init__()
        self.form, self.k = form, k
        if form == "official":
            self.encoder = nn.Linear(features, 2 * k)
        else:
            self.first = nn.Linear(features, k)
            self.mean, self.log_var = nn.Linear(k, k), nn.Linear(k, k)
        self.decoder = nn.Linear(k, features)
        self.register_buffer("noise", torch.zeros(1, k), persistent=False)
        self.divergence: Tensor | None = None

    def code(self, h: Tensor) -> tuple[Tensor, Tensor]:
        """μ and σ."""
        if self.form == "official":
            mean, raw = self.encoder(h).chunk(2, -1)
            return mean, nn.functional.softplus(raw)
        first = self.first(h).relu()
        return self.mean(first), (0.5 * self.log_var(first)).exp()

    def forward(self, h: Tensor) -> Tensor:
        mean, std = self.code(h)
        unit = math.log(2) if self.form == "official" else 1.0
        variance = std.square()
        self.divergence = 0.5 * (mean.square() + variance - 1 - variance.log()).sum(-1) / unit
        decoded: Tensor = self.decoder(mean + self.noise * std)
        return decoded if self.form == "official" else decoded.relu()


@dataclass(frozen=True)
class _Enter:
    """A forward pre-hook of the last layer: its input goes through the bottleneck first.

    A value and not a closure: a copy of the model then copies it too, with its own bottleneck.
    """

    bottleneck: Bottleneck

    def __call__(self, module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        return (self.bottleneck(args[0]), *args[1:])


@dataclass(frozen=True)
class _Leave:
    """A forward hook of the whole model: the divergence becomes one more column of the outputs."""

    bottleneck: Bottleneck

    def __call__(self, module: nn.Module, args: tuple[Any, ...], outputs: Tensor) -> Tensor:
        divergence = self.bottleneck.divergence
        assert divergence is not None  # the last layer has been called
        self.bottleneck.divergence = None  # a model that holds part of a graph cannot be copied
        return torch.cat([outputs, divergence.unsqueeze(-1)], -1)


@dataclass(frozen=True)
class WithDivergence:
    """``ℓ(z, y) + β KL``: the last column of the outputs is the divergence."""

    loss: Loss
    beta: float

    def __call__(self, outputs: Tensor, labels: Tensor) -> Tensor:
        return self.loss(outputs[..., :-1], labels) + self.beta * outputs[..., -1]


@register("defense", "precode")
@dataclass(frozen=True, repr=False)
class Precode(ModelPart):
    """A variational bottleneck of ``k`` codes between the last hidden layer and the last linear one.

    Its noise is drawn in every pass, in eval mode too. ``form="official"``: encoder d → 2k, decoder k → d, loss
    ``+ beta KL`` in bits, beta 1e-3; ``form="bayes"``: the re-implementation that the Bayes paper breaks, with one more
    layer, a ReLU at the end and 3e-3 in nats (its slip, a stored μ that is log σ², is not repeated). New weights are
    torch's default, or ``U(−uniform, uniform)``, a function of ``seed``. What lies in front of the bottleneck
    still sends ordinary gradients of the record: that is what its adversary uses.

    References:
        Scheliga et al., PRECODE: A Generic Model Extension to Prevent Deep Gradient Leakage, 2022.
        https://arxiv.org/abs/2108.04725
        Balunović et al., Bayesian Framework for Gradient Leakage, 2022. https://arxiv.org/abs/2111.04706
    """

    k: int = 256
    beta: float | None = None
    form: Form = "official"
    uniform: float | None = None
    seed: int = 0
    nuisances: ClassVar[tuple[Nuisance, ...]] = (Nuisance("noise", per="example", law=Normal()),)
    columns: ClassVar[int] = 1

    def __post_init__(self) -> None:
        with guards.together():
            guards.count(self.k, "k", "precode")
            if self.beta is not None:
                guards.non_negative(self.beta, "beta", "precode")
            if self.uniform is not None:
                guards.positive(self.uniform, "uniform", "precode")
            guards.choice(self.form, "form", "precode", get_args(Form))
            guards.seed(self.seed, "precode")

    def wrap(self, model: nn.Module, domain: Domain) -> nn.Module:
        if any(isinstance(module, Bottleneck) for module in model.modules()):
            return model
        last = last_linear(model, domain.classes)
        shared = {id(t): t for t in (*model.parameters(), *model.buffers())}
        own = copy.deepcopy(model, shared)
        place = own.get_submodule(last)
        assert isinstance(place, nn.Linear)  # last_linear looked
        added = self.k * (3 * place.in_features if self.form == "official" else 2 * (place.in_features + self.k))
        if added > MOST_ADDED:
            raise ModelError(f"would add {added:,} weights", where=repr(self), remedy="say a smaller k")
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(self.seed)
            bottleneck = Bottleneck(place.in_features, self.k, self.form)
            if self.uniform is not None:
                for parameter in bottleneck.parameters():
                    nn.init.uniform_(parameter, -self.uniform, self.uniform)
        bottleneck.to(place.weight)
        place.add_module(NAME, bottleneck)  # below the last layer: a Sequential would call a layer of its own
        place.register_forward_pre_hook(_Enter(bottleneck))
        own.register_forward_hook(_Leave(bottleneck))
        return own

    def loss(self, loss: Loss) -> Loss:
        default = 1e-3 if self.form == "official" else 3e-3
        return WithDivergence(loss, default if self.beta is None else self.beta)

    def draw(self, model: nn.Module, batch: int, steps: int, *, generator: Generator) -> dict[str, Tensor]:
        shape = (batch, self.k) if steps == 1 else (batch, steps, self.k)
        return {"noise": Normal().sample(shape, generator=generator)}

    def buffers(self, model: nn.Module) -> dict[str, str]:
        return {"noise": f"{bottleneck_of(model)[0]}.noise"}


def bottleneck_of(model: nn.Module) -> tuple[str, Bottleneck]:
    """The name and the module of a wrapped model's bottleneck."""
    return next((name, module) for name, module in model.named_modules() if isinstance(module, Bottleneck))


def last_linear(model: nn.Module, classes: int) -> str:
    """The name of the last linear layer, if there is a hidden layer before it."""
    linear = {name: module for name, module in model.named_modules() if isinstance(module, nn.Linear) and name}
    last = next(reversed(linear), "")
    if not last or linear[last].out_features != classes:
        raise ModelError(
            f"the model has no linear layer with {classes} outputs at its end",
            where="precode",
            remedy="the bottleneck goes in front of the layer that gives the classes; end the model in nn.Linear",
        )
    trained = [name for name, module in model.named_modules() if list(module.parameters(recurse=False))]
    if len(trained) < 2:
        raise ModelError(
            "the model has no hidden layer to put a bottleneck behind",
            where="precode",
            remedy="use a model with at least one trained layer before the last one",
        )
    return last
