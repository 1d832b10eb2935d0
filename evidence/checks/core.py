"""The core: densities, gradient paths, solvers, independence."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from scipy import stats
from torch import Tensor, nn

import leakgauge as lg
from evidence import Context, Measurement, Number, above, at_least, at_most, check, exactly, numbers
from leakgauge import types
from leakgauge.adversary import (
    Likelihood,
    adam,
    adversary,
    cosine,
    cosine_decay,
    density,
    exponential,
    l1,
    l2,
    lbfgs,
    momentum,
    scaled_l2,
    signed_adam,
)
from leakgauge.adversary.ghost import Ghost
from leakgauge.adversary.paths import Vmap
from leakgauge.adversary.solver import Ball, Problem
from leakgauge.defenses import Gaussian, UpdatePart, of_stage
from leakgauge.metrics import psnr
from leakgauge.testing import (
    attack_reaches_map,
    neutral_is_identity,
    probabilities_sum_to_one,
    sampler_agrees_with_density,
    small_task,
    with_density,
)
from leakgauge.types import Candidate, Domain, Records, Tree
from leakgauge.updates import Sharing, stacked


@dataclass(frozen=True, repr=False)
class TooLoud(Gaussian):
    """A control: noise 3 % louder than its density says, which the law must reject."""

    def release(self, update: Tree, context: types.Context | None, *, generator: torch.Generator) -> types.Release:
        return Gaussian(1.03 * self.std).release(update, context, generator=generator)


def _fit(part: UpdatePart, grant: tuple[str, ...]) -> float:
    # the density of a clipped entry depends on how many there are, and has to be asked for all of them at once
    return sampler_agrees_with_density(
        part, grant=grant, draws=5_000, entries=20_000 if "clip" in repr(part) else 100_000
    )


@check("goodness_of_fit", rows="sampler-density", cost="minutes")
def goodness_of_fit(context: Context) -> Measurement:
    """Chi-square test of every part and chain with a density: what is released against the density."""
    rows = []
    for part, grant in with_density():
        context.say(f"{part!r} {list(grant) or ''}")
        rows.append((repr(part), grant, _fit(part, grant)))
    least = min(p for *_, p in rows)
    try:
        _fit(TooLoud(0.3), ())
        rejected = False
    except AssertionError:
        rejected = True
    return Measurement(
        {"least p-value": Number(least, above(1e-6)), "controls that pass": Number(int(not rejected), exactly(0))},
        detail=f"least p-value of {len(rows)} parts and chains; a right part fails with probability 1e-6 each, "
        f"a control that is 3 % too loud {'is rejected' if rejected else 'PASSES'}",
        table=[{"part": part, "granted": ", ".join(grant) or "—", "p": f"{p:.3g}"} for part, grant, p in rows],
    )


@check("intervals_sum_to_one", rows="sampler-density", cost="minutes")
def intervals_sum_to_one() -> Measurement:
    """The largest |1 − Σ p| over every part and chain with a density, atoms and intervals included."""
    worst = max(probabilities_sum_to_one(part, grant=grant) for part, grant in with_density())
    return Measurement({"largest difference from one": Number(worst, at_most(1e-4))})


@check("neutral_is_identity", rows="sampler-density")
def neutral_settings() -> Measurement:
    """How many registered parts have a neutral setting; each leaves every update exactly as it is."""
    parts = of_stage("update")
    neutral = [name for name, made in parts.items() if neutral_is_identity(made)]
    return Measurement(
        {"parts with a neutral setting": Number(len(neutral), at_least(1))},
        detail=f"of {len(parts)} parts: {', '.join(neutral)}",
    )


NETWORKS = ("dlg_lenet", "bayes_cnn", "convbig", "resnet18", "mlp")
STD, P = 0.05, 0.5
LIKELIHOODS: dict[str, Likelihood] = {
    "l2": l2(),
    "l1": l1(),
    "cosine": cosine(),
    "scaled_l2": scaled_l2(),
    "density": density(),
}


COUNTS = (2, 1)
"""Candidates of each of two observations: neighbours, shared and not."""


def _eager(name: str, u: Tensor, o: Tensor) -> Tensor:
    """The five likelihoods written out for the flat updates ``[P]`` of one candidate, as the peers would write them."""
    # sums, not dot products: BLAS adds twelve million float32 numbers one after another and loses three digits
    dot, own = (u * o).sum(), u.square().sum()
    match name:
        case "l2":
            return -(u - o).square().sum()
        case "l1":
            return -(u - o).abs().sum()
        case "cosine":
            likeness: Tensor = dot / (own * o.square().sum()).sqrt()
            return likeness - 1
        case "scaled_l2":
            return -((dot / own).clamp(min=0) * u - o).square().sum()
    kept, dropped = (-0.5 * (r / STD).square() - math.log(STD * math.sqrt(2 * math.pi)) for r in (o - u, o))
    return torch.logaddexp(kept + math.log(1 - P), dropped + math.log(P)).sum()


def _plain(task: lg.Task, x: Tensor, y: Tensor, observed: Tensor) -> dict[str, Tensor]:
    """The gradient of each likelihood in one candidate, by autograd twice; no code of ours but the model."""
    live = x.clone().requires_grad_()
    params = [p for p in task.working.parameters() if p.requires_grad]
    loss = nn.functional.cross_entropy(task.working(live), y)
    made = torch.autograd.grad(loss, params, create_graph=True)
    u = torch.cat([t.flatten() for t in made])
    return {kind: torch.autograd.grad(_eager(kind, u, observed), live, retain_graph=True)[0] for kind in LIKELIHOODS}


Gaps = dict[tuple[str, str], list[float]]
"""Likelihood and path → the relative difference of every candidate."""


def _gaps(name: str, batch: int, dtype: torch.dtype) -> Gaps:
    domain, sharing = Domain("image", (3, 32, 32), 10), Sharing(COUNTS)
    task = lg.Task(lg.models.build(name, domain), domain, lg.Recipe(batch=batch))
    task = task.protect(f"random_prune(p={P}) | gaussian(std={STD})").to(dtype=dtype)
    generator = torch.Generator().manual_seed(0)
    size = len(COUNTS) * batch
    records = Records(torch.rand(size, 3, 32, 32, generator=generator).to(dtype), torch.arange(size) % 10, domain)
    seen = lg.observe(task, records)
    observed = stacked([o.rounds[0].observed for o in seen])
    x = torch.rand(sharing.total, batch, 3, 32, 32, generator=generator).to(dtype)
    y = records.labels.view(len(COUNTS), batch)[sharing.rows()]
    flat = torch.cat([value.flatten(1) for value in observed.values()], 1)[sharing.rows()]
    plain = [_plain(task, *one) for one in zip(x, y, flat, strict=True)]
    gaps: Gaps = {}
    for path in (make(task, task.params, task.buffers) for make in (Ghost.of, Vmap)):
        for kind, likelihood in LIKELIHOODS.items():
            mine = x.clone().requires_grad_()
            value = likelihood(path.updates(Candidate(mine, y), sharing), observed, {}, task.protection)
            (fast,) = torch.autograd.grad(value.sum(), mine)
            off = [float((f - p[kind]).norm() / p[kind].norm()) for f, p in zip(fast, plain, strict=True)]
            gaps[kind, path.name] = off
    return gaps


@check("fast_paths", rows="fast-paths", cost="minutes")
def fast_paths(context: Context) -> Measurement:
    """Ghost and vmap against the eager double-backward gradient: 5 networks x 5 likelihoods x B in {1, 4}, float32.

    Three candidates at once, two of them with the same observation; the largest relative difference of any. Where a
    ReLU is within rounding of zero, sums in another order give another slope: a candidate that is off in float32 is
    compared in float64 as well, and counts as one at a kink if it agrees there.
    """
    rows: list[dict[str, object]] = []
    exact, kinks = 0.0, 0
    for name in NETWORKS:
        for batch in (1, 4):
            context.say(f"{name}, batch {batch}")
            single = _gaps(name, batch, torch.float32)
            off = any(gap > NEAR for gaps in single.values() for gap in gaps)
            double = _gaps(name, batch, torch.float64) if off else {}
            for (kind, path), gaps in single.items():
                at_kink = [gap > NEAR and double[kind, path][i] <= EQUAL for i, gap in enumerate(gaps)]
                kinks += sum(at_kink)
                exact = max([exact, *double.get((kind, path), [])])
                rest = [gap for gap, kink in zip(gaps, at_kink, strict=True) if not kink]
                row = {"network": name, "batch": batch, "likelihood": kind, "path": path, "gap": max(rest, default=0.0)}
                rows.append(row | ({"off in float32, at kinks": sum(at_kink)} if any(at_kink) else {}))
    worst = max(rows, key=lambda row: float(str(row["gap"])))
    return Measurement(
        {
            "largest relative difference": Number(float(str(worst["gap"])), at_most(NEAR)),
            "in float64, of those that were compared in it": Number(exact, at_most(EQUAL)),
            "gradients at a kink, of 300": Number(kinks),
        },
        detail=f"largest relative difference of {len(rows)}: {worst['network']}, {worst['likelihood']}, "
        f"batch {worst['batch']}, {worst['path']}",
        table=[{**row, "gap": f"{row['gap']:.1e}"} for row in rows],
    )


NEAR, EQUAL = 1e-5, 1e-10
"""Relative differences that rounding explains in float32 and in float64."""


@check("known_answer", rows="known-answer")
def known_answer() -> Measurement:
    """The largest distance of any optimiser from the closed-form MAP of a linear-Gaussian client, float64."""
    solvers = [
        adam(lr=0.1, steps=400, schedule=cosine_decay()),
        signed_adam(lr=0.2, steps=250, schedule=exponential(rate=0.93)),
        signed_adam(lr=0.3, steps=300, schedule=exponential(rate=0.94), sign="soft"),
        momentum(lr=0.03, steps=60, beta=0.3),
        lbfgs(steps=40),
    ]
    gaps = {repr(solver): attack_reaches_map(solver) for solver in solvers}
    return Measurement(
        {"largest distance": Number(max(gaps.values()), at_most(1e-6))},
        detail="largest distance of any coordinate",
        table=[{"solver": solver, "distance": f"{gap:.1e}"} for solver, gap in gaps.items()],
    )


@check("delta_ball", rows="delta-ball")
def delta_ball() -> Measurement:
    """Kolmogorov-Smirnov test of ``(radius/δ)^d`` against the uniform law, 5,000 points, d = 784."""
    start = {"inputs": torch.zeros(5, 1, 784, dtype=torch.float64)}

    def nothing(unknowns: Tree, which: Tensor) -> lg.adversary.solver.problem.Value:
        raise NotImplementedError

    problem = Problem(start, nothing, tuple(range(5)))
    points = Ball(points=1000, delta=3.0).sample(problem, torch.arange(5), 784, 0)
    p = float(stats.kstest((points.norm(dim=2).flatten() / 3.0).pow(784).numpy(), "uniform").pvalue)
    return Measurement({"p-value": Number(p, above(0.001))})


@check("independence_float64", rows="independence")
def independence_float64() -> Measurement:
    """One problem alone and among 63 others: the largest difference of its trajectory and result, float64."""
    task = small_task()
    generator = torch.Generator().manual_seed(7)
    inputs = torch.rand(64, *task.domain.shape, generator=generator)
    records = Records(inputs, torch.arange(64) % task.domain.classes, task.domain)
    seen = lg.observe(task, records)
    attack = adversary(likelihood=cosine(), solver=adam(lr=0.05, steps=200))
    among, alone = attack(task, seen), attack(task, seen[:1])
    gap = max(
        float((among.inputs[0] - alone.inputs[0]).abs().max()), float((among.traces[0] - alone.traces[0]).abs().max())
    )
    return Measurement(
        {"largest difference": Number(gap, at_most(1e-9))},
        detail="200 steps of Adam, cosine, a small convolutional network",
    )


@check("independence_float32", rows="independence", cost="minutes")
def independence_float32() -> Measurement:
    """One problem alone and among 63 others: the difference of its final PSNR in dB, float32.

    On a ReLU network with signed steps the last bit of a sum decides where a pixel goes, and batches of different size
    add in a different order. How much rounding alone does is measured beside it: the same problem alone, with every
    entry of its update moved by one unit in the last place.
    """
    sample = lg.data.load("fashion_mnist_sample")
    records = sample.sample(64, seed=3, split="test")
    attack = lg.attacks.inverting_gradients(steps=200)
    gaps, rounding = {}, {}
    for name in ("dlg_lenet", "bayes_cnn"):
        task = lg.Task(lg.models.build(name, sample.domain), sample.domain)
        together = lg.observe(task, records)
        among, alone, moved = (
            float(psnr(attack(task, some).inputs[0, 0], records.inputs[0]))
            for some in (together, together[:1], [_moved_by_one_bit(together[0])])
        )
        gaps[name] = abs(among - alone)
        rounding[f"{name}, one bit"] = abs(moved - alone)
    bars = dict.fromkeys(gaps, at_most(0.05))
    return Measurement(
        numbers({**gaps, **rounding}, bars=bars),
        detail="dB, inverting gradients, 200 iterations; one bit: the same problem alone, its update moved by one bit",
    )


def _moved_by_one_bit(observation: lg.Observation) -> lg.Observation:
    """The observation with every entry of its update at the next larger number."""
    (only,) = observation.rounds
    upward = {name: torch.nextafter(entry, torch.full_like(entry, torch.inf)) for name, entry in only.observed.items()}
    return replace(observation, rounds=(replace(only, observed=upward),))
