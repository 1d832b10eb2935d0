"""Top-k, and what anybody can read off the zeros that pruning leaves."""

from __future__ import annotations

import pytest
import torch

from leakgauge.adversary import cosine, through
from leakgauge.defenses import prune, random_prune, topk
from leakgauge.errors import DomainError
from leakgauge.testing import example_update, likelihood_laws
from leakgauge.updates import Batch, Stack


def test_one_threshold_for_the_whole_update_or_one_for_each_tensor() -> None:
    update = {"a": torch.tensor([5.0, -4.0, 0.1, 0.2]), "b": torch.tensor([[3.0, -0.5], [0.4, 0.3]])}
    whole = topk(keep=0.25).release(update, None, generator=torch.Generator())
    assert whole.observed["a"].tolist() == [5.0, -4.0, 0.0, 0.0]
    assert not whole.observed["b"].any()
    assert float(whole.drawn["threshold"]["b"]) == 4.0
    each = topk(keep=0.25, per="tensor").release(update, None, generator=torch.Generator())
    assert each.observed["a"].tolist() == [5.0, 0.0, 0.0, 0.0]
    assert each.observed["b"].tolist() == [[3.0, 0.0], [0.0, 0.0]]


@pytest.mark.parametrize("part", [topk(keep=0.3), topk(keep=0.3, per="tensor"), prune(p=0.7)], ids=repr)
def test_the_threshold_is_seen(part: topk) -> None:
    out = part.release(example_update(), None, generator=torch.Generator())
    seen = part.visible(Stack({name: value.unsqueeze(0) for name, value in out.observed.items()}))
    for name, threshold in out.drawn["threshold"].items():
        assert float(seen["threshold"][name]) == float(threshold)


def test_more_zeros_than_were_pruned_are_true_zeros() -> None:
    update = {"w": torch.tensor([0.0, 0.0, 0.0, 2.0, 0.1])}
    part = prune(p=0.4)  # at most two entries become zero
    out = part.release(update, None, generator=torch.Generator())
    assert torch.equal(out.observed["w"], update["w"])
    seen = part.visible(Stack({"w": out.observed["w"].unsqueeze(0)}))
    assert float(seen["threshold"]["w"]) == float(out.drawn["threshold"]["w"]) == 0.0
    # so a candidate must be zero there, and what is not counts in full
    moved = part.apply(Batch.of({"w": torch.full((1, 5), 0.05)}), seen)
    assert isinstance(moved, Batch)
    assert moved.dense()["w"].tolist() == [pytest.approx([0.05] * 5)]


def test_zeros_of_later_parts_are_not_taken_for_true_ones() -> None:
    part = prune(p=0.2) | random_prune(p=0.8)
    update = {"w": torch.linspace(1, 2, 100)}
    out = part.release(update, None, generator=torch.Generator().manual_seed(0))
    seen = part.visible(Stack({"w": out.observed["w"].unsqueeze(0)}))
    assert float(seen["prune.threshold"]["w"]) > 1.0


@pytest.mark.parametrize("text", ["topk(keep=0.1)", "clip(norm=0.1) | topk(keep=0.3, per='tensor')"])
def test_the_likelihood_is_the_same_on_every_path(text: str) -> None:
    likelihood_laws(through(cosine()), protection=text)


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"keep": 0.0}, r"topk: keep must lie in \(0, 1\], got 0.0"),
        ({"keep": 1.5}, r"topk: keep must lie in \(0, 1\], got 1.5"),
        ({"keep": 0.5, "per": "layer"}, "topk: per must be one of update, tensor"),
    ],
)
def test_bad_settings_are_refused(options: dict[str, object], what: str) -> None:
    with pytest.raises(DomainError, match=what):
        topk(**options)  # type: ignore[arg-type]
