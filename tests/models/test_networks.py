"""The networks are the papers' networks: parameter counts, shapes, initialisation."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from leakgauge import expr
from leakgauge.errors import ModelError
from leakgauge.models import Network, build
from leakgauge.models.base import sequence
from leakgauge.types import Domain

GREY = Domain("image", (1, 28, 28), 10)
COLOUR = Domain("image", (3, 32, 32), 10)
NAMES = ["bayes_cnn", "cnn_13700", "convbig", "convnet64", "dlg_lenet", "lenet5", "logistic", "mlp", "resnet18"]


def size(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize(
    ("name", "domain", "count"),
    [
        ("bayes_cnn", GREY, 333_526),
        ("bayes_cnn", COLOUR, 430_102),
        ("convnet64", COLOUR, 2_904_970),
        ("resnet18", COLOUR, 11_173_962),
        ("cnn_13700", GREY, 13_700),
        ("lenet5", GREY, 61_706),
        # weights and biases by hand: 12 channels of 5x5, then 588 or 768 features
        ("dlg_lenet", GREY, (25 + 1) * 12 + 2 * (12 * 25 + 1) * 12 + 588 * 10 + 10),
        ("dlg_lenet", COLOUR, (75 + 1) * 12 + 2 * (12 * 25 + 1) * 12 + 768 * 10 + 10),
        ("convbig", COLOUR, 28 * 32 + 33 * 64 + 5185 * 2000 + 2001 * 1000 + 1001 * 10),
        ("mlp", COLOUR, 3073 * 500 + 4 * 501 * 500 + 501 * 10),
        ("logistic", GREY, 785 * 10),
    ],
)
def test_parameter_counts(name: str, domain: Domain, count: int) -> None:
    assert size(build(name, domain)) == count


def test_the_list_of_models_is_complete() -> None:
    assert sorted(expr.REGISTRY["model"]) == NAMES


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("shape", "classes"), [((1, 28, 28), 2), ((3, 32, 32), 100), ((3, 64, 64), 10), ((2, 17, 30), 3)]
)
def test_any_image_shape_and_any_number_of_classes(name: str, shape: tuple[int, ...], classes: int) -> None:
    model = build(name, Domain("image", shape, classes)).eval()
    with torch.no_grad():
        logits = model(torch.rand(2, *shape))
    assert logits.shape == (2, classes)
    assert torch.isfinite(logits).all()


@pytest.mark.parametrize("name", NAMES)
def test_the_smallest_image_works_and_a_smaller_one_is_refused(name: str) -> None:
    side = expr.REGISTRY["model"][name].smallest or 1  # type: ignore[attr-defined]
    model = build(name, Domain("image", (1, side, side), 2))
    assert model(torch.rand(1, 1, side, side)).shape == (1, 2)  # a batch of one, in train mode
    if side > 1:
        with pytest.raises(ModelError, match=f"{side - 1}x{side} are too small; use images of at least {side}x{side}"):
            build(name, Domain("image", (1, side - 1, side), 2))


@pytest.mark.parametrize("name", NAMES)
def test_other_records_need_a_dense_network(name: str) -> None:
    domain = Domain("table", (7,), 3)
    if name in ("mlp", "logistic"):
        assert build(name, domain)(torch.randn(4, 7)).shape == (4, 3)
    else:
        with pytest.raises(ModelError, match="takes images, not table records"):
            build(name, domain)


@pytest.mark.parametrize("name", NAMES)
def test_nothing_works_in_place(name: str) -> None:
    """An operation in place would change its own input, or an earlier layer's output."""
    model = build(name, Domain("image", (1, 12, 12), 3)).eval()
    kept: list[tuple[str, torch.Tensor, torch.Tensor]] = []

    def keep(module: nn.Module, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
        for tensor in (inputs[0], output):
            kept.append((type(module).__name__, tensor, tensor.detach().clone()))

    for module in model.modules():
        assert not getattr(module, "inplace", False)
        module.register_forward_hook(keep)
    with torch.no_grad():
        model(torch.rand(2, 1, 12, 12))
    for kind, tensor, before in kept:
        assert torch.equal(tensor, before), kind


@pytest.mark.parametrize("name", ["dlg_lenet", "bayes_cnn", "cnn_13700", "lenet5", "convnet64"])
def test_the_gradient_can_be_differentiated(name: str) -> None:
    domain = Domain("image", (1, 12, 12), 3)
    model = build(name, domain, **({"width": 4} if name == "convnet64" else {}))
    x = torch.rand(2, 1, 12, 12, requires_grad=True)
    loss = nn.functional.cross_entropy(model(x), torch.tensor([0, 1]))
    grads = torch.autograd.grad(loss, list(model.parameters()), create_graph=True)
    (again,) = torch.autograd.grad(sum(g.square().sum() for g in grads), x)
    assert float(again.abs().max()) > 0


# --- layers


def test_convnet64_has_the_layers_of_the_released_code() -> None:
    model = build("convnet64", COLOUR)
    convs = [m for m in model.modules() if isinstance(m, nn.Conv2d)]
    assert [m.out_channels // 64 for m in convs] == [1, 2, 2, 4, 4, 4, 4, 4]
    assert sum(isinstance(m, nn.BatchNorm2d) for m in model.modules()) == 8
    order = [name for name, m in model.named_children() if isinstance(m, nn.Conv2d | nn.MaxPool2d | nn.Linear)]
    assert order == [*(f"conv{i}" for i in range(6)), "pool0", "conv6", "conv7", "pool1", "linear"]
    assert model.get_submodule("linear").in_features == 36 * 64


def test_convbig_has_the_linear_layers_of_the_paper() -> None:
    model = build("convbig", COLOUR)
    assert [m.in_features for m in model.modules() if isinstance(m, nn.Linear)] == [5184, 2000, 1000]


def test_dlg_lenet_is_strided_and_sigmoid() -> None:
    model = build("dlg_lenet", GREY)
    assert [m.stride for m in model.modules() if isinstance(m, nn.Conv2d)] == [(2, 2), (2, 2), (1, 1)]
    assert sum(isinstance(m, nn.Sigmoid) for m in model.modules()) == 3


def test_a_layer_name_is_used_once() -> None:
    with pytest.raises(ModelError, match="share a name"):
        sequence(("conv6", nn.Identity()), ("conv6", nn.Identity()))


# --- initialisation


def test_dlg_lenet_is_uniform_on_one_half() -> None:
    parameters = list(build("dlg_lenet", COLOUR).parameters())
    every = torch.cat([p.detach().flatten() for p in parameters])
    assert float(every.abs().max()) <= 0.5
    assert float(every.abs().max()) > 0.499
    # variance of U(-.5, .5) is 1/12, its standard error over n draws (1/12) sqrt(0.8 / n)
    for p in parameters:
        error = 6 * math.sqrt(0.8 / p.numel()) / 12
        assert float(p.detach().square().mean()) == pytest.approx(1 / 12, abs=error)


def test_bayes_cnn_has_lecun_variance_and_no_biases() -> None:
    model = build("bayes_cnn", COLOUR)
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Conv2d):
            assert module.bias is not None
            assert not module.bias.any()
            weight = module.weight.detach()
            scaled = weight * math.sqrt(weight[0].numel())  # variance 1, whatever the fan-in
            n = weight.numel()
            assert float(scaled.var()) == pytest.approx(1, abs=6 * math.sqrt(2 / n))
            assert float(scaled.mean()) == pytest.approx(0, abs=6 / math.sqrt(n))
            # cut at two standard deviations of the normal that was cut: 2 / 0.8796
            assert float(scaled.abs().max()) <= 2.2738
    biggest = build("bayes_cnn", COLOUR).get_submodule("linear1").weight.detach() * math.sqrt(4096)
    assert float(biggest.abs().max()) > 2.27


def test_mlp_uniform_option() -> None:
    model = build("mlp(uniform=0.05)", GREY)
    every = torch.cat([p.detach().flatten() for p in model.parameters()])
    assert 0.0499 < float(every.abs().max()) <= 0.05
    assert float(every.square().mean()) == pytest.approx(0.05**2 / 3, rel=0.01)
    for wrong in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(ModelError, match="above 0"):
            build("mlp", GREY, uniform=wrong)


# --- expressions


def test_options_and_expressions_agree() -> None:
    by_option = build("mlp", GREY, width=30, depth=2)
    by_text = build("mlp(width=30, depth=2)", GREY)
    assert size(by_option) == 785 * 30 + 31 * 30 + 31 * 10
    assert all(torch.equal(a, b) for a, b in zip(by_option.parameters(), by_text.parameters(), strict=True))
    assert size(build("convnet64(width=8)", COLOUR)) < 50_000


@pytest.mark.parametrize(
    "text", ["mlp()", "mlp(width=30, depth=2)", "mlp(uniform=0.05)", "convnet64(width=8)", "logistic()"]
)
def test_repr_is_the_expression(text: str) -> None:
    part = expr.parse(text, "model")
    assert isinstance(part, Network)
    assert repr(part) == text


@pytest.mark.parametrize(("option", "value"), [("width", 0), ("depth", -1), ("width", 2.5), ("depth", True)])
def test_sizes_are_positive_whole_numbers(option: str, value: object) -> None:
    with pytest.raises(ModelError, match=f"{option} is {value}"):
        build("mlp", GREY, **{option: value})
