"""The likelihood of roundings: their density, made forgiving so that a wrong candidate finds a way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from leakgauge import guards
from leakgauge.adversary.likelihoods import Likelihood
from leakgauge.defenses import Chain, Identity, Protection, Quantise, UpdatePart
from leakgauge.defenses.update.chain import is_noise
from leakgauge.defenses.update.prune import Thresholded
from leakgauge.errors import NoDensityError
from leakgauge.expr import register
from leakgauge.types import Known, Tree, Updates, own_of


@register("likelihood", "forgiving")
@dataclass(frozen=True, repr=False)
class Forgiving(Likelihood):
    """The density of a rounding, per entry, if a ``share`` of the entries may be anywhere.

    Of ``quantise()``, after any maps, and before any pruning by magnitude: exact, a candidate would be impossible as
    long as one entry is further than a step from what was seen, and nothing would say where to go.
    """

    share: float = 0.05

    def __post_init__(self) -> None:
        guards.inside(self.share, "share", "forgiving", 0.0, 1.0)

    def __call__(self, update: Updates, observed: Tree, known: Known, protection: Protection) -> Tensor:
        chain = protection.chain
        place = next((i for i, part in enumerate(chain.parts) if isinstance(part, Quantise)), 0)
        rounding = chain.parts[place]
        before = Chain(chain.parts[:place]).apply(update, known)
        if before is None or not isinstance(rounding, Quantise) or not is_rounding(chain.parts):
            raise NoDensityError(
                f"{protection.update!r} is not a rounding after maps, or pruned by magnitude",
                remedy="use density() or through()",
            )
        labels = list(chain.labelled)
        thresholds = [known[key] for label in labels[place + 1 :] if (key := f"{label}.threshold") in known]
        own = own_of(known, labels[place])
        return rounding.log_forgiving(observed, before, own, self.share, thresholds[-1] if thresholds else None)


def is_rounding(parts: Sequence[UpdatePart]) -> bool:
    """Whether a chain is one rounding after maps, and after it nothing but pruning by magnitude."""
    places = [i for i, part in enumerate(parts) if is_noise(part)]
    return (
        len(places) == 1
        and isinstance(parts[places[0]], Quantise)
        and all(isinstance(part, Thresholded | Identity) for part in parts[places[0] + 1 :])
    )


forgiving = Forgiving
