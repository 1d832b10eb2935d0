"""The core: densities, gradient paths, solvers, independence."""

from __future__ import annotations

import math

import torch
from scipy import stats
from torch import Tensor, nn

import leakgauge as lg
from evidence import Context, Measurement, check
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
from leakgauge.expr import names
from leakgauge.metrics import psnr
from leakgauge.testing import (
    attack_reaches_map,
    neutral_is_identity,
    probabilities_sum_to_one,
    sampler_agrees_with_density,
    small_task,
    with_density,
)
from leakgauge.tree import Sharing, stacked
from leakgauge.types import Candidate, Domain, Records, Tree


@check("goodness_of_fit", rows="sampler-density", cost="minutes")
def goodness_of_fit() -> Measurement:
    """Chi-square test of every part and chain with a density: what is released against the density."""
    rows = [(repr(part), grant, sampler_agrees_with_density(part, grant=grant)) for part, grant in with_density()]
    least = min(p for *_, p in rows)
    return Measurement(
        value=least,
        passed=least > 1e-6,
        detail=f"least p-value of {len(rows)} parts and chains; a right part fails with probability 1e-6 each",
        table=[{"part": part, "granted": ", ".join(grant) or "—", "p": f"{p:.3g}"} for part, grant, p in rows],
    )


@check("intervals_sum_to_one", rows="sampler-density", cost="minutes")
def intervals_sum_to_one() -> Measurement:
    """The largest |1 − Σ p| over every part and chain with a density, atoms and intervals included."""
    worst = max(probabilities_sum_to_one(part, grant=grant) for part, grant in with_density())
    return Measurement(value=worst, passed=worst <= 1e-4, detail="largest difference from one; tolerance 1e-4")


@check("neutral_is_identity", rows="sampler-density")
def neutral_settings() -> Measurement:
    """How many registered parts have a neutral setting; each leaves every update exactly as it is."""
    parts = names("mechanism")
    neutral = [name for name, made in parts.items() if neutral_is_identity(made)]
    return Measurement(value=len(neutral), passed=bool(neutral), detail=f"of {len(parts)} parts: {', '.join(neutral)}")


NETWORKS = ("dlg_lenet", "bayes_cnn", "convbig", "resnet18", "mlp")
STD, P = 0.05, 0.5
LIKELIHOODS: dict[str, Likelihood] = {
    "l2": l2(),
    "l1": l1(),
    "cosine": cosine(),
    "scaled_l2": scaled_l2(),
    "density": density(),
}


def _eager(name: str, updates: list[Tensor], observed: list[Tensor]) -> Tensor:
    """The five likelihoods written out for one candidate, as the peers would write them."""
    pairs = list(zip(updates, observed, strict=True))
    if name == "l2":
        return -sum(((u - o) ** 2).sum() for u, o in pairs)
    if name == "l1":
        return -sum((u - o).abs().sum() for u, o in pairs)
    dot, own = sum((u * o).sum() for u, o in pairs), sum((u**2).sum() for u in updates)
    if name == "cosine":
        return dot / (own.sqrt() * sum((o**2).sum() for o in observed).sqrt()) - 1
    if name == "scaled_l2":
        scale = (dot / own).clamp(min=0)
        return -sum(((scale * u - o) ** 2).sum() for u, o in pairs)
    shift = math.log(STD * math.sqrt(2 * math.pi))
    terms = [(-((o - u) ** 2) / (2 * STD**2) - shift, -(o**2) / (2 * STD**2) - shift, u, o) for u, o in pairs]
    return sum(torch.logaddexp(a + math.log(1 - P), b + math.log(P)).sum() for a, b, *_ in terms)


def _gaps(name: str, batch: int) -> list[dict[str, object]]:
    domain = Domain("image", (3, 32, 32), 10)
    model = lg.models.build(name, domain).double().eval()
    task = lg.Task(model, domain, lg.Recipe(batch=batch)).protect(f"random_prune(p={P}) | gaussian(std={STD})")
    generator = torch.Generator().manual_seed(0)
    records = Records(torch.rand(batch, 3, 32, 32, generator=generator), torch.arange(batch) % 10, domain)
    observed = stacked([o.rounds[0].observed for o in lg.observe(task, records)])
    # float32 updates of float32 candidates, compared with the eager gradient in the same precision
    task, observed = task.to(dtype=torch.float32), stacked([{n: v[0].float() for n, v in observed.items()}])
    x = torch.rand(1, batch, 3, 32, 32, generator=generator)
    y = records.labels.unsqueeze(0)
    rows: list[dict[str, object]] = []
    for kind, likelihood in LIKELIHOODS.items():
        live = x[0].clone().requires_grad_()
        loss = nn.functional.cross_entropy(task.working(live), y[0])
        params = [p for p in task.working.parameters() if p.requires_grad]
        made = torch.autograd.grad(loss, params, create_graph=True)
        (plain,) = torch.autograd.grad(_eager(kind, list(made), [v[0] for v in observed.values()]), live)
        for path in (Ghost.of(task, task.params), Vmap(task, task.params)):
            mine = x.clone().requires_grad_()
            value = likelihood(path.updates(Candidate(mine, y), Sharing((1,))), observed, {}, task.protection)
            (fast,) = torch.autograd.grad(value.sum(), mine)
            gap = float((fast[0] - plain).norm() / plain.norm())
            rows.append({"network": name, "batch": batch, "likelihood": kind, "path": path.name, "gap": gap})
    return rows


@check("fast_paths", rows="fast-paths", cost="minutes")
def fast_paths(context: Context) -> Measurement:
    """Ghost and vmap against the eager double-backward gradient: 5 networks x 5 likelihoods x B in {1, 4}, float32."""
    rows: list[dict[str, object]] = []
    for name in NETWORKS:
        for batch in (1, 4):
            context.say(f"{name}, batch {batch}")
            rows += _gaps(name, batch)
    worst = max(rows, key=lambda row: float(str(row["gap"])))
    return Measurement(
        value=float(str(worst["gap"])),
        passed=float(str(worst["gap"])) <= 1e-5,
        detail=f"largest relative difference of {len(rows)}: {worst['network']}, {worst['likelihood']}, "
        f"batch {worst['batch']}, {worst['path']}",
        table=[{**row, "gap": f"{row['gap']:.1e}"} for row in rows],
    )


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
        value=max(gaps.values()),
        passed=max(gaps.values()) <= 1e-6,
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
    return Measurement(value=p, passed=p > 0.001, detail="p-value")


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
    return Measurement(value=gap, passed=gap <= 1e-9, detail="200 steps of Adam, cosine, a small convolutional network")


@check("independence_float32", rows="independence", cost="minutes")
def independence_float32() -> Measurement:
    """One problem alone and among 63 others: the difference of its final PSNR in dB, float32."""
    sample = lg.data.load("fashion_mnist_sample")
    task = lg.Task(lg.models.build("bayes_cnn", sample.domain), sample.domain)
    records = sample.sample(64, seed=3, split="test")
    seen = lg.observe(task, records)
    attack = lg.attacks.inverting_gradients(steps=200)
    among, alone = attack(task, seen), attack(task, seen[:1])
    scores = [float(psnr(made.inputs[0, 0], records.inputs[0])) for made in (among, alone)]
    gap = abs(scores[0] - scores[1])
    return Measurement(
        value=gap, passed=gap <= 0.05, detail=f"dB; alone {scores[1]:.3f}, among 63 others {scores[0]:.3f}"
    )
