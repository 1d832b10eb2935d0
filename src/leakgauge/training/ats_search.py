"""The search of ATS: random policies, scored for privacy and for accuracy without training any of them.

References:
    Gao et al., Privacy-preserving Collaborative Learning with Automatic Transformation Search, 2021.
    https://arxiv.org/abs/2011.12505
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.func import functional_call, jacrev, vmap

from leakgauge import guards
from leakgauge.client import update_of
from leakgauge.defenses.input.ats import AutomaticTransformation
from leakgauge.defenses.input.operations import OPERATIONS
from leakgauge.seeds import seed_of
from leakgauge.task import Task
from leakgauge.types import Progress, Records

POINTS = 20
TINY = 1e-5


@dataclass(frozen=True)
class Score:
    """A policy with S_pri (lower is more private), S_acc (higher is more accurate), and whether S_acc let it in."""

    policy: str
    privacy: float
    accuracy: float
    accepted: bool


def privacy_score(task: Task, records: Records, policy: str, *, seed: int = 0) -> float:
    """S_pri: the mean over images of ``∫ cos(∇(x_t), ∇(T(x))) dt``, from noise (t = 0) to the transformed image.

    ``x_t = (1 − t) noise + t T(x)``, cosines per tensor and averaged, 21 points by the trapezoid rule. A gradient
    that comes to resemble the true one late along the way is hard to follow. ``task`` should be half trained.
    """
    encodings = _encoded(policy, records, seed)
    noise = torch.rand(encodings.shape, generator=torch.Generator().manual_seed(seed_of(seed, 1)))
    theta, buffers = task.params, task.buffers
    like = next(iter(theta.values()))

    def gradient(x: Tensor, y: Tensor) -> dict[str, Tensor]:
        return update_of(task.working, theta, buffers, x.unsqueeze(0), y.unsqueeze(0), task.working_recipe)

    def likeness(x: Tensor, y: Tensor, truth: dict[str, Tensor]) -> Tensor:
        guessed = gradient(x, y)
        tiny = torch.finfo(x.dtype).tiny
        each = [(guessed[n] * g).sum() / (guessed[n].norm() * g.norm()).clamp(min=tiny) for n, g in truth.items()]
        return torch.stack(each).mean()

    total = 0.0
    for x, y, n in zip(encodings.to(like), records.labels, noise.to(like), strict=True):
        steps = torch.linspace(0, 1, POINTS + 1, dtype=like.dtype).view(-1, *[1] * x.dim())
        way = (1 - steps) * n + steps * x
        truth = {name: g.detach() for name, g in gradient(x, y).items()}
        cosines = vmap(lambda one, y=y, truth=truth: likeness(one, y, truth))(way).detach()
        total += float(torch.trapezoid(cosines, dx=1 / POINTS))
    return total / len(records)


def accuracy_score(task: Task, records: Records, policy: str, *, group: int = 50, seed: int = 0) -> float:
    """S_acc: ``−Σ_i [log(v_i + k) + 1/(v_i + k)] / n`` over the eigenvalues of the correlations of input Jacobians.

    The Jacobian of the summed scores of each image, correlated over the n images of a group; k = 1e-5. Images that an
    untrained network tells apart are uncorrelated and score −1, the most. Per image, so that groups of any size
    compare: the published sum, and its threshold of −85, hold for one group size alone.
    """
    encodings = _encoded(policy, records, seed).to(next(iter(task.params.values())))
    state = {**task.params, **task.buffers}

    def total(x: Tensor) -> Tensor:
        outputs: Tensor = functional_call(task.working, state, (x.unsqueeze(0),))
        return outputs[:, : task.domain.classes].sum()

    scores = []
    for start in range(0, len(encodings) - group + 1, group):
        slopes = vmap(jacrev(total))(encodings[start : start + group]).flatten(1).double()
        # a Jacobian without variation tells an image apart from no other: as if fully correlated
        related = torch.corrcoef(slopes).nan_to_num(nan=1.0)
        values = torch.linalg.eigvalsh(related).clamp(min=0) + TINY
        scores.append(float(-(values.log() + 1 / values).sum() / group))
    return sum(scores) / len(scores)


def search(
    semi_trained: Task,
    untrained: Task,
    records: Records,
    *,
    candidates: int = 20,
    images: int = 10,
    group: int = 50,
    accept: float = 0.5,
    seed: int = 0,
    progress: Progress | None = None,
) -> list[Score]:
    """Random policies of three operations, ranked: accepted ones first, then by S_pri.

    A policy is accepted if its S_acc is among the best share ``accept`` of the candidates (the published threshold
    accepts everything or nothing on other data). ``images`` records serve S_pri, groups of ``group`` S_acc.
    """
    guards.count(candidates, "candidates", "search")
    guards.count(images, "images", "search")
    guards.inside(accept, "accept", "search", 0.0, 1.0, closed_high=True)
    guards.count(len(records) // guards.count(group, "group", "search"), "records // group", "search")
    generator = torch.Generator().manual_seed(seed_of(seed, 0))
    drawn = torch.randint(-1, len(OPERATIONS), (candidates, 3), generator=generator).tolist()
    scored = []
    for i, indices in enumerate(drawn):
        policy = "-".join(map(str, indices))
        privacy = privacy_score(semi_trained, records[:images], policy, seed=seed)
        scored.append((policy, privacy, accuracy_score(untrained, records, policy, group=group, seed=seed)))
        if progress is not None:
            progress(i + 1, candidates, min(p for _, p, _ in scored))
    least = sorted((a for *_, a in scored), reverse=True)[max(1, round(accept * candidates)) - 1]
    scores = [Score(policy, privacy, accuracy, accuracy >= least) for policy, privacy, accuracy in scored]
    return sorted(scores, key=lambda score: (not score.accepted, score.privacy))


def _encoded(policy: str, records: Records, seed: int) -> Tensor:
    part = AutomaticTransformation(policy=policy)
    generator = torch.Generator().manual_seed(seed_of(seed, 2))
    return part.encode(records, torch.arange(len(records)), generator=generator).inputs
