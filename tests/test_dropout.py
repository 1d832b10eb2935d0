"""Dropout in train mode: a mask per example and step that the client draws, and that a grant gives away."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from leakgauge.adversary import Adversary, adam, l2
from leakgauge.client import Recipe
from leakgauge.errors import ModelError
from leakgauge.inspect import Capture, inspect
from leakgauge.observation import observe
from leakgauge.storage.states import read_state
from leakgauge.task import Task
from leakgauge.testing import small_records, task_is_untouched
from leakgauge.types import Domain, Threat, Value

DOMAIN = Domain("image", (1, 6, 6), 4)
DROPOUT = "recipe.dropout"
GRANTED = Threat(grants=frozenset({DROPOUT}))


class Fixed(nn.Module):
    """Multiplies by a mask that stands before: what ``nn.Dropout`` does once it has drawn."""

    def __init__(self, mask: Tensor) -> None:
        super().__init__()
        self.mask = mask

    def forward(self, x: Tensor) -> Tensor:
        return x * self.mask


def network() -> nn.Sequential:
    layers = [nn.Conv2d(1, 3, 3), nn.Dropout2d(0.3), nn.Tanh(), nn.Flatten(), nn.Dropout(0.5), nn.Linear(48, 4)]
    return nn.Sequential(*layers).double()


def task_of(**options: object) -> Task:
    return Task(network(), DOMAIN, Recipe(mode="train", **options))  # type: ignore[arg-type]


def masks_of(value: Value) -> dict[str, Tensor]:
    assert not isinstance(value, Tensor)
    return dict(value)


def by_hand(model: nn.Sequential, masks: dict[str, Tensor]) -> nn.Sequential:
    """The same layers, sharing parameters, with masks in place of dropout."""
    return nn.Sequential(*[Fixed(masks[name]) if name in masks else layer for name, layer in model.named_children()])


def test_a_gradient_with_a_granted_mask_is_what_backward_leaves_with_that_mask() -> None:
    task, records = task_of(batch=3), small_records(3)
    (one,) = observe(task, records, threat=GRANTED)
    masks = masks_of(one.rounds[0].granted[DROPOUT])
    assert {name: tuple(mask.shape) for name, mask in masks.items()} == {"1": (3, 3, 1, 1), "4": (3, 48)}
    for name, p in (("1", 0.3), ("4", 0.5)):
        assert bool(((masks[name] == 0) | torch.isclose(masks[name], torch.tensor(1 / (1 - p)))).all())
    model = copy.deepcopy(network())
    model.load_state_dict(task.model.state_dict())
    plain = by_hand(model, {name: mask.double() for name, mask in masks.items()})
    nn.functional.cross_entropy(plain(records.inputs.double()), records.labels).backward()
    for name, p in model.named_parameters():
        assert p.grad is not None
        torch.testing.assert_close(one.rounds[0].observed[name], p.grad, rtol=1e-9, atol=1e-12)


def test_every_local_step_draws_a_mask_of_its_own() -> None:
    task, records = task_of(batch=4, shares="change", local_steps=3, minibatch=2), small_records(4)
    (one,) = observe(task, records, threat=GRANTED)
    masks = masks_of(one.rounds[0].granted[DROPOUT])
    assert {name: tuple(mask.shape) for name, mask in masks.items()} == {"1": (4, 3, 3, 1, 1), "4": (4, 3, 48)}
    assert not torch.equal(masks["4"][:, 0], masks["4"][:, 1])
    model = network()
    model.load_state_dict(task.model.state_dict())
    optimiser = torch.optim.SGD(model.parameters(), task.recipe.learning_rate)
    for step, rows in enumerate((slice(0, 2), slice(2, 4), slice(0, 2))):
        plain = by_hand(model, {name: mask[rows, step].double() for name, mask in masks.items()})
        optimiser.zero_grad()
        nn.functional.cross_entropy(plain(records.inputs[rows].double()), records.labels[rows]).backward()
        optimiser.step()
    for name, p in model.named_parameters():
        wanted = p.detach() - task.params[name]
        torch.testing.assert_close(one.rounds[0].observed[name], wanted, rtol=1e-7, atol=1e-12)


def test_entries_are_dropped_with_the_layers_probability() -> None:
    task = task_of(batch=1)
    drawn = [masks_of(task.draw(1, (seed,))[DROPOUT]) for seed in range(200)]
    for name, p in (("1", 0.3), ("4", 0.5)):
        masks = torch.stack([masks[name] for masks in drawn])
        dropped = float((masks == 0).double().mean())
        assert dropped == pytest.approx(p, abs=5 * (p * (1 - p) / masks.numel()) ** 0.5)


def test_every_client_and_every_round_draws_anew_and_leaves_model_and_generator_alone() -> None:
    task, state = task_of(), torch.get_rng_state()
    task_is_untouched(task, lambda: observe(task, small_records(2), rounds=2))
    first, second = observe(task, small_records(2), rounds=2, threat=GRANTED)
    assert torch.equal(torch.get_rng_state(), state)
    masks = [masks_of(each.granted[DROPOUT])["4"] for one in (first, second) for each in one.rounds]
    assert all(not torch.equal(masks[i], masks[j]) for i in range(4) for j in range(i))
    again = observe(task, small_records(1), rounds=2, threat=GRANTED)[0]
    assert torch.equal(masks_of(again.rounds[1].granted[DROPOUT])["4"], masks[1])


def test_there_is_none_in_eval_mode_or_where_nothing_is_dropped() -> None:
    assert DROPOUT in task_of().nuisances
    assert DROPOUT not in Task(network(), DOMAIN, Recipe(mode="eval")).nuisances
    kept_whole = nn.Sequential(nn.Flatten(), nn.Dropout(0.0), nn.Linear(36, 4))
    assert DROPOUT not in Task(kept_whole, DOMAIN, Recipe(mode="train")).nuisances


@pytest.mark.parametrize("layer", [nn.Dropout(1.0), nn.AlphaDropout(0.2), nn.FeatureAlphaDropout(0.2)])
def test_what_is_not_modelled_is_refused_by_name(layer: nn.Module) -> None:
    model = nn.Sequential(nn.Flatten(), layer, nn.Linear(36, 4))
    with pytest.raises(ModelError) as raised:
        Task(model, DOMAIN, Recipe(mode="train"))
    said_first, _, remedy = str(raised.value).partition("; ")
    assert said_first.startswith(f"Task: layer '1', a {type(layer).__name__} with p=")
    assert 'mode="eval"' in remedy
    Task(model, DOMAIN, Recipe(mode="eval"))


@pytest.mark.parametrize("path", ["ghost", "vmap", "loop"])
@pytest.mark.parametrize("batch", [1, 2])
def test_the_adversary_uses_the_granted_mask_on_every_path(path: str, batch: int) -> None:
    """At the record nothing is left of the distance with the mask granted, and much at the mean mask."""
    task, records = task_of(batch=batch), small_records(batch)
    (one,) = observe(task, records, threat=GRANTED)
    still = Adversary(likelihood=l2(relative=True), solver=adam(lr=1e-12, steps=1))
    truth = records.inputs.unsqueeze(0).double()
    reconstruction = still(task, [one], begin=truth, path=path)  # type: ignore[arg-type]
    assert reconstruction.path == path
    assert float(reconstruction.log_posterior) > -1e-10
    hidden = still(task, [one.given(DROPOUT, None)], begin=truth, path=path)  # type: ignore[arg-type]
    assert float(hidden.log_posterior) < -0.01


def test_a_hidden_mask_is_searched_for_under_its_law() -> None:
    task = task_of()
    (one,) = observe(task, small_records(1))
    mean = Adversary(likelihood=l2(relative=True), solver=adam(lr=0.05, steps=40))
    joint = Adversary(likelihood=l2(relative=True), solver=adam(lr=0.05, steps=40), hidden=0.0)
    how = {treatment.address: treatment.how for treatment in mean.treatments(task)}
    assert how[DROPOUT] == "assumed"
    assert {t.address: t.how for t in joint.treatments(task)}[DROPOUT] == "optimised"
    assert float(joint(task, [one]).log_posterior) > float(mean(task, [one]).log_posterior)


class Twice(nn.Module):
    """One dropout layer, used at two places."""

    def __init__(self) -> None:
        super().__init__()
        self.drop, self.first, self.last = nn.Dropout(0.5), nn.Linear(36, 36), nn.Linear(36, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.drop(self.first(self.drop(x.flatten(1)))))  # type: ignore[no-any-return]


class Functional(nn.Module):
    """Dropout that is no layer."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(36, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(nn.functional.dropout(x.flatten(1), 0.5, self.training))  # type: ignore[no-any-return]


def test_one_layer_at_two_places_of_a_sequence_draws_twice() -> None:
    drop = nn.Dropout(0.5)
    model = nn.Sequential(nn.Flatten(), drop, nn.Linear(36, 36), drop, nn.Linear(36, 4))
    (one,) = observe(Task(model, DOMAIN, Recipe(mode="train")), small_records(1), threat=GRANTED)
    masks = masks_of(one.rounds[0].granted[DROPOUT])
    assert set(masks) == {"1", "3"}
    assert not torch.equal(masks["1"], masks["3"])


@pytest.mark.parametrize("make", [Twice, Functional])
def test_draws_that_no_mask_stands_for_are_refused(make: type[nn.Module]) -> None:
    with pytest.raises(ModelError, match="Task: "):
        Task(make(), DOMAIN, Recipe(mode="train"))
    Task(make(), DOMAIN, Recipe(mode="eval"))


def test_a_forward_pass_that_draws_is_noticed_by_inspect_too(tmp_path: Path) -> None:
    class Drawing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.last = nn.Linear(4, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            scores: torch.Tensor = self.last(x + torch.randn_like(x))
            return scores

    model, path = Drawing(), tmp_path / "before.safetensors"
    save_file(dict(model.state_dict()), path)
    before = read_state(path)
    capture = Capture("one", before, {name: torch.ones_like(p) for name, p in model.named_parameters()})
    with pytest.raises(ModelError, match="draws random numbers in its forward pass"):
        inspect(model, Domain("table", (4,), 3), [capture])
