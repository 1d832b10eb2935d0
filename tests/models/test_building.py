"""Seeds, the user's own models, normalisation."""

from __future__ import annotations

import copy
import pickle
import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, vmap

from leakgauge.errors import ExpressionError, LeakgaugeError, ModelError
from leakgauge.models import build, normalised
from leakgauge.types import Domain

GREY = Domain("image", (1, 28, 28), 10)
COLOUR = Domain("image", (3, 32, 32), 10)
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)


def equal(a: nn.Module, b: nn.Module) -> bool:
    return all(torch.equal(p, q) for p, q in zip(a.parameters(), b.parameters(), strict=True))


# --- seeds


@pytest.mark.parametrize("name", ["mlp", "dlg_lenet", "bayes_cnn", "cnn_13700", "mlp(uniform=0.05)"])
def test_weights_depend_on_the_seed_alone(name: str) -> None:
    first = build(name, GREY, seed=3)
    torch.rand(7)
    assert equal(first, build(name, GREY, seed=3))
    assert not equal(first, build(name, GREY, seed=4))
    assert equal(build(name, GREY), build(name, GREY, seed=0))


@pytest.mark.parametrize("name", ["mlp", "bayes_cnn", "mlp(width=3)", "mpl", "mlp(width=0)"])
def test_the_global_generator_is_left_alone(name: str) -> None:
    torch.manual_seed(11)
    before = torch.get_rng_state()
    try:
        build(name, GREY, seed=3)
    except LeakgaugeError:
        assert name in ("mpl", "mlp(width=0)")
    assert torch.equal(torch.get_rng_state(), before)


# --- the user's own


@pytest.fixture(autouse=True)
def _own_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_models.py").write_text(
        """
from torch import nn
def plain(width=4): return nn.Sequential(nn.Flatten(), nn.Linear(784, width), nn.Linear(width, 10))
def sized(domain): return nn.Sequential(nn.Flatten(), nn.Linear(domain.size, domain.classes))
class Own(nn.Module):
    def __init__(self): super().__init__(); self.inner = nn.Linear(3, 2)
ready = Own()
def wrong(): return "a model"
def needy(a, b): return nn.Linear(a, b)
def broken(): raise KeyError("sorry")
number = 3
"""
    )
    (tmp_path / "own_faulty.py").write_text("raise RuntimeError('half written')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "own_models", raising=False)


def test_own_factories() -> None:
    plain = build("own_models:plain", GREY, seed=5)
    assert equal(plain, build("own_models:plain", GREY, seed=5))
    assert not equal(plain, build("own_models:plain", GREY, seed=6))
    assert build("own_models:plain", GREY, width=9)[1].out_features == 9
    assert build("own_models:plain(width=9)", GREY)[1].out_features == 9
    assert build("own_models:sized", COLOUR)[1].in_features == 3072
    assert list(build("own_models:Own", GREY).state_dict()) == ["inner.weight", "inner.bias"]


def test_a_model_that_is_already_built_is_copied() -> None:
    model = build("own_models:ready", GREY)
    ready = sys.modules["own_models"].ready
    assert model is not ready
    assert equal(model, ready)


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("wrong", "own_models:wrong: returned str; return an nn.Module"),
        ("number", "own_models:number: is int"),
        ("needy", "raised TypeError: .*without arguments, or with domain"),
        ("broken", "raised KeyError: 'sorry'"),
    ],
)
def test_own_models_with_faults(name: str, what: str) -> None:
    with pytest.raises(ModelError, match=what):
        build(f"own_models:{name}", GREY)


def test_own_module_that_cannot_be_imported() -> None:
    with pytest.raises(ModelError, match="its import raised RuntimeError: half written"):
        build("own_faulty:model", GREY)


def test_names_that_lead_nowhere() -> None:
    with pytest.raises(ModelError, match="unknown model 'bayes_cn'; did you mean 'bayes_cnn'"):
        build("bayes_cn", GREY)
    with pytest.raises(ExpressionError, match="cannot load 'own_models:none'"):
        build("own_models:none", GREY)
    with pytest.raises(ModelError, match=r"unexpected keyword argument 'widht'; its arguments are width, depth"):
        build("mlp", GREY, widht=3)
    with pytest.raises(ModelError, match="already has arguments"):
        build("mlp(width=3)", GREY, depth=3)
    with pytest.raises(ModelError, match="is not a model but 3"):
        build("3", GREY)
    with pytest.raises(ExpressionError, match="cannot read"):
        build("mlp(", GREY)


# --- normalisation


def by_hand(x: torch.Tensor) -> torch.Tensor:
    return (x - torch.tensor(MEAN).view(3, 1, 1)) / torch.tensor(STD).view(3, 1, 1)


def test_normalised_equals_normalising_by_hand_and_renames_nothing() -> None:
    model = build("bayes_cnn", COLOUR)
    before = copy.deepcopy(model.state_dict())
    wrapped = normalised(model, MEAN, STD)
    x = torch.rand(4, 3, 32, 32)
    assert torch.equal(wrapped(x), model(by_hand(x)))
    assert not torch.equal(wrapped(x), model(x))  # the user's own model is left alone
    assert list(wrapped.state_dict()) == list(before)
    assert [n for n, _ in wrapped.named_parameters()] == [n for n, _ in model.named_parameters()]
    assert [n for n, _ in wrapped.named_buffers()] == [n for n, _ in model.named_buffers()]
    wrapped.load_state_dict(before)
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())


def test_normalised_survives_copies_and_functional_calls() -> None:
    model = build("bayes_cnn", COLOUR)
    wrapped = normalised(model, MEAN, STD)
    x = torch.rand(2, 3, 32, 32)
    expected = model(by_hand(x))
    assert torch.equal(copy.deepcopy(wrapped)(x), expected)
    assert torch.equal(pickle.loads(pickle.dumps(wrapped))(x), expected)  # noqa: S301 - our own bytes
    parameters = {k: v.detach() * 2 for k, v in wrapped.named_parameters()}
    doubled = functional_call(model, parameters, (by_hand(x),))
    assert torch.equal(functional_call(wrapped, parameters, (x,)), doubled)

    def loss(x: torch.Tensor) -> torch.Tensor:
        return functional_call(wrapped, parameters, (x[None],)).square().sum()

    alone = torch.stack([grad(loss)(one) for one in x])
    assert torch.allclose(vmap(grad(loss))(x), alone, rtol=1e-4, atol=1e-4)


def test_normalised_keeps_double_precision_and_derivatives() -> None:
    wrapped = normalised(build("dlg_lenet", Domain("image", (3, 8, 8), 2)).double(), MEAN, STD)
    x = torch.rand(1, 3, 8, 8, dtype=torch.float64, requires_grad=True)
    assert wrapped(x).dtype == torch.float64
    assert torch.autograd.gradcheck(wrapped, (x,))


def test_normalising_twice_puts_the_outer_first() -> None:
    inner = normalised(nn.Identity(), [1.0], [1.0])
    outer = normalised(inner, [0.0], [0.5])
    assert float(outer(torch.ones(1, 1, 1, 1))) == 1.0  # 1 / 0.5 - 1, not (1 - 1) / 0.5


def test_normalise_faults() -> None:
    wrapped = normalised(build("logistic", GREY), MEAN, STD)
    with pytest.raises(ModelError, match=r"shape \(2, 1, 28, 28\) do not have 3 channels"):
        wrapped(torch.rand(2, 1, 28, 28))
    with pytest.raises(ModelError, match="3 means but 2 standard deviations"):
        normalised(nn.Identity(), MEAN, STD[:2])
    for std in ([0.0], [-1.0], [float("nan")]):
        with pytest.raises(ModelError, match="deviations above 0"):
            normalised(nn.Identity(), [0.5], std)
