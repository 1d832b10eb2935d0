"""The laws of priors, likelihoods and solvers."""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import Tensor

from leakgauge.adversary import Adversary, Likelihood, density
from leakgauge.adversary.ghost import Ghost
from leakgauge.adversary.paths import Loop, Path, Vmap
from leakgauge.adversary.rounds import groups
from leakgauge.adversary.solver import Solver
from leakgauge.observation import observe
from leakgauge.priors import GaussianPrior
from leakgauge.task import Task
from leakgauge.testing.clients import LinearClient, small_records, small_task
from leakgauge.testing.parts import repr_round_trips
from leakgauge.types import Candidate, Known, Prior, Threat
from leakgauge.updates import Sharing, Stack


def prior_laws(prior: Prior, *, shape: tuple[int, ...] = (1, 6, 5), tolerance: float = 1e-5, seed: int = 1) -> None:
    """One finite value per problem, whatever its neighbours; a gradient that is the difference quotient; a text.

    ``shape`` is that of one record. Three problems of two records each are drawn in ``(−1, 2)``, so that a pixel range
    is felt and no kink is met.
    """
    repr_round_trips(prior)
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.rand(3, 2, *shape, generator=generator, dtype=torch.float64) * 3 - 1
    labels = torch.zeros(3, 2, dtype=torch.long)
    together = prior(Candidate(inputs, labels))
    assert together.shape == (3,), f"{prior!r} returns {tuple(together.shape)} for 3 problems"
    assert together.dtype == inputs.dtype, f"{prior!r} returns {together.dtype} for {inputs.dtype}"
    assert bool(together.isfinite().all()), f"{prior!r} is not finite: {together.tolist()}"
    for n in range(3):
        alone = prior(Candidate(inputs[n : n + 1], labels[n : n + 1]))
        assert torch.allclose(alone[0], together[n], rtol=1e-12), f"{prior!r}: problem {n} depends on its neighbours"
    live = inputs.clone().requires_grad_()
    (slope,) = torch.autograd.grad(prior(Candidate(live, labels)).sum(), live)
    direction = torch.randn(inputs.shape, generator=generator, dtype=torch.float64)
    ahead, behind = (prior(Candidate(inputs + sign * 1e-6 * direction, labels)) for sign in (1, -1))
    _agree((slope * direction).flatten(1).sum(1), (ahead - behind) / 2e-6, tolerance, f"the gradient of {prior!r}")


def likelihood_laws(
    likelihood: Likelihood,
    *,
    protection: str = "identity()",
    grant: Collection[str] = (),
    task: Task | None = None,
    batch: int = 2,
    tolerance: float = 1e-9,
) -> None:
    """Ghost and vmap give the value and the gradient of the plain loop; a problem does not see its neighbours; a text.

    Six candidates of three observations (three, one and two each), in float64, on a small convolutional network
    unless another ``task`` is given.
    """
    repr_round_trips(likelihood)
    task = (task or small_task(batch=batch)).protect(protection)
    records = small_records(3 * task.recipe.batch)
    observations = observe(task, records, threat=Threat(grants=frozenset(grant)))
    (group,) = groups(task, observations)
    visible = group.shown(range(len(observations)), 0)
    observed, known = visible.observed, visible.known
    candidate = _candidates(task, torch.stack([o.labels for o in observations if o.labels is not None]), (3, 1, 2))
    paths: list[Path] = [make(task, task.params, task.buffers) for make in (Loop, Vmap, Ghost.of)]
    results = [_slope(path, likelihood, candidate, (3, 1, 2), observed, known, task) for path in paths]
    for path, (value, slope) in zip(paths[1:], results[1:], strict=True):
        _agree(value, results[0][0], tolerance, f"{likelihood!r} by the {path.name} path")
        _agree(slope, results[0][1], tolerance, f"the gradient of {likelihood!r} by the {path.name} path")
    last = Candidate(candidate.inputs[4:], candidate.labels[4:])
    rest = Stack({name: value[2:] for name, value in observed.items()})
    own = {key: {name: value[2:] for name, value in tree.items()} for key, tree in known.items()}
    value, slope = _slope(paths[0], likelihood, last, (2,), rest, own, task)
    _agree(value, results[0][0][4:], tolerance, f"{likelihood!r} without its neighbours")
    _agree(slope, results[0][1][4:], tolerance, f"the gradient of {likelihood!r} without its neighbours")


def attack_reaches_map(solver: Solver, *, client: LinearClient | None = None, tolerance: float = 1e-6) -> float:
    """The adversary with this solver finds the closed-form MAP of a linear client, float64. Returns the distance.

    Gaussian noise, Gaussian prior (:class:`LinearClient`), through the public adversary from task to reconstruction.
    The distance is the largest of any coordinate.
    """
    client = client or LinearClient()
    prior = GaussianPrior(mean=client.mean, std=client.std)
    adversary = Adversary(likelihood=density(), prior=prior, solver=solver)
    reached = adversary(client.task(), client.observations()).inputs
    gap = float((reached - client.answer()).abs().max())
    assert gap <= tolerance, f"{solver!r} ends {gap:.1e} from the closed-form MAP (at most {tolerance:.0e} is accepted)"
    return gap


def _candidates(task: Task, labels: Tensor, counts: tuple[int, ...]) -> Candidate:
    generator = torch.Generator().manual_seed(3)
    like = next(iter(task.params.values()))
    shape = (sum(counts), task.recipe.batch, *task.domain.shape)
    inputs = torch.rand(shape, generator=generator, dtype=like.dtype)
    return Candidate(inputs, labels[Sharing(counts).rows()])


def _slope(
    path: Path,
    likelihood: Likelihood,
    candidate: Candidate,
    counts: tuple[int, ...],
    observed: Stack,
    known: Known,
    task: Task,
) -> tuple[Tensor, Tensor]:
    """Values ``[N]`` and their gradient in the inputs."""
    live = candidate.inputs.clone().requires_grad_()
    updates = path.updates(Candidate(live, candidate.labels), Sharing(counts))
    value = likelihood(updates, observed, known, task.protection)
    (slope,) = torch.autograd.grad(value.sum(), live)
    return value.detach(), slope


def _agree(value: Tensor, wanted: Tensor, tolerance: float, what: str) -> None:
    gap = float((value - wanted).norm() / wanted.norm().clamp(min=1e-12))
    assert gap <= tolerance, f"{what} differs by {gap:.1e} (relative; at most {tolerance:.0e} is accepted)"
