"""The likelihood of roundings: their density, made forgiving so that a wrong candidate finds a way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from leakgauge import guards
from leakgauge.adversary.likelihoods import Likelihood
from leakgauge.defenses import Chain, Identity, Protection, Quantise, RandomPrune, UpdatePart
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
        labels = list(chain.labelled)
        before, dropped = _before(chain, place, update, known)
        if before is None or not isinstance(rounding, Quantise) or not is_rounding(chain.parts):
            raise NoDensityError(
                f"{protection.update!r} is not a rounding after maps, or pruned by magnitude",
                remedy="use density() or through()",
            )
        thresholds = [known[key] for label in labels[place + 1 :] if (key := f"{label}.threshold") in known]
        own = own_of(known, labels[place])
        last = thresholds[-1] if thresholds else None
        return rounding.log_forgiving(observed, before, own, self.share, last, dropped)


def _before(chain: Chain, place: int, update: Updates, known: Known) -> tuple[Updates | None, float]:
    """The update at the rounding, and the share of it that a hidden mask set to zero.

    Zeros of a rounding cover up which entries were pruned. A hidden threshold is passed over: what lies below it is
    rounded to zero nearly as often.
    """
    survives = 1.0
    for label, part in list(chain.labelled.items())[:place]:
        moved = part.apply(update, own_of(known, label))
        if moved is not None:
            update = moved
        elif isinstance(part, RandomPrune):
            survives *= 1 - part.p
        elif not isinstance(part, Thresholded):
            return None, 0.0
    return update, 1 - survives


def is_rounding(parts: Sequence[UpdatePart]) -> bool:
    """Whether a chain is one rounding after maps, and after it nothing but pruning by magnitude."""
    places = [i for i, part in enumerate(parts) if is_noise(part)]
    return (
        len(places) == 1
        and isinstance(parts[places[0]], Quantise)
        and all(isinstance(part, Thresholded | Identity) for part in parts[places[0] + 1 :])
    )


forgiving = Forgiving
