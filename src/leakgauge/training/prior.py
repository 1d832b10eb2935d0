"""Training a prior on public records: a small variational autoencoder, or a Gaussian mixture of patches."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from leakgauge import guards
from leakgauge.errors import DomainError
from leakgauge.priors.generators import decoder_network, write_prior
from leakgauge.priors.patches import Mixture, patches_of
from leakgauge.types import Progress, Records

MOST_CODES = 10_000
"""Codes of a generator: a slip of the hand beyond, and memory that no machine has."""


@dataclass(frozen=True)
class TrainedPrior:
    """A trained prior: the ``content`` of its file, and how well it does on records that were held back.

    ``score`` is in dB for an autoencoder, how well it draws unseen records from their codes: no search of codes does
    much better; for patches it is their mean log density.
    """

    content: bytes
    score: float


def train_vae(
    records: Records,
    *,
    codes: int = 32,
    classes: bool = True,
    widths: tuple[int, ...] = (256, 512),
    epochs: int = 20,
    batch: int = 128,
    learning_rate: float = 1e-3,
    seed: int = 0,
    progress: Progress | None = None,
) -> TrainedPrior:
    """A variational autoencoder with linear layers: minutes on two cores for 60,000 pictures of 28 × 28.

    ``½ D log mse(x, G(z)) + KL(q(z | x), N(0, I))`` per record: the variance of pixels is the one that fits best, so
    that nothing weighs the two terms. One record in ten is held back to say how well it draws. With ``classes`` encoder
    and decoder are told the label: the prior is then ``p(x | y)``, for an adversary who knows or infers it.

    References:
        Kingma and Welling, Auto-Encoding Variational Bayes, 2014. https://arxiv.org/abs/1312.6114
        Rybkin et al., Simple and Effective VAE Training with Calibrated Decoders, 2021.
        https://arxiv.org/abs/2006.13202
    """
    with guards.together():
        for name, value in (("codes", codes), ("epochs", epochs), ("batch", batch)):
            guards.count(value, name, "train_vae")
        for width in widths or (0,):
            guards.count(width, "widths", "train_vae")
        guards.positive(learning_rate, "learning_rate", "train_vae")
        guards.seed(seed, "train_vae")
    if codes > MOST_CODES:
        what = f"{codes:,} codes are more than {MOST_CODES:,}"
        raise DomainError(what, where="train_vae", remedy="a record has fewer; 32 are many")
    inputs, domain = records.inputs.float(), records.domain
    if len(inputs) < 20:
        raise DomainError(f"{len(inputs)} records are too few", where="train_vae", remedy="give at least 20")
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(inputs), generator=generator)
    told = F.one_hot(records.labels, domain.classes).float() if classes else inputs.new_zeros(len(inputs), 0)
    count, held, used = told.shape[1], order[: len(order) // 10], order[len(order) // 10 :]
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        size, boxed = domain.size, domain.box is not None
        decoder = decoder_network(codes + count, widths, domain.shape, boxed)
        encoder = nn.Sequential(*_layers((size + count, *reversed(widths))), nn.Linear(widths[0], 2 * codes))
    weights = [*encoder.parameters(), *decoder.parameters()]
    steps = epochs * -(-len(used) // batch)
    optimiser = torch.optim.Adam(weights, learning_rate)
    falling = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    done = 0
    for _ in range(epochs):
        for some in torch.randperm(len(used), generator=generator).split(batch):
            x, y = inputs[used[some]], told[used[some]]
            mean, log_std = encoder(torch.cat([x.flatten(1), y], 1)).chunk(2, 1)
            noise = torch.randn(mean.shape, generator=generator)
            drawn = decoder(torch.cat([mean + log_std.exp() * noise, y], 1))
            divergence = 0.5 * (mean.square() + (2 * log_std).exp() - 2 * log_std - 1).sum(1).mean()
            loss = 0.5 * size * (drawn - x).square().mean().clamp(min=1e-8).log() + divergence
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            falling.step()
            done += 1
            if progress is not None:
                progress(done, steps, float(loss.detach()))
    facts = {
        "family": "vae",
        "codes": codes,
        "classes": count,
        "widths": list(widths),
        "shape": list(domain.shape),
        "boxed": boxed,
    }
    with torch.no_grad():
        x, y = inputs[held], told[held]
        mean = encoder(torch.cat([x.flatten(1), y], 1)).chunk(2, 1)[0]
        error = (decoder(torch.cat([mean, y], 1)) - x).square().flatten(1).mean(1)
    score = float((-10 * error.clamp(min=1e-12).log10()).mean())
    return TrainedPrior(write_prior(dict(decoder.state_dict()), facts, inputs), score)


def _layers(sizes: tuple[int, ...]) -> list[nn.Module]:
    return [layer for first, second in pairwise(sizes) for layer in (nn.Linear(first, second), nn.GELU())]


def train_patches(
    records: Records,
    *,
    size: int = 6,
    components: int = 16,
    samples: int = 40_000,
    iterations: int = 20,
    floor: float = 0.02,
    seed: int = 0,
    progress: Progress | None = None,
) -> TrainedPrior:
    """A Gaussian mixture of patches of ``size`` × ``size`` pixels, by expectation maximisation on ``samples`` of them.

    Every component has a full covariance, at least ``floor²`` in every direction: pictures with flat grounds have
    patches without any variance, whose density would be infinite.
    """
    with guards.together():
        for name, value in (("size", size), ("components", components), ("iterations", iterations)):
            guards.count(value, name, "train_patches")
        guards.count(samples, "samples", "train_patches", least=10)  # a tenth as many more are held back
        guards.positive(floor, "floor", "train_patches")
        guards.seed(seed, "train_patches")
    domain = records.domain
    if domain.kind != "image" or min(domain.shape[-2:]) < size:
        raise DomainError("patches need pictures that are larger", where="train_patches", remedy="train a vae")
    if not len(records):
        raise DomainError("there are no records", where="train_patches", remedy="give at least one")
    generator = torch.Generator().manual_seed(seed)
    points = _sampled(records.inputs, size, samples + samples // 10, generator)
    held, used = points[samples:], points[:samples]
    # by brightness at first: random groups are all alike, and would stay so for long
    ranks = used.mean(1).argsort().argsort() * components // len(used)
    mixture = _fitted(used, ranks, components, floor)
    for step in range(iterations):
        shares = torch.cat([mixture.parts(some).softmax(1) for some in used.split(8192)])
        mixture = _mixture(used, shares, floor)
        if progress is not None:
            progress(step + 1, iterations, -float(mixture.log_density(held[:2000]).mean()))
    tensors = {name: getattr(mixture, name).float() for name in ("logits", "means", "factors")}
    facts: dict[str, Any] = {"family": "patches", "size": size}
    return TrainedPrior(write_prior(tensors, facts, records.inputs), float(mixture.log_density(held).mean()))


def _sampled(inputs: Tensor, size: int, count: int, generator: torch.Generator) -> Tensor:
    """Patches from random places of random pictures."""
    each = max(1, -(-count // len(inputs)))
    chosen = torch.randperm(len(inputs), generator=generator)[: -(-count // each)]
    rows = []
    for some in chosen.split(256):
        cut = patches_of(inputs[some].double(), size)
        places = torch.randint(cut.shape[1], (len(cut), each), generator=generator)
        rows.append(cut.gather(1, places.unsqueeze(2).expand(-1, -1, size * size)).flatten(0, 1))
    points = torch.cat(rows)
    return points[torch.randperm(len(points), generator=generator)]


def _fitted(points: Tensor, group: Tensor, components: int, floor: float) -> Mixture:
    return _mixture(points, F.one_hot(group, components).to(points), floor)


def _mixture(points: Tensor, shares: Tensor, floor: float) -> Mixture:
    """The maximisation step: weights, means and covariances of the shared points."""
    total = shares.sum(0) + 1e-3
    means = shares.T @ points / total.unsqueeze(1)
    factors = []
    for k in range(len(total)):
        centred = points - means[k]
        covariance = (centred * shares[:, k : k + 1]).T @ centred / total[k]
        values, vectors = torch.linalg.eigh(covariance)
        inverse = (vectors / values.clamp(min=floor**2)) @ vectors.T
        factors.append(torch.linalg.cholesky((inverse + inverse.T) / 2))
    return Mixture((total / total.sum()).log(), means, torch.stack(factors))
