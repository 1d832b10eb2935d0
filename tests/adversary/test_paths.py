"""Ghost and vmap against an oracle that is written here: autograd, twice, one candidate at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import pytest
import torch
from torch import Tensor, nn

from leakgauge import models
from leakgauge.adversary import Adversary, Likelihood, adam, cosine, density, l1, l2, scaled_l2
from leakgauge.adversary.ghost import Ghost, unsupported
from leakgauge.adversary.paths import Loop, Path, PathName, Vmap, choose
from leakgauge.client import Recipe
from leakgauge.errors import PathError
from leakgauge.losses import CrossEntropy
from leakgauge.observation import observe
from leakgauge.task import Task
from leakgauge.types import Candidate, Domain, Records
from leakgauge.updates import Batch, Sharing, Stack
from tests.adversary.networks import FALLING, FITTING, IMAGES, eager_updates, task_of

COUNTS = (2, 0, 3, 1)
"""Candidates of each of four observations; one has none left."""
SINGLE = 1e-4
"""Paths in float32: a double backward adds up to 13,700 terms in about five layers, each in an order of its own;
rounding at random moves such a sum by eps √13,700 ≈ 1.4e-5 of its terms."""
STD, P = 0.05, 0.4
PRUNED_NOISE = f"random_prune(p={P}) | gaussian(std={STD})"


def _flat(tree: Mapping[str, Tensor]) -> Tensor:
    return torch.cat([value.reshape(len(value), -1) for value in tree.values()], 1)


def _oracle(name: str, u: Tensor, o: Tensor) -> Tensor:
    """The five likelihoods again, on flat updates ``[N, P]`` and the observed row of each."""
    match name:
        case "l2":
            return -(u - o).square().sum(1)
        case "l1":
            return -(u - o).abs().sum(1)
        case "cosine":
            return nn.functional.cosine_similarity(u, o, dim=1) - 1
        case "scaled_l2":
            scale = ((u * o).sum(1) / u.square().sum(1)).clamp(min=0)
            return -(scale.unsqueeze(1) * u - o).square().sum(1)
        case "density":
            kept, dropped = _normal(o - u) + math.log(1 - P), _normal(o) + math.log(P)
            return torch.logaddexp(kept, dropped).sum(1)
    raise AssertionError(name)


def _normal(x: Tensor) -> Tensor:
    return -0.5 * (x / STD).square() - math.log(STD * math.sqrt(2 * math.pi))


LIKELIHOODS: dict[str, Likelihood] = {
    "l2": l2(),
    "l1": l1(),
    "cosine": cosine(),
    "scaled_l2": scaled_l2(),
    "density": density(),
}


class Setting:
    """Candidates, observations and the eager updates of one task: made once, used for every likelihood."""

    def __init__(self, task: Task, batch: int, counts: tuple[int, ...] = COUNTS) -> None:
        self.task, self.sharing = task.protect(PRUNED_NOISE), Sharing(counts)
        like = next(iter(task.params.values()))
        generator = torch.Generator().manual_seed(5)
        shape = (self.sharing.total, batch, *task.domain.shape)
        self.inputs = torch.rand(shape, generator=generator, dtype=torch.float64).to(like).requires_grad_()
        self.labels = torch.randint(0, task.domain.classes, shape[:2], generator=generator)
        true = torch.rand(len(counts), *shape[1:], generator=generator, dtype=torch.float64).to(like)
        updates = eager_updates(task, true, self.labels[:1].expand(len(counts), batch))
        noise = {n: torch.randn(u.shape, generator=generator).to(u) * STD for n, u in updates.items()}
        self.eager = eager_updates(task, self.inputs, self.labels)
        self.observed = Stack({n: self._off_the_kink(n, (u + noise[n]).detach()) for n, u in updates.items()})

    def _off_the_kink(self, name: str, observed: Tensor) -> Tensor:
        """The slope of ``|u − o|`` jumps at zero: an entry that rounding could carry across says nothing of a path."""
        near = (self.eager[name].detach() - observed[self.sharing.rows()]).abs() < 1e-5
        touched = torch.zeros_like(observed).index_add(0, self.sharing.rows(), near.to(observed))
        return torch.where(touched > 0, observed + 1e-3, observed)

    def paths(self) -> dict[str, Path]:
        state = self.task.params, self.task.buffers
        return {"ghost": Ghost.of(self.task, *state), "vmap": Vmap(self.task, *state), "loop": Loop(self.task, *state)}

    def plain(self, name: str) -> tuple[Tensor, Tensor]:
        # in float64: torch's own cosine of 12 million floats is wrong in the fourth digit
        value = _oracle(name, _flat(self.eager).double(), _flat(self.observed)[self.sharing.rows()].double())
        (slope,) = torch.autograd.grad(value.sum(), self.inputs, retain_graph=True)
        return value.detach(), slope

    def fast(self, path: Path, name: str) -> tuple[Tensor, Tensor]:
        updates = path.updates(Candidate(self.inputs, self.labels), self.sharing)
        value = LIKELIHOODS[name](updates, self.observed, {}, self.task.protection)
        (slope,) = torch.autograd.grad(value.sum(), self.inputs)
        return value.detach(), slope

    def check(self, path: Path, name: str, tolerance: float) -> None:
        for found, wanted in zip(self.fast(path, name), self.plain(name), strict=True):
            gap = float((found - wanted).norm() / wanted.norm())
            assert gap <= tolerance, f"{path.name}, {name}: {gap:.1e}"


@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize("network", FITTING)
def test_every_path_equals_the_eager_double_backward(network: str, batch: int) -> None:
    setting = Setting(task_of(FITTING[network]), batch)
    assert unsupported(setting.task) is None
    for path in setting.paths().values():
        for name in LIKELIHOODS:
            setting.check(path, name, 1e-10)


@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize("model", ["dlg_lenet", "bayes_cnn", "cnn_13700", "mlp(width=60)", "logistic"])
def test_the_papers_networks_in_float32(model: str, batch: int) -> None:
    domain = Domain("image", (1, 16, 16), 10)
    setting = Setting(Task(models.build(model, domain), domain), batch, (2, 1))
    paths = setting.paths()
    for name in LIKELIHOODS:
        setting.check(paths["ghost"], name, SINGLE)
        setting.check(paths["vmap"], name, SINGLE)


@pytest.mark.slow
@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize("model", ["convbig", "resnet18", "convnet64"])
def test_the_papers_large_networks_in_float32(model: str, batch: int) -> None:
    domain = Domain("image", (3, 32, 32), 10)
    setting = Setting(Task(models.build(model, domain), domain), batch, (1, 1))
    paths = setting.paths()
    for name in LIKELIHOODS:
        setting.check(paths["ghost"], name, SINGLE)
        setting.check(paths["vmap"], name, SINGLE)


@pytest.mark.parametrize("network", FALLING)
def test_other_networks_fall_back_to_vmap_and_are_right(network: str) -> None:
    task = task_of(FALLING[network], recipe=Recipe(batch=2))
    setting = Setting(task, 2)
    for name in ("l2", "density"):
        setting.check(setting.paths()["vmap"], name, 1e-10)
    records = Records(torch.rand(6, 1, 8, 8), torch.tensor([0, 1, 2, 3, 4, 0]), IMAGES)
    seen = observe(task, records)
    adversary = Adversary(likelihood=l2(), solver=adam(steps=3))
    found, plain = adversary(task, seen), adversary(task, seen, path="loop")
    assert found.path == "vmap"
    torch.testing.assert_close(found.inputs, plain.inputs, rtol=0, atol=1e-9)


@pytest.mark.parametrize("path", ["ghost", "vmap"])
def test_soft_labels_and_sums_over_the_batch(path: str) -> None:
    task = task_of(FITTING["wide"], recipe=Recipe(reduction="sum"))
    setting = Setting(task, 3)
    soft = torch.randn(6, 3, 5, dtype=torch.float64).softmax(-1).requires_grad_()
    eager = eager_updates(task, setting.inputs, soft)
    wanted = torch.autograd.grad(_flat(eager).square().sum(), (setting.inputs, soft))
    made = setting.paths()[path].updates(Candidate(setting.inputs, soft), setting.sharing)
    found = torch.autograd.grad(made.square().sum(), (setting.inputs, soft))
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)


def test_a_granted_mask_goes_through_the_factors() -> None:
    task = task_of(FITTING["wide"])
    setting = Setting(task, 2)
    masks = {n: (torch.rand(o.shape, dtype=o.dtype) > P).to(o.dtype) for n, o in setting.observed.items()}
    rows = setting.sharing.rows()
    kept = {n: u * masks[n][rows] for n, u in setting.eager.items()}
    plain = _normal(_flat(setting.observed)[rows] - _flat(kept)).sum(1)
    (wanted,) = torch.autograd.grad(plain.sum(), setting.inputs)
    for path in setting.paths().values():
        updates = path.updates(Candidate(setting.inputs, setting.labels), setting.sharing)
        value = setting.task.protection.update.log_density(
            setting.observed, updates, known={"random_prune.mask": masks}
        )
        (slope,) = torch.autograd.grad(value.sum(), setting.inputs)
        torch.testing.assert_close(value, plain, rtol=1e-10, atol=0)
        torch.testing.assert_close(slope, wanted, rtol=1e-9, atol=1e-8)


@pytest.mark.parametrize("path", ["ghost", "vmap"])
def test_a_candidate_at_the_answer_loses_no_digits(path: str) -> None:
    # the residual is small where an attack ends: three large terms that cancel would not show it
    task = task_of(FITTING["wide"], dtype=torch.float32)
    setting = Setting(task, 1)
    start = setting.inputs.detach()[:1]
    observed = Stack({n: u.detach() for n, u in eager_updates(task, start, setting.labels[:1]).items()})
    near = (start + 1e-4 * torch.randn(start.shape)).requires_grad_()
    wanted = -(_flat(eager_updates(task, near, setting.labels[:1])) - _flat(observed)).square().sum(1)
    (wanted_slope,) = torch.autograd.grad(wanted.sum(), near)
    made = setting.paths()[path].updates(Candidate(near, setting.labels[:1]), Sharing((1,)))
    value = l2()(made, observed, {}, setting.task.protection)
    (slope,) = torch.autograd.grad(value.sum(), near)
    assert float(((value - wanted).detach() / wanted.detach()).abs()) < 1e-2
    assert float((slope - wanted_slope).norm() / wanted_slope.norm()) < 1e-2


@pytest.mark.parametrize("name", ["batch norm, eval", "batch norm 1d, eval"])
def test_batch_norm_in_train_mode_reduces_within_a_problem(name: str) -> None:
    task = task_of(FITTING[name], recipe=Recipe(batch=4, mode="train"))
    assert unsupported(task) is None
    setting = Setting(task, 4)
    paths = setting.paths()
    for likelihood in LIKELIHOODS:
        for path in ("ghost", "vmap", "loop"):
            setting.check(paths[path], likelihood, 1e-10)


def test_a_batch_norm_with_a_forward_of_its_own_is_not_for_the_ghost_path() -> None:
    class Own(nn.BatchNorm2d):
        def forward(self, input: Tensor) -> Tensor:
            return 2 * super().forward(input)

    model = nn.Sequential(nn.Conv2d(1, 4, 3), Own(4), nn.Flatten(), nn.Linear(144, 5)).double()
    reason = unsupported(task_of(lambda: model, recipe=Recipe(batch=4, mode="train")))
    assert reason is not None
    assert "normalises over the batch" in reason


CHANGES = {
    "one step": Recipe(batch=4, shares="change"),
    "three steps": Recipe(batch=4, shares="change", local_steps=3, learning_rate=0.2),
    "minibatches": Recipe(batch=4, shares="change", local_steps=5, minibatch=2),
    "momentum and decay": Recipe(batch=4, shares="change", local_steps=3, momentum=0.9, weight_decay=0.01),
}


def _trained(task: Task, x: Tensor, y: Tensor) -> list[Tensor]:
    """The oracle of local training: parameters as a list, one autograd step after another."""
    recipe = task.recipe
    names = list(task.params)
    start = [p.clone().requires_grad_() for p in task.params.values()]
    theta, velocity = list(start), [torch.zeros_like(p) for p in start]
    width = recipe.minibatch or len(x)
    for step in range(recipe.local_steps):
        first = (step * width) % len(x)
        state = dict(zip(names, theta, strict=True))
        outputs = torch.func.functional_call(task.working, state, (x[first : first + width],))
        loss = nn.functional.cross_entropy(outputs, y[first : first + width])
        slopes = torch.autograd.grad(loss, theta, create_graph=True)
        moved = zip(velocity, slopes, theta, strict=True)
        velocity = [recipe.momentum * v + g + recipe.weight_decay * p for v, g, p in moved]
        theta = [p - recipe.learning_rate * v for p, v in zip(theta, velocity, strict=True)]
    return [after - before for after, before in zip(theta, start, strict=True)]


@pytest.mark.parametrize("which", CHANGES)
def test_weight_changes_by_vmap_equal_local_training(which: str) -> None:
    task = task_of(FITTING["stride"], recipe=CHANGES[which])
    assert unsupported(task) == "weight changes after local training have no layer factors"
    inputs = torch.rand(3, 4, 1, 8, 8, dtype=torch.float64).requires_grad_()
    labels = torch.randint(0, 5, (3, 4))
    for path in (make(task, task.params, task.buffers) for make in (Vmap, Loop)):
        made = path.updates(Candidate(inputs, labels), Sharing((3,))).dense()
        for n in range(3):
            wanted = _trained(task, inputs[n], labels[n])
            for found, other in zip(made.values(), wanted, strict=True):
                torch.testing.assert_close(found[n], other, rtol=1e-10, atol=1e-13)
        weights = torch.randn(3, dtype=torch.float64)
        found_slope = torch.autograd.grad((Batch.of(made).square().sum(1) * weights).sum(), inputs)[0]
        squares = [
            torch.stack([t.square().sum() for t in _trained(task, *one)]).sum()
            for one in zip(inputs, labels, strict=True)
        ]
        (wanted_slope,) = torch.autograd.grad((torch.stack(squares) * weights).sum(), inputs)
        torch.testing.assert_close(found_slope, wanted_slope, rtol=1e-8, atol=1e-13)


@pytest.mark.parametrize(
    ("network", "reason"),
    [
        ("tied weights", "layers 'inner' and 'outer' share a parameter"),
        ("own layer", "layer '2' is a Scale, which it does not know"),
        ("grouped", "layer '1' is a grouped convolution"),
        ("reflected", "layer '0' pads with something else than a fixed number of zeros"),
    ],
)
def test_the_ghost_path_says_what_it_does_not_serve(network: str, reason: str) -> None:
    task = task_of(FALLING[network])
    seen = observe(task, Records(torch.rand(1, 1, 8, 8), torch.tensor([1]), IMAGES))
    with pytest.raises(PathError) as raised:
        Adversary(solver=adam(steps=1))(task, seen, path="ghost")
    assert str(raised.value) == f'ghost path: {reason}; use path="vmap" or "auto"'


@pytest.mark.parametrize(
    ("network", "what"),
    [
        ("a layer twice", "a layer is used twice in one pass"),
        ("functional in-place", "its gradient differs from the plain one"),
        ("coupled examples", "its gradient differs from the plain one"),
    ],
)
def test_a_ghost_that_is_wrong_is_found_out_at_the_start(network: str, what: str) -> None:
    task = task_of(FALLING[network])
    seen = observe(task, Records(torch.rand(1, 1, 8, 8), torch.tensor([1]), IMAGES))
    with pytest.raises(PathError, match=what) as raised:
        Adversary(solver=adam(steps=1))(task, seen, path="ghost")
    assert str(raised.value).startswith("ghost path: ")
    assert str(raised.value).endswith('use path="loop" for this model')


def test_an_unknown_path_is_refused() -> None:
    task = task_of(FITTING["linear"])
    seen = observe(task, Records(torch.rand(1, 1, 8, 8), torch.tensor([1]), IMAGES))
    with pytest.raises(PathError, match=r"path: there is no path 'gohst'; did you mean 'ghost'\?"):
        Adversary(solver=adam(steps=1))(task, seen, path="gohst")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["auto", "ghost", "vmap", "loop"])
def test_a_path_is_chosen_by_name(name: PathName) -> None:
    task = task_of(FITTING["linear"])
    candidate = Candidate(torch.rand(1, 1, 1, 8, 8, dtype=torch.float64), torch.tensor([[1]]))
    path = choose(task, task.params, task.buffers, name, lambda updates, _: updates.square().sum(1), candidate)
    assert path.name == {"auto": "ghost"}.get(name, name)


def test_a_biased_path_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A ghost that is off by a percent must not be used."""
    honest = Ghost.updates

    def biased(self: Ghost, candidate: Candidate, sharing: Sharing) -> Batch:
        return honest(self, candidate, sharing).scaled(torch.full((sharing.total,), 1.01, dtype=torch.float64))

    monkeypatch.setattr(Ghost, "updates", biased)
    task = task_of(FITTING["linear"])
    candidate = Candidate(torch.rand(1, 1, 1, 8, 8, dtype=torch.float64), torch.tensor([[1]]))
    objective: Callable[[Batch, Candidate], Tensor] = lambda updates, _: updates.square().sum(1)  # noqa: E731
    assert choose(task, task.params, task.buffers, "auto", objective, candidate).name == "vmap"
    with pytest.raises(PathError, match=r"ghost path: its gradient differs from the plain one by 2\.0e-02"):
        choose(task, task.params, task.buffers, "ghost", objective, candidate)


def test_a_loss_without_a_value_per_example_is_refused_by_the_ghost_path() -> None:
    class Total(CrossEntropy):
        def __call__(self, outputs: Tensor, labels: Tensor) -> Tensor:
            return super().__call__(outputs, labels).mean().view(1)

    task = task_of(FITTING["linear"], recipe=Recipe(batch=2, loss=Total()))
    seen = observe(task, Records(torch.rand(2, 1, 8, 8), torch.tensor([1, 2]), IMAGES))
    with pytest.raises(PathError, match=r"the loss returns \(1,\) for 4 examples; return one value per example"):
        Ghost.of(task, task.params, task.buffers).updates(
            Candidate(torch.rand(2, 2, 1, 8, 8, dtype=torch.float64), torch.zeros(2, 2, dtype=torch.long)),
            Sharing((2,)),
        )
    assert Adversary(solver=adam(steps=1))(task, seen).path == "vmap"


def test_frozen_parameters_are_state_not_update() -> None:
    task = task_of(FITTING["wide"])
    task.model[1].requires_grad_(False)  # type: ignore[index]
    task = Task(task.model, task.domain)
    assert list(task.params) == ["3.weight", "3.bias"]
    setting = Setting(task, 2)
    for path in setting.paths().values():
        setting.check(path, "l2", 1e-10)
    half = task_of(FITTING["wide"])
    half.model[1].bias.requires_grad_(False)  # type: ignore[index]
    assert unsupported(Task(half.model, half.domain)) == "layer '1' is partly frozen"
