"""The laws of densities: what a part lets out follows what it says, and what it says is a density."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch
from scipy import stats
from torch import Tensor

from leakgauge.defenses import Conditions, EntryDensity, UpdatePart
from leakgauge.defenses.update.chain import is_noise
from leakgauge.testing.cells import Cells
from leakgauge.testing.samples import NAME, Directions, Entries, Releases, depends_on_statistics, pieces
from leakgauge.types import Known
from leakgauge.updates import Batch, Sloped, Stack

LEVELS = (0.0, 0.8, -1.7)
"""Entries of the updates that are tried; the last two make the pair."""


def sampler_agrees_with_density(
    part: UpdatePart,
    *,
    grant: Collection[str] = (),
    draws: int = 1_000,
    entries: int = 20_000,
    levels: Sequence[float] = LEVELS,
    failure_rate: float = 1e-6,
    seed: int = 1,
) -> float:
    """``release`` draws from ``exp(log_density)``: a chi-square test that a right part fails with ``failure_rate``.

    ``draws`` releases of one entry and of a pair, and one release of ``entries`` equal entries, are counted in cells
    (made from a fifth of them, which is not counted) and compared with the density's mass there; an atom at zero is a
    cell of its own. ``grant`` names the nuisances that are given to a density which conditions on them (the mask of a
    pruning before the noise), one test for each value they took. Noise on the sphere is counted in cells of the circle
    and of the sphere. A part with a statistic of the tensor (a threshold)
    is tested on entries only, given that statistic. Returns the least p-value.
    """
    samples = _samples(part, frozenset(grant), draws, entries, levels, seed)
    pairs = [(len(sample.values), *_split(sample)) for sample in samples]
    return min(_fits(pilot, rest, failure_rate) for size, pilot, rest in pairs if size >= 200)


def probabilities_sum_to_one(
    part: UpdatePart,
    *,
    grant: Collection[str] = (),
    entries: int = 2_000,
    levels: Sequence[float] = LEVELS,
    tolerance: float = 1e-4,
    seed: int = 1,
) -> float:
    """``∫ p(o | u) do + Σ P(atom) = 1``, and ``log_mass`` is the integral of ``log``, to ``tolerance``.

    Returns the largest difference.
    """
    worst = 0.0
    for sample in _samples(part, frozenset(grant), 200, entries, levels, seed):
        total = float(Cells.of(sample.values, sample.breaks(), sample.atoms()).masses(sample.log_density).sum())
        assert abs(total - 1) <= tolerance, f"{sample}: the density sums to {total:.6f}, not to one"
        worst = max(worst, abs(total - 1))
    for level in levels if part.support == "entries" else ():
        worst = max(worst, _masses_match(part, level, entries, tolerance, seed))
    return worst


def gradient_matches_finite_differences(
    part: UpdatePart, *, grant: Collection[str] = (), step: float = 1e-6, tolerance: float = 1e-5, seed: int = 1
) -> None:
    """The gradient of ``log_density`` in the update is its central difference, in float64; so is every known slope.

    Three updates at once, small to large, each with its own observed update; where an entrywise function knows its
    slope (:class:`leakgauge.updates.Sloped`), ``both`` must agree with ``value`` and its autograd derivative.
    """
    generator = torch.Generator().manual_seed(seed)
    shapes = {"first.weight": (2, 3), "first.bias": (2,), "last.weight": (3,)}
    scale = torch.tensor([0.1, 1.0, 4.0], dtype=torch.float64)
    update = {
        name: torch.randn(3, *shape, generator=generator, dtype=torch.float64) * scale.view(3, *[1] * len(shape))
        for name, shape in shapes.items()
    }
    observed, known = _observed(part, update, frozenset(grant), generator)
    live = {name: value.clone().requires_grad_() for name, value in update.items()}
    slopes = torch.autograd.grad(part.log_density(observed, Batch.of(live), known=known).sum(), list(live.values()))
    for (name, value), slope in zip(update.items(), slopes, strict=True):
        measured = torch.zeros_like(value)
        for place in np.ndindex(*value.shape[1:]):
            ahead, behind = (dict(update) | {name: value.clone()} for _ in range(2))
            ahead[name][(slice(None), *place)] += step
            behind[name][(slice(None), *place)] -= step
            gap = [part.log_density(observed, Batch.of(moved), known=known) for moved in (ahead, behind)]
            measured[(slice(None), *place)] = (gap[0] - gap[1]) / (2 * step)
        _close(slope, measured, tolerance, f"{part!r}: the gradient of log_density in {name!r}")
    for row in range(len(scale)):
        density = entry_density_of(part, {key: tree["first.weight"][row] for key, tree in known.items()})
        if density is not None and isinstance(density.log, Sloped):
            slope_matches_autograd(density.log, update["first.weight"][row], observed["first.weight"][row])


def slope_matches_autograd(fn: Sloped, u: Tensor, *others: Tensor, tolerance: float = 1e-8) -> None:
    """``both`` returns the sum of ``value`` and its derivative in u, and writes to no tensor but u; ``gain`` is right.

    All are blocks ``[rows, columns]``, as the ghost path gives them.
    """
    live = u.clone().requires_grad_()
    value = fn.value(live, *others)
    (derivative,) = torch.autograd.grad(value.sum(), live)
    copies = [other.clone() for other in others]
    total, slope, factor = fn.both(u.clone(), *others)
    _close(total, value.detach().sum(), tolerance, "the sum of both()")
    _close(factor * slope, derivative, tolerance, "the slope of both()")
    if fn.gain is not None:
        wanted = value.detach() - fn.value(torch.zeros_like(u), *others)
        _close(fn.gain(u.clone(), *others), wanted, tolerance, "the gain")
    for other, before in zip(others, copies, strict=True):
        assert torch.equal(other, before), "both() or gain() wrote to a tensor that is not its own"


def entry_density_of(part: UpdatePart, known: Conditions) -> EntryDensity | None:
    """The density of one entry that a chain is made of, from the verbs of its parts; None where there is none.

    ``known`` holds what is known at the entries in question, by address.
    """
    density: EntryDensity | None = None
    hidden: list[UpdatePart] = []
    for piece, own in pieces(part, known):
        if density is not None:
            density = piece.after(density, own)
        elif is_noise(piece):
            density = piece.density_given(own)
            for outer in hidden:
                density = outer.before(density) if density else None
        elif piece.nuisances and not any(nuisance.name in own for nuisance in piece.nuisances):
            hidden.append(piece)
    return density


Sample = Releases | Entries | Directions


def _samples(
    part: UpdatePart, grant: frozenset[str], draws: int, entries: int, levels: Sequence[float], seed: int
) -> Iterator[Sample]:
    """Releases of one entry and of a pair, where the part allows it; then entries of one release.

    On the sphere: releases of two and of three entries and of zeros, twice as many for want of entries.
    """
    if part.support == "sphere":
        for few in ([*levels[-2:]], [*levels[-2:], 0.3], [0.0, 0.0]):
            direction = torch.tensor(few, dtype=torch.float64)
            yield from Directions.granted(part, direction, grant, draws=2 * draws, seed=seed)
        return
    if not depends_on_statistics(part):
        updates = [torch.tensor([level], dtype=torch.float64) for level in levels]
        for update in (*updates, torch.tensor(levels[-2:], dtype=torch.float64)):
            yield from Releases.granted(part, update, grant, draws=draws, seed=seed)
    for level in levels:
        yield from Entries.granted(part, level, grant, entries=entries, seed=seed)


def _split(sample: Sample) -> tuple[Sample, Sample]:
    """A fifth, to make the cells from, and the rest, to count in them; both given the same known."""
    fifth = len(sample.values) // 5
    return replace(sample, values=sample.values[:fifth]), replace(sample, values=sample.values[fifth:])


def _fits(pilot: Sample, sample: Sample, failure_rate: float) -> float:
    size = len(sample.values)
    if not bool(sample.values.any()):  # nothing but the atom at zero: there are no cells to make
        chance = float(sample.log_density(sample.values[:1]).exp()) ** size
        assert chance >= failure_rate, f"{sample}: {size} draws are zero, which has probability {chance:.1e}"
        return min(chance, 1.0)
    cells = Cells.of(pilot.values, pilot.breaks(), pilot.atoms())
    expected = cells.masses(sample.log_density) * size
    counted = cells.counts(sample.values).double()
    counted, expected = _merged(counted, expected)
    statistic = float(((counted - expected).square() / expected).sum())
    p = float(stats.chi2.sf(statistic, len(counted) - 1)) if len(counted) > 1 else 1.0
    if not p >= failure_rate:  # NaN too
        worst = int(((counted - expected).square() / expected).argmax())
        raise AssertionError(
            f"{sample}: {size} draws do not follow the density (chi-square {statistic:.1f} in "
            f"{len(counted)} cells, p = {p:.1e} < {failure_rate:.0e}); the worst cell holds {int(counted[worst])} "
            f"draws where {float(expected[worst]):.1f} were expected"
        )
    return p


def _merged(counted: Tensor, expected: Tensor, least: float = 8.0) -> tuple[Tensor, Tensor]:
    """Cells in which fewer than ``least`` are expected become one, as the chi-square law wants."""
    large = expected >= least
    few = ~large
    pairs = [(counted[large], expected[large])]
    if bool(few.any()):
        pairs.append((counted[few].sum().view(1), expected[few].sum().clamp(min=1.0).view(1)))
    return torch.cat([c for c, _ in pairs]), torch.cat([e for _, e in pairs])


def _masses_match(part: UpdatePart, level: float, entries: int, tolerance: float, seed: int) -> float:
    """``exp(log_mass)`` of intervals around and beside zero against the integral of ``exp(log)`` there."""
    sample = Entries.draw(part, level, entries=entries, seed=seed)
    density = entry_density_of(part, sample.known)
    moved = _moved(part, level, entries, {key: {NAME: value} for key, value in sample.known.items()})
    if density is None or moved is None:
        return 0.0
    u = torch.tensor([moved], dtype=torch.float64)
    cells = Cells.of(sample.values, [*sample.breaks(), moved], sample.atoms())
    axis = cells.axes[0]
    masses = cells.masses(lambda o: density.log(u.expand(len(o)), o.squeeze(1)))
    inner = masses[: len(axis.edges) + 1]
    worst = 0.0
    edges = [(i, j) for i in range(0, len(axis.edges), 3) for j in range(i + 1, len(axis.edges), 5)]
    for i, j in edges:
        low, high = axis.edges[i : i + 1], axis.edges[j : j + 1]
        wanted = float(inner[i + 1 : j + 1].sum())
        wanted += float(masses[len(axis.edges) + 1 :][(low < axis.atoms) & (axis.atoms < high)].sum())
        mass = float(density.log_mass(u, low, high).exp())
        worst = max(worst, abs(mass - wanted))
        assert abs(mass - wanted) <= tolerance, (
            f"{sample}: log_mass gives ({float(low):.4f}, {float(high):.4f}) the probability {mass:.6f}, "
            f"the density integrates to {wanted:.6f}"
        )
    return worst


def _moved(part: UpdatePart, level: float, entries: int, known: Known) -> float | None:
    """The entry at the door of the noise: what the deterministic maps before it make of an update of equal entries."""
    update = Batch.of({NAME: torch.full((1, entries), level, dtype=torch.float64)})
    for piece, own in pieces(part, known):
        if is_noise(piece):
            return float(update.dense()[NAME][0, 0])
        moved = piece.apply(update, own)
        update = moved if isinstance(moved, Batch) else update
    return None


def _observed(
    part: UpdatePart, update: dict[str, Tensor], grant: frozenset[str], generator: torch.Generator
) -> tuple[Stack, Known]:
    """What N updates let out, stacked, with what is seen or granted."""
    rows = len(next(iter(update.values())))
    releases = [part.release({n: v[i] for n, v in update.items()}, None, generator=generator) for i in range(rows)]
    observed = Stack({name: torch.stack([out.observed[name] for out in releases]) for name in update})
    known: dict[str, dict[str, Tensor]] = {key: dict(tree) for key, tree in part.visible(observed).items()}
    for key in releases[0].drawn:
        if key.rpartition(".")[2] in grant:
            known[key] = {name: torch.stack([out.drawn[key][name] for out in releases]) for name in update}
    return observed, known


def _close(value: Tensor, wanted: Tensor, tolerance: float, what: str) -> None:
    gap = (value - wanted).abs()
    allowed = tolerance * (1 + wanted.abs())
    if bool((gap <= allowed).all()):
        return
    place = int((gap - allowed).flatten().argmax())
    raise AssertionError(
        f"{what} is {float(value.flatten()[place]):.8g} where {float(wanted.flatten()[place]):.8g} was expected"
    )
