"""Protection: the one composition of the four stages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pytest

from leakgauge.defenses import Chain, Protection, clip, gaussian, identity, protection, prune, random_prune
from leakgauge.errors import ExpressionError
from leakgauge.expr import Part
from leakgauge.testing import CHAINS, texts_of
from leakgauge.types import Nuisance


@dataclass(frozen=True, repr=False)
class Mix(Part):
    """An input-stage part, as later ones will be."""

    k: int = 2
    stage: ClassVar[str] = "input"
    nuisances: ClassVar[tuple[Nuisance, ...]] = (Nuisance("weights", per="example"),)


@dataclass(frozen=True, repr=False)
class Latent(Part):
    """A model-stage part."""

    stage: ClassVar[str] = "model"
    nuisances: ClassVar[tuple[Nuisance, ...]] = (Nuisance("noise", per="example"),)


def test_nothing_is_the_default() -> None:
    assert Protection().update == identity()
    assert Protection().nuisances == {}
    assert repr(Protection()) == "identity()"


@pytest.mark.parametrize("text", [*CHAINS, *texts_of("update")])
def test_an_expression_reads_back(text: str) -> None:
    made = protection(text)
    assert repr(made) == text
    assert protection(repr(made)) == made
    assert protection(made) is made
    assert protection(made.update) == made


def test_stages_keep_their_order_whatever_was_written_first() -> None:
    made = protection(Mix()) | gaussian(std=0.1) | Latent()
    assert made == Protection(input=(Mix(),), model=(Latent(),), update=gaussian(std=0.1))
    assert repr(made) == f"{__name__}:Mix() | {__name__}:Latent() | gaussian(std=0.1)"
    assert repr(protection(Mix())) == f"{__name__}:Mix()"
    assert made.nuisances == {"Mix.weights": Mix.nuisances[0], "Latent.noise": Latent.nuisances[0]}


def test_update_stages_chain() -> None:
    made = protection("clip(norm=1.0)") | "gaussian(std=0.1)" | prune(p=0.5)
    assert made.update == Chain((clip(norm=1.0), gaussian(std=0.1), prune(p=0.5)))
    assert (Protection() | random_prune(p=0.5)).update == random_prune(p=0.5)
    assert (protection("gaussian(std=0.1)") | identity()).update == gaussian(std=0.1)
    assert list(made.nuisances) == ["prune.threshold"]


def test_an_address_is_the_same_alone_and_in_any_chain() -> None:
    for text in (
        "random_prune(p=0.5)",
        "random_prune(p=0.5) | gaussian(std=0.1)",
        "clip(norm=1.0) | random_prune(p=0.5)",
    ):
        assert list(protection(text).nuisances) == ["random_prune.mask"]
    assert list(protection("precode() | gaussian(std=0.1) | lrp()").nuisances) == ["precode.noise", "lrp.scale"]


def test_the_second_of_two_equal_parts_is_numbered_at_every_stage() -> None:
    update = protection("random_prune(p=0.5) | topk(keep=0.5) | random_prune(p=0.5) | random_prune(p=0.1)")
    labels = ["random_prune", "topk", "random_prune#2", "random_prune#3"]
    assert list(update.parts) == labels
    assert [address.partition(".")[0] for address in update.nuisances] == labels
    both = protection("mixup(k=2) | mixup(k=3)")
    assert both.stage("input") == {"mixup": both.input[0], "mixup#2": both.input[1]}
    assert list(both.nuisances) == [
        f"{label}.{name}" for label in ("mixup", "mixup#2") for name in ("indices", "coefficients")
    ]


@pytest.mark.parametrize("how", [3, None, "tv()", "adam()", Part])
def test_what_is_no_defense_is_refused(how: object) -> None:
    import leakgauge.adversary  # noqa: F401 - so that every name is known

    with pytest.raises(ExpressionError, match=r"defense: .* is not a defense.*; see `leakgauge list defense`"):
        protection(how)
