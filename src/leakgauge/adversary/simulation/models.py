"""The model of one mechanism: a rearrangement, a traced or linear map, or mean and variance of a random release."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

import torch
from torch import Tensor

from leakgauge.adversary.simulation.linear import Linear, linear
from leakgauge.adversary.simulation.maps import at_seed, is_differentiable, slopes_of, straight_through
from leakgauge.adversary.simulation.mechanism import FEWEST, Mechanism, flat, shaped
from leakgauge.adversary.simulation.rearrangement import Rearrangement, Run, fitted, probed
from leakgauge.adversary.simulation.residuals import dependence, differences, has_tails, shared_directions, usual_size
from leakgauge.adversary.simulation.stand_ins import (
    Dropped,
    Entries,
    Estimated,
    Flipped,
    Impulsive,
    Rearranged,
    StandIn,
    Traced,
)
from leakgauge.defenses import UpdatePart

Probes = tuple[Tensor, Tensor]
"""The slopes of every seed ``[S, P]``, and the one source of every entry."""
PAIRED = 16
"""Further releases of every known update, which show what the entries of its noise share."""
EXPLAINED = 0.5
"""The least share of what varies between releases that a slope must explain to stand for a map."""
FLOOR = 1e-2
"""The smallest standard deviation of an entry, in root mean squares of its tensor: no noise is none at all."""
LEAST = 5e-2
"""The same of an entry beside impulses: a narrower law would not lead there from afar."""


def model_of(mechanism: Mechanism) -> StandIn | str:
    """A stand-in for the part, or why there is none."""
    return _deterministic(mechanism) if mechanism.deterministic else _random(mechanism)


def _deterministic(mechanism: Mechanism) -> StandIn | str:
    part = mechanism.part
    if not mechanism.asks:
        inputs = [flat(one) for one in mechanism.inputs]
        rearrangement = fitted(_run(mechanism, 0), [one.double() for one in inputs], _sizes(mechanism))
        if rearrangement is not None:
            return Rearranged(part, how=rearrangement, sentence="simulated: it only renames, scales or shifts entries")
        how = at_seed(mechanism, 0)
        if is_differentiable(how, inputs):
            return Traced(part, how=how, sentence="simulated: deterministic, and differentiated as it is")
        mixing = _mixing(mechanism)
        if mixing is not None:
            return Traced(part, how=mixing, sentence="simulated: it mixes entries linearly, as probing each shows")
    x, y = torch.stack([flat(one).double() for one in mechanism.inputs]), mechanism.releases((0,))[:, 0]
    slope, explained = slopes_of(x, y, mechanism.inputs[0])
    if explained < EXPLAINED:
        what = "it asks the client for its records" if mechanism.asks else "it cannot be differentiated"
        return f"{what}, and a slope per tensor explains {explained:.0%} of what its releases vary"
    if mechanism.asks:
        return _estimate(mechanism, _affine(slope, x, y), y.unsqueeze(1), x)
    words = "simulated: deterministic; its slope is taken straight through"
    return Traced(part, how=straight_through(how, slope), sentence=words)


def _mixing(mechanism: Mechanism) -> Linear | None:
    """The linear map that a part is; probed once for every part and shape of update, since that takes a while."""
    shapes = tuple((name, tuple(mechanism.inputs[0][name].shape)) for name in sorted(mechanism.inputs[0]))
    try:
        return _probed_once(_Probe(mechanism.part, shapes, mechanism))
    except TypeError:  # a part of somebody's own need not be hashable
        return _probed_once.__wrapped__(_Probe(mechanism.part, shapes, mechanism))


@dataclass(frozen=True)
class _Probe:
    """A part and the shapes of what it gets: they decide what it computes, as it sees nothing of the client."""

    part: UpdatePart
    shapes: tuple[tuple[str, tuple[int, ...]], ...]
    mechanism: Mechanism = field(compare=False)


@lru_cache(maxsize=2)
def _probed_once(probe: _Probe) -> Linear | None:
    mechanism = probe.mechanism
    return linear(_run(mechanism, 0), [flat(one) for one in mechanism.inputs], _sizes(mechanism))


def _random(mechanism: Mechanism) -> StandIn | str:
    x = torch.stack([flat(one).double() for one in mechanism.inputs])
    if mechanism.seeds < FEWEST:
        return f"it is random, and {x.shape[1]:,} numbers are too many to simulate its noise"
    releases = mechanism.releases(range(mechanism.seeds))
    if _is_shuffled(releases, x):
        return "it sends the entries in an order that is drawn anew"
    mean: Entries | None = None
    if mechanism.repeatable and not mechanism.asks:
        probes = _probed(mechanism, x)
        dropped = None if probes is None else _dropped(probes, releases, x)
        if dropped is not None:
            words = "simulated: it drops entries at random, which shows, and renames or scales the others"
            share = min(float((releases == 0).double().mean()), 1 - 1e-6)
            return Dropped(mechanism.part, how=dropped, share=share, sentence=words)
        flipped = None if probes is None else _flipped(mechanism, probes, releases, x)
        if flipped is not None:
            return flipped
        impulsive = None if probes is None else _impulsive(mechanism, probes, releases, x)
        if impulsive is not None:
            return impulsive
        rearranged = None if probes is None else _rearranged_mean(mechanism, probes, releases, x)
        mean = rearranged or _traced_mean(mechanism, releases)
    if mean is None:
        noise = releases.var(1).mean(0) / releases.shape[1]
        slope, explained = slopes_of(x, releases.mean(1), mechanism.inputs[0], noise)
        if explained < EXPLAINED:
            return f"it is random, and a slope per tensor explains {explained:.0%} of what its mean releases vary"
        mean = _affine(slope, x, releases.mean(1))
    return _estimate(mechanism, mean, releases, x)


def _estimate(mechanism: Mechanism, mean: Entries, releases: Tensor, x: Tensor) -> StandIn | str:
    """The stand-in of a random release with this mean; ``releases`` is ``[R, K, P]``."""
    with torch.no_grad():
        means = mean(x.to(flat(mechanism.inputs[0]))).double()
    away = releases - means.unsqueeze(1)
    scale = (releases * means.unsqueeze(1)).sum(2, keepdim=True) / means.square().sum(1).view(-1, 1, 1).clamp(
        min=1e-300
    )
    unscaled = releases - scale * means.unsqueeze(1)
    if float(unscaled.square().sum()) < 1e-6 * float(away.square().sum()):
        if bool((scale < 0).any()):
            return "it multiplies the update by a random number of either sign"
        words = "simulated: a random positive scale, cancelled since directions alone are matched"
        return Traced(mechanism.part, how=mean, sentence=words)
    sizes = [mechanism.inputs[0][name].numel() for name in sorted(mechanism.inputs[0])]
    signal = torch.cat([one.square().mean().expand(one.shape[1]) for one in means.split(sizes, 1)])
    least = (FLOOR**2 * signal).clamp(min=torch.finfo(torch.float32).tiny)
    spread = torch.maximum(away.square().mean((0, 1)), least).sqrt()
    shared = releases.new_zeros(releases.shape[2], 0)
    if releases.shape[1] > 1:
        noise = differences(mechanism.releases(range(min(PAIRED, mechanism.seeds)), apart=mechanism.seeds))
        spread = torch.maximum(spread, noise.square().mean((0, 1)).sqrt())  # an entry that changes seldom is no outlier
        noise = noise / spread
        shared = shared_directions(noise.flatten(0, 1), sizes)
        noise = noise - noise @ shared @ shared.T
        fault = dependence(torch.where(noise.square().mean((0, 1)) > 1e-12, noise, 0.0), sizes)
        if fault:
            return fault
    away = away - (away / spread) @ shared @ shared.T * spread
    variance = torch.maximum(away.square().mean((0, 1)), least)
    basis = torch.linalg.qr(shared * (spread / variance.sqrt()).unsqueeze(1))[0]
    words = f"simulated: mean and variance per entry from {releases.shape[0] * releases.shape[1]} releases"
    also = f", without the {shared.shape[1]} directions that its noise shares" if shared.shape[1] else ""
    sentence = f"{words} of known updates{also}"
    return Estimated(mechanism.part, how=mean, variance=variance, shared=basis, sentence=sentence)


def _probed(mechanism: Mechanism, x: Tensor) -> Probes | None:
    """The slopes of every seed ``[S, P]``, and the one source of every entry; None if there is no such thing."""
    slopes, source, named = [], torch.arange(x.shape[1]), torch.zeros(x.shape[1], dtype=torch.bool)
    sizes = _sizes(mechanism)
    for seed in range(mechanism.seeds):
        probe = probed(_run(mechanism, seed), x[0], sizes)
        if probe is None:
            return None
        live = probe[0] != 0
        if bool((live & named & (source != probe[1])).any()):
            return None
        source, named = torch.where(live, probe[1], source), named | live
        slopes.append(probe[0])
    return torch.stack(slopes), source


def _dropped(probes: Probes, releases: Tensor, x: Tensor) -> Rearrangement | None:
    """The map of the entries that are not dropped, where a release is that or zero."""
    slopes, source = probes
    most = slopes.gather(0, slopes.abs().argmax(0, keepdim=True))[0]
    survivors = Rearrangement(most, source, torch.zeros_like(most))
    away = (releases - survivors(x).unsqueeze(1)).abs() * (releases != 0)
    return survivors if float(away.max()) <= 1e-4 * float(releases.abs().max()) else None


def _is_shuffled(releases: Tensor, x: Tensor) -> bool:
    """Whether every release ``[R, K, P]`` holds the entries of its update ``[R, P]``, in some order."""
    gaps = (releases.sort(2).values - x.sort(1).values.unsqueeze(1)).abs().amax()
    return float(gaps) <= 1e-5 * float(x.abs().max())


def _flipped(mechanism: Mechanism, probes: Probes, releases: Tensor, x: Tensor) -> Flipped | None:
    """The stand-in of a map of single entries after which signs are drawn at random."""
    slopes, source = probes
    size = slopes.abs().amax(0)
    away = (releases.abs() - (size * x[:, source]).abs().unsqueeze(1)).abs()
    if float(away.max()) > 1e-4 * float(releases.abs().max()):
        return None
    sizes = [mechanism.inputs[0][name].numel() for name in sorted(mechanism.inputs[0])]
    shares = torch.cat([(one < 0).double().mean().expand(one.shape[1]) for one in slopes.split(sizes, 1)])
    signal = [one.square().mean().sqrt().expand(one.shape[1]) for one in (size * x[:, source]).split(sizes, 1)]
    return Flipped(
        mechanism.part,
        how=Rearrangement(size, source, torch.zeros_like(size)),
        scale=(LEAST * torch.cat(signal)).clamp(min=torch.finfo(torch.float32).tiny),
        share=shares.clamp(1e-6, 1 - 1e-6),
        sentence="simulated: it draws the signs of entries, whose sizes are sent as they are",
    )


def _impulsive(mechanism: Mechanism, probes: Probes, releases: Tensor, x: Tensor) -> Impulsive | None:
    """The stand-in where a release is a map of single entries, up to noise that is far larger in some than in others.

    The map is that of the entries that still move with their source, its offset what most releases have; None where
    the noise has no such tails, or hides in a tensor of which little moves.
    """
    slopes, source = probes
    moving = torch.where(slopes != 0, slopes, torch.nan).nanmedian(0).values.nan_to_num(0.0)
    means = moving * x[:, source]
    offset = (releases - means.unsqueeze(1)).flatten(0, 1).median(0).values
    noise = releases - (means + offset).unsqueeze(1)
    sizes = [mechanism.inputs[0][name].numel() for name in sorted(mechanism.inputs[0])]
    scales, with_tails = [], False
    for one, mean, slope in zip(noise.split(sizes, 2), means.split(sizes, 1), moving.split(sizes), strict=True):
        signal = float(mean.square().mean().sqrt())
        if has_tails(one) and float(one.square().mean().sqrt()) > FLOOR * signal:
            with_tails = True
            if float((slope != 0).double().mean()) < 0.5:
                return None
        scales.append(max(usual_size(one), LEAST * signal, torch.finfo(torch.float32).tiny))
    if not with_tails:
        return None
    words = "simulated: it maps single entries, under noise that is far larger in a few of them than in the others"
    scale = torch.cat([moving.new_full((size,), each) for size, each in zip(sizes, scales, strict=True)])
    return Impulsive(mechanism.part, how=Rearrangement(moving, source, offset), scale=scale, sentence=words)


def _rearranged_mean(mechanism: Mechanism, probes: Probes, releases: Tensor, x: Tensor) -> Entries | None:
    """The mean as slopes of single entries: additive noise, and random scales of entries."""
    slopes, source = probes
    slope = _pooled(slopes, mechanism)
    offset, error = _offset(releases, slope * x[:, source])
    mean = Rearrangement(slope, source, offset)
    gap = (releases.mean(1) - mean(x)).square().mean(0)
    return mean if bool((gap <= 25 * (error.square() * len(x) + 1e-8 * x.square().mean())).all()) else None


def _pooled(slopes: Tensor, mechanism: Mechanism) -> Tensor:
    """The mean slope of every entry over seeds ``[S, P]``: one for a whole tensor where its entries agree."""
    mean, error = slopes.mean(0), slopes.var(0) / len(slopes)
    sizes = [mechanism.inputs[0][name].numel() for name in sorted(mechanism.inputs[0])]
    pieces = []
    for one, noise in zip(mean.split(sizes), error.split(sizes), strict=True):
        alike = len(one) > 1 and float(one.var()) <= 2 * float(noise.mean())
        pieces.append(one.mean().expand_as(one) if alike else one)
    return torch.cat(pieces)


def _traced_mean(mechanism: Mechanism, releases: Tensor) -> Entries | None:
    """``E f(u) ≈ m₀ + mean_s [f_s(u) − f_s(u₀)]``: under a common seed, additive noise cancels in the difference."""
    inputs = [flat(one) for one in mechanism.inputs]
    first, second = at_seed(mechanism, 0), at_seed(mechanism, 1)
    if not is_differentiable(first, inputs):
        return None
    probes = torch.stack(inputs)
    with torch.no_grad():
        gaps = [(how(probes) - how(probes[:1])).double() for how in (first, second)]
    additive = float((gaps[0] - gaps[1]).abs().max()) <= 1e-3 * float(gaps[0].abs().max())
    maps = [first] if additive else [at_seed(mechanism, seed) for seed in range(8)]
    base = [how(probes[:1]).detach() for how in maps]

    def change(entries: Tensor) -> Tensor:
        return torch.stack([how(entries) - start.to(entries) for how, start in zip(maps, base, strict=True)]).mean(0)

    with torch.no_grad():
        level = (releases.mean(1) - change(probes).double()).mean(0)
    return lambda entries: level.to(entries) + change(entries)


def _affine(slope: Tensor, x: Tensor, y: Tensor) -> Rearrangement:
    return Rearrangement(slope, torch.arange(x.shape[1]), (y - slope * x).mean(0))


def _offset(releases: Tensor, predicted: Tensor) -> tuple[Tensor, Tensor]:
    """What releases ``[R, K, P]`` exceed their prediction by, zero where that is chance, and its standard error."""
    rest = releases - predicted.unsqueeze(1)
    error = (rest.flatten(0, 1).var(0) / rest[..., 0].numel()).sqrt()
    offset = rest.mean((0, 1))
    return torch.where(offset.abs() > 5 * error + 1e-6 * releases.abs().amax((0, 1)), offset, 0.0), error


def _run(mechanism: Mechanism, seed: int) -> Run:
    like = mechanism.inputs[0]
    first = flat(like)

    def run(entries: Tensor) -> Tensor:
        with torch.no_grad():
            return flat(mechanism.run(shaped(entries.to(first), like), seed)).double()

    return run


def _sizes(mechanism: Mechanism) -> Tensor:
    """The usual size of every entry: the root mean square of its tensor over the known updates."""
    like = mechanism.inputs[0]
    squares = [
        torch.stack([one[name].double().square().mean() for one in mechanism.inputs]).mean() for name in sorted(like)
    ]
    overall = torch.stack(squares).mean()
    return torch.cat(
        [
            (square if float(square) else overall).clamp(min=1e-300).sqrt().expand(like[name].numel())
            for name, square in zip(sorted(like), squares, strict=True)
        ]
    )
