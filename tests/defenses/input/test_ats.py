"""ATS: its operations are those of the imaging library it was published with, and most can be undone."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance, ImageOps
from torch import Tensor

import leakgauge as lg
from leakgauge.attacks import adaptive
from leakgauge.attacks.ats import raw_image
from leakgauge.defenses import ats
from leakgauge.defenses.input.ats import apply, undone
from leakgauge.defenses.input.operations import OPERATIONS, Operation
from leakgauge.errors import DataError, DomainError
from leakgauge.metrics import psnr
from leakgauge.observation import encoded
from leakgauge.testing import small_task
from leakgauge.training import search
from leakgauge.types import Domain, Threat


@pytest.fixture(scope="module")
def colour() -> Tensor:
    """A smooth colour image with all levels."""
    grid = torch.linspace(0, 1, 32)
    planes = [grid.view(1, -1).expand(32, 32), grid.view(-1, 1).expand(32, 32), torch.outer(grid, grid)]
    noise = torch.rand(3, 32, 32, generator=torch.Generator().manual_seed(0))
    return ((0.8 * torch.stack(planes) + 0.2 * noise) * 255).round() / 255


def theirs(x: Tensor, act: Callable[[Image.Image], Image.Image]) -> Tensor:
    image = Image.fromarray((x * 255).round().byte().permute(1, 2, 0).numpy())
    return torch.from_numpy(np.asarray(act(image)).copy()).permute(2, 0, 1).float() / 255


REFERENCES: dict[str, Callable[[Image.Image, float], Image.Image]] = {
    "invert": lambda image, _: ImageOps.invert(image),
    "autocontrast": lambda image, _: ImageOps.autocontrast(image),
    "equalize": lambda image, _: ImageOps.equalize(image),
    "posterize": lambda image, m: ImageOps.posterize(image, round(m)),
    "solarize": lambda image, m: ImageOps.solarize(image, m),
    "contrast": lambda image, m: ImageEnhance.Contrast(image).enhance(1 + m),
    "brightness": lambda image, m: ImageEnhance.Brightness(image).enhance(1 + m),
    "color": lambda image, m: ImageEnhance.Color(image).enhance(1 + m),
    "sharpness": lambda image, m: ImageEnhance.Sharpness(image).enhance(1 + m),
    "translate_x": lambda image, m: image.transform(image.size, Image.AFFINE, (1, 0, int(m * 32), 0, 1, 0)),
    "translate_y": lambda image, m: image.transform(image.size, Image.AFFINE, (1, 0, 0, 0, 1, int(m * 32))),
}


@pytest.mark.parametrize("operation", sorted(set(OPERATIONS), key=repr), ids=repr)
@pytest.mark.parametrize("sign", [1, -1])
def test_operations_are_those_of_the_imaging_library(operation: Operation, sign: int, colour: Tensor) -> None:
    if sign == -1 and not operation.signed:
        pytest.skip("it has no sign")
    ours = operation(colour, sign)
    assert 0 <= float(ours.min()) <= float(ours.max()) <= 1
    if operation.name in REFERENCES:
        wanted = theirs(colour, lambda image: REFERENCES[operation.name](image, sign * operation.magnitude))
        assert float((ours - wanted).abs().max()) <= 2.5 / 255
    if (
        operation.name in ("rotate", "shear_y") and operation.magnitude
    ):  # another interpolation: the picture is the same
        angle = operation.magnitude
        wanted = (
            theirs(colour, lambda image: image.rotate(angle, Image.BILINEAR, fillcolor=(128,) * 3))
            if operation.name == "rotate"
            else theirs(
                colour,
                lambda image: image.transform(
                    image.size, Image.AFFINE, (1, 0, 0, sign * angle, 1, -sign * angle * 16), Image.BILINEAR
                ),
            )
        )
        assert float((ours - wanted)[:, 8:-8, 8:-8].abs().mean()) < 0.03


def test_there_are_fifty_and_the_named_policies_are_what_the_paper_says() -> None:
    assert len(OPERATIONS) == 50
    assert [op.name for op in ats(policy="7-4-15").policies[0]] == ["translate_y", "sharpness", "brightness"]
    assert [op.name for op in ats(policy="21-13-3").policies[0]] == ["translate_x", "brightness", "translate_x"]
    assert OPERATIONS[15].magnitude == 0.5
    assert OPERATIONS[11] == Operation("posterize", 8 - 4 * 5 / 9)
    assert ats(policy="3--1-7").policies == (tuple(OPERATIONS[i] for i in (3, 7)),)
    assert ats(policy="-1").policies == ((),)


@pytest.mark.parametrize("index", range(50))
@pytest.mark.parametrize("sign", [1, -1])
def test_what_can_be_undone_comes_back(index: int, sign: int) -> None:
    operation = OPERATIONS[index]
    grid = torch.linspace(0.3, 0.6, 16)
    image = torch.stack([grid.view(1, -1).expand(16, 16), grid.view(-1, 1).expand(16, 16), 0.9 - grid.expand(16, 16)])
    back = operation.undo(operation(image, sign), sign)
    if operation.name in ("autocontrast", "equalize", "posterize", "solarize"):
        assert back is None
        return
    assert back is not None
    middle = (back - image)[:, 7:9, 7:9]
    assert float(middle.abs().max()) < (0.02 if operation.name in ("rotate", "shear_y") else 1e-4)


def test_each_image_draws_its_own_policy_and_signs_whoever_else_is_there() -> None:
    records = lg.data.load("fashion_mnist_sample").sample(40, seed=0)
    part = ats(policy="7-4-15+21-13-3")
    made = part.encode(records, torch.arange(40), generator=torch.Generator().manual_seed(1))
    assert set(made.drawn["choice"].tolist()) == {0, 1}
    for i in (0, 7):
        c, signs = int(made.drawn["choice"][i]), made.drawn["signs"][i].tolist()
        assert torch.equal(made.inputs[i], apply(part.policies[c], records.inputs[i], signs))
    assert torch.equal(made.labels, records.labels)


def test_the_hidden_draw_is_found_from_what_is_shown() -> None:
    records = lg.data.load("fashion_mnist_sample").sample(10, seed=0)
    part = ats(policy="7-4-15")
    made = part.encode(records, torch.arange(10), generator=torch.Generator().manual_seed(1))
    for x, shown, signs in zip(records.inputs, made.inputs, made.drawn["signs"].tolist(), strict=True):
        found, whole = raw_image(part, shown, part.draws())
        known = undone(part.policies[0], shown, signs)
        assert whole
        assert float(psnr(found, x)) >= float(psnr(shown, x)) - 1
        assert float(psnr(known, x)) > float(psnr(shown, x))


def test_adaptive_undoes_what_the_policy_allows() -> None:
    sample = lg.data.load("fashion_mnist_sample")
    task = lg.Task(lg.models.build("mlp(width=50, depth=2)", sample.domain), sample.domain).protect("ats(policy='0-7')")
    records = sample.sample(2, seed=0)
    threat = Threat(grants=frozenset({"choice", "signs"}))
    found = adaptive(steps=100)(task, lg.observe(task, records, threat=threat))
    assert set(found.status) == {"undone"}
    shown = encoded(task, records).inputs
    raw = psnr(found.inputs[:, 0], records.inputs)
    assert float(raw.mean()) > float(psnr(shown, records.inputs).mean()) + 5


def test_the_search_scores_and_ranks() -> None:
    sample = lg.data.load("fashion_mnist_sample")
    task = lg.Task(lg.models.build("mlp(width=20, depth=1)", sample.domain), sample.domain)
    found = search(task, task, sample.sample(20, seed=0), candidates=4, images=2, group=10, seed=1)
    again = search(task, task, sample.sample(20, seed=0), candidates=4, images=2, group=10, seed=1)
    assert found == again
    assert sum(score.accepted for score in found) == 2
    assert [s.accepted for s in found] == [True, True, False, False]
    assert found[0].privacy <= found[1].privacy
    assert all(score.accuracy <= -1 and -1 <= score.privacy <= 1 for score in found)
    with pytest.raises(DomainError, match="search: records // group must be an integer ≥ 1"):
        search(task, task, sample.sample(5, seed=0), group=10)


def test_bad_policies_and_other_records_are_refused() -> None:
    for policy, says in (
        ("7-4-50", r"ats: operation 50 in '7-4-50' does not exist; use -1 \(skip\) to 49"),
        ("7-4-", "ats: '7-4-' is no policy; write indices like 7-4-15"),
        ("", "ats: '' is no policy"),
    ):
        with pytest.raises(DomainError, match=says):
            ats(policy=policy)
    table = Domain("table", (5,), 3)
    with pytest.raises(DataError, match=r"it transforms images, not table records of shape \(5,\)"):
        ats().check(table, 4)
    assert small_task().protect("ats()").protection.nuisances.keys() == {"ats.choice", "ats.signs"}
