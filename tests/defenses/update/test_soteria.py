"""Soteria against its published algorithm, feature by feature, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import leakgauge as lg
from leakgauge.adversary import cosine, through
from leakgauge.defenses import gaussian, soteria
from leakgauge.defenses.update.soteria import slope_norms
from leakgauge.errors import DomainError, ModelError
from leakgauge.task import ClientContext
from leakgauge.testing import likelihood_laws, small_records, small_task, task_is_untouched
from leakgauge.updates import Batch, Stack


def published(task: lg.Task, records: lg.Records, layer: str, percent: float, eps: float) -> np.ndarray:
    """The mask by the released code's way: one backward pass per feature, numpy's percentile."""
    inputs = records.inputs.double().requires_grad_()
    r = ClientContext(task, records, task.params).representation_of(layer)(inputs)
    score = torch.zeros(r.shape[1], dtype=torch.float64)
    for i in range(r.shape[1]):
        (slope,) = torch.autograd.grad(r[:, i].sum(), inputs, retain_graph=True)
        score[i] = (slope.flatten(1).norm(dim=1) / (r[:, i] + eps)).sum().detach()
    values = score.numpy()
    return np.where(np.abs(values) < np.percentile(values, percent), 0, 1)


@pytest.mark.parametrize(("layer", "batch"), [("middle", 1), ("middle", 3), ("last", 2)])
def test_the_mask_is_the_published_one(layer: str, batch: int) -> None:
    task, records = small_task(batch=batch), small_records(batch)
    plain, part = task.update(records), soteria(layer=layer, p=0.8, epsilon=0.1)
    context = ClientContext(task, records, task.params)
    made = part.release(plain, context, generator=torch.Generator())
    mask = made.drawn["mask"][f"{layer}.weight"]
    assert mask[0].numpy().tolist() == published(task, records, layer, 80, 0.1).tolist()
    for name, value in plain.items():
        expected = value * mask if name == f"{layer}.weight" else value
        assert torch.equal(made.observed[name], expected)
    # anybody can see it
    seen = part.visible(Stack({name: value.unsqueeze(0) for name, value in made.observed.items()}))
    assert torch.equal(seen["mask"][f"{layer}.weight"][0], mask)


@pytest.mark.parametrize("layers", ["relu", "norm", "dropout"])
def test_slopes_are_the_rows_of_the_jacobian(layers: str) -> None:
    """More features than inputs: forward mode where records are apart; else, and where a layer draws, backward."""
    torch.manual_seed(0)
    last = {"relu": nn.ReLU(), "norm": nn.BatchNorm1d(90, track_running_stats=False), "dropout": nn.Dropout(0.5)}
    model = nn.Sequential(nn.Flatten(), nn.Linear(75, 90), nn.Tanh(), last[layers]).double()
    x = torch.randn(3, 3, 5, 5, dtype=torch.float64)
    torch.manual_seed(1)
    slopes = slope_norms(model, x)
    torch.manual_seed(1)
    jacobian = torch.autograd.functional.jacobian(lambda z: model(z).sum(0), x).flatten(2)
    assert torch.allclose(slopes, jacobian.norm(dim=2).T, rtol=1e-10, atol=1e-12)
    assert torch.equal(slopes > 0, jacobian.norm(dim=2).T > 0)


def test_dead_features_are_pruned_first_or_left_out_of_the_count() -> None:
    slopes = torch.tensor([[0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0]])
    r = torch.ones(1, 10)
    assert soteria(layer="x", p=0.7).kept(r, slopes).tolist() == [False] * 7 + [True] * 3
    assert soteria(layer="x", p=0.5, features="live").kept(r, slopes).tolist() == [False] * 7 + [True] * 3
    without = soteria(layer="x", p=0.5, epsilon=0.0).kept(torch.where(slopes > 0, r, 0 * r), slopes)
    assert without.tolist() == [False] * 5 + [True] * 5  # 0/0 is dead, not NaN
    assert soteria(layer="x", p=0.5, features="live").kept(r, 0 * slopes).all()


def test_the_user_model_is_untouched() -> None:
    task = small_task(batch=2).protect("soteria(layer='middle')")
    task_is_untouched(task, lambda: lg.observe(task, small_records(2)))


def test_the_likelihood_on_surviving_columns_is_the_same_on_every_path() -> None:
    likelihood_laws(through(cosine()), protection="soteria(layer='middle', p=0.6)")
    likelihood_laws(through(cosine()), protection="clip(norm=0.1) | soteria(layer='middle') | prune(p=0.5)")


def test_with_noise_the_density_is_that_of_the_columns_that_stayed() -> None:
    u, o = torch.tensor([[[0.3, 2.0]]]), torch.tensor([[[0.5, 0.0]]])
    known: dict[str, dict[str, Tensor]] = {"soteria.mask": {"x.weight": torch.tensor([[[1.0, 0.0]]])}}
    value = (gaussian(std=0.5) | soteria(layer="x")).log_density(
        Stack({"x.weight": o}), Batch.of({"x.weight": u}), known=known
    )
    assert float(value) == pytest.approx(float(torch.distributions.Normal(0.3, 0.5).log_prob(torch.tensor(0.5))))
    value = (soteria(layer="x") | gaussian(std=0.5)).log_density(
        Stack({"x.weight": o}), Batch.of({"x.weight": u}), known=known
    )
    assert float(value) == pytest.approx(
        float(torch.distributions.Normal(torch.tensor([0.3, 0.0]), 0.5).log_prob(o).sum())
    )


def test_a_layer_that_does_not_exist_is_refused_before_anything_runs() -> None:
    with pytest.raises(ModelError, match=r"soteria: there is no layer 'midle'; did you mean 'middle'\?"):
        small_task().protect("clip(norm=1.0) | soteria(layer='midle')")
    with pytest.raises(ModelError, match=r"layer 'first' is not linear .*; defend one of middle, last"):
        small_task().protect("soteria(layer='first')")
    with pytest.raises(ModelError, match="needs the layer's input; release through observe"):
        soteria(layer="middle").release(small_task().params, None, generator=torch.Generator())


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"p": 1.0}, r"soteria: p must lie in \[0, 1\), got 1.0"),
        ({"epsilon": -1.0}, r"soteria: epsilon must lie in \[0, ∞\), got -1.0"),
        ({"features": "dead"}, "soteria: features must be one of all, live"),
    ],
)
def test_bad_settings_are_refused(options: dict[str, object], what: str) -> None:
    with pytest.raises(DomainError, match=what):
        soteria(layer="x", **options)  # type: ignore[arg-type]
