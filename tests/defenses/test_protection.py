"""Protection: the one composition of the four stages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pytest

from leakgauge.defenses import Chain, Protection, clip, gaussian, identity, protection, prune, random_prune
from leakgauge.errors import ExpressionError
from leakgauge.expr import Part
from leakgauge.testing import CHAINS, texts_of


@dataclass(frozen=True, repr=False)
class Mix(Part):
    """An input-stage part, as later ones will be."""

    k: int = 2
    stage: ClassVar[str] = "input"
    nuisances: ClassVar[tuple[str, ...]] = ("weights",)


@dataclass(frozen=True, repr=False)
class Latent(Part):
    """A model-stage part."""

    stage: ClassVar[str] = "model"
    nuisances: ClassVar[tuple[str, ...]] = ("noise",)


def test_nothing_is_the_default() -> None:
    assert Protection().update == identity()
    assert Protection().nuisances == ()
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
    assert made.nuisances == ("weights", "noise")


def test_update_stages_chain() -> None:
    made = protection("clip(norm=1.0)") | "gaussian(std=0.1)" | prune(p=0.5)
    assert made.update == Chain((clip(norm=1.0), gaussian(std=0.1), prune(p=0.5)))
    assert (Protection() | random_prune(p=0.5)).update == random_prune(p=0.5)
    assert (protection("gaussian(std=0.1)") | identity()).update == gaussian(std=0.1)
    assert made.nuisances == ("2.threshold",)


@pytest.mark.parametrize("how", [3, None, "tv()", "adam()", Part])
def test_what_is_no_defense_is_refused(how: object) -> None:
    import leakgauge.adversary  # noqa: F401 - so that every name is known

    with pytest.raises(ExpressionError, match=r"defense: .* is not a defense; see `leakgauge list defense`"):
        protection(how)
