"""The doctor on clients with a defense; clients and defenses here are plain PyTorch, none of our code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from leakgauge.defenses import Protection, UpdatePart, protection
from leakgauge.doctor.diagnosis import Diagnosis, Evidence, Setup, diagnose, examine
from leakgauge.doctor.law import DRAWS, ReleaseLaw
from leakgauge.study import problems
from leakgauge.study.spec import of
from leakgauge.types import Context, Release, Tree
from tests.doctor.test_doctor import FAULTS, LABELS, Client, State, batch, net

STD = 3e-4
"""Noise of a tenth of the update's length."""
LISTED = {
    "noisy": f"gaussian(std={STD})",
    "clipped": "clip(norm=0.05)",
    "pruned": "prune(p=0.7)",
    "both": "clip(norm=0.05) | laplace(scale=0.001)",
}


def small(**options: bool) -> nn.Module:
    """Two layers, so that the fast tests are fast; with options the network of the other tests."""
    if options:
        return net(**options)
    torch.manual_seed(1)
    return nn.Sequential(nn.Flatten(), nn.Linear(36, 8), nn.Tanh(), nn.Linear(8, 4))


Defense = Callable[[State, torch.Generator], State]


def noisy(update: State, generator: torch.Generator) -> State:
    return {name: u + STD * torch.randn(u.shape, generator=generator) for name, u in update.items()}


def clipped(update: State, generator: torch.Generator) -> State:
    norm = torch.cat([u.flatten() for u in update.values()]).norm()
    return {name: u * min(1.0, 0.05 / float(norm)) for name, u in update.items()}


def pruned(update: State, generator: torch.Generator) -> State:
    """The smallest 70 % of each tensor are zero, rounded down, where our part rounds up."""
    cut = {name: u.abs().flatten().sort().values[int(0.7 * u.numel())] for name, u in update.items()}
    return {name: torch.where(u.abs() >= cut[name], u, 0.0) for name, u in update.items()}


def both(update: State, generator: torch.Generator) -> State:
    def laplace(u: Tensor) -> Tensor:
        uniform = torch.rand(u.shape, generator=generator) - 0.5
        return -0.001 * uniform.sign() * torch.log1p(-2 * uniform.abs())

    return {name: u + laplace(u) for name, u in clipped(update, generator).items()}


def defended(before: State, after: State, trained: list[str], how: Defense, seed: int = 0) -> State:
    update = how({n: after[n] - before[n] for n in trained}, torch.Generator().manual_seed(seed))
    return {**after, **{name: before[name] + u for name, u in update.items()}}


def diagnosed(
    how: Defense,
    client: Client | None = None,
    listed: Mapping[str, str | Protection] | None = None,
    believed: Setup | None = None,
    change: Callable[[State, State], tuple[State, State]] | None = None,
    kind: Any = None,
    seed: int = 0,
    bare: bool = True,
    whole: bool = False,
    **options: bool,
) -> Diagnosis:
    build = net if whole else small
    before, after = (client or Client())(build(**options), batch().inputs, LABELS)
    trained = [name for name, _ in build(**options).named_parameters()]
    after = defended(before, after, trained, how, seed)
    if change is not None:
        before, after = change(before, after)
    defenses = {name: protection(text) for name, text in (LISTED if listed is None else listed).items()}
    evidence = Evidence(before, after, batch(), kind)
    return diagnose(build(**options), evidence, believed, defenses=defenses, budget=100, bare=bare)


@pytest.mark.parametrize("name", ["noisy", "clipped", "pruned", pytest.param("both", marks=pytest.mark.slow)])
def test_a_defended_client_replays_as_what_it_is(name: str) -> None:
    diagnosis = diagnosed({"noisy": noisy, "clipped": clipped, "pruned": pruned, "both": both}[name])
    assert (diagnosis.status, diagnosis.defense, diagnosis.differs) == ("replays", name, ())
    assert f"under {name}, " in diagnosis.sentence


def test_a_wrong_recipe_is_named_under_noise() -> None:
    diagnosis = diagnosed(noisy, Client(shift=(0.5, 0.5)), {"noisy": LISTED["noisy"]})
    assert (diagnosis.status, diagnosis.defense) == ("replays otherwise", "noisy")
    assert diagnosis.differs == ("normalise",)
    assert "mean = [0.5]" in diagnosis.sentence


@pytest.mark.slow
@pytest.mark.parametrize("fault", [fault for fault in FAULTS if fault not in ("smoothing", "weight decay")])
def test_each_wrong_recipe_is_named_under_noise(fault: str) -> None:
    given, differs, _ = FAULTS[fault]
    diagnosis = diagnosed(noisy, listed={"noisy": LISTED["noisy"]}, whole=True, **given)
    assert (diagnosis.status, diagnosis.differs) == ("replays otherwise", differs)


@pytest.mark.slow
def test_noise_of_another_size_does_not_replay() -> None:
    """Neither more nor less than the spec says; a bare client is none that adds noise."""
    for std in (1.3 * STD, 0.7 * STD):
        listed = {"noisy": f"gaussian(std={std})"}
        assert diagnosed(noisy, listed=listed, bare=False).status == "does not replay"


@dataclass(frozen=True)
class Turned(UpdatePart):
    """A stranger's part that says nothing of itself: ``u ↦ −3u``, with noise on the biases alone."""

    noise: float = 0.001

    def release(self, update: Tree, context: Context | None, *, generator: torch.Generator) -> Release:
        def noise(name: str, u: Tensor) -> Tensor:
            drawn = torch.randn(u.shape, generator=generator).to(u)
            return self.noise * drawn if name.endswith("bias") else torch.zeros_like(u)

        return Release({name: -3 * u + noise(name, u) for name, u in update.items()})


def test_a_part_that_says_nothing_of_itself() -> None:
    def turned(update: State, generator: torch.Generator) -> State:
        return {
            n: -3 * u + (0.001 * torch.randn(u.shape, generator=generator) if n.endswith("bias") else 0.0)
            for n, u in update.items()
        }

    diagnosis = diagnosed(turned, listed={"mine": Protection(update=Turned()), "noisy": LISTED["noisy"]})
    assert (diagnosis.status, diagnosis.defense) == ("replays", "mine")


def test_a_drowned_update_confirms_no_recipe() -> None:
    def drowned(update: State, generator: torch.Generator) -> State:
        return {name: u + 10 * torch.randn(u.shape, generator=generator) for name, u in update.items()}

    diagnosis = diagnosed(drowned, listed={"drowned": "gaussian(std=10.0)"})
    assert diagnosis.status == "replays"
    assert "shows its noise and no recipe" in diagnosis.sentence


def test_the_law_of_releases_has_its_level() -> None:
    """Of 40 heavy-tailed updates a level of 1e-3 refuses none (chance 4 %); all, 11 deviations along the update."""
    laplace = torch.distributions.Laplace(0.0, 1.0)
    torch.manual_seed(0)
    update = torch.randn(500, dtype=torch.float64)
    law = ReleaseLaw(update + laplace.sample((DRAWS, 500)).double(), 1e-6, torch.arange(500) // 100)
    fresh = update + laplace.sample((40, 500)).double()
    assert all(law.p(row) > 1e-3 for row in fresh)
    assert not any(law.p(row + 0.7 * update) > 1e-3 for row in fresh)


def replaying(folder: Path, **more: Any) -> dict[str, Any]:
    """A spec whose client shares a gradient, clipped and noisy, as one step of SGD."""
    torch.manual_seed(0)
    model = torch.nn.Sequential()
    model.add_module("flatten", torch.nn.Flatten())
    model.add_module("linear", torch.nn.Linear(784, 10))
    x, y = torch.rand(2, 1, 28, 28), torch.tensor([3, 7])
    torch.nn.functional.cross_entropy(model(x), y).backward()
    save_file(model.state_dict(), folder / "b.safetensors")
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    norm = float(torch.cat([g.flatten() for g in gradients]).norm())
    with torch.no_grad():
        for p, g in zip(model.parameters(), gradients, strict=True):
            p -= 0.2 * (g * min(1.0, 1.0 / norm) + 0.01 * torch.randn_like(g))
    save_file(model.state_dict(), folder / "a.safetensors")
    np.savez(folder / "x.npz", inputs=x.numpy(), labels=y.numpy())
    replay = {"before": "b.safetensors", "after": "a.safetensors", "batch": "x.npz", **more}
    task = {"model": "logistic", "replay": replay, "recipe": {"learning_rate": 0.2, "batch": 2}, "records": 3}
    return {"task": task, "defenses": {"none": "identity()", "dp": "clip(norm=1.0) | gaussian(std=0.01)"}}


def test_from_a_spec(tmp_path: Path) -> None:
    raw = replaying(tmp_path)
    diagnosis = examine(of(raw), tmp_path)
    assert (diagnosis.status, diagnosis.defense) == ("replays", "dp")
    raw["task"]["replay"]["defense"] = "dpp"
    (problem,) = (one for one in problems(of(raw), tmp_path / "spec.toml") if one.key.startswith("task.replay"))
    assert str(problem).endswith("task.replay.defense: 'dpp' is none of [defenses]; did you mean 'dp'?")
