"""The law of grants, for every registered defense with nuisances, alone and before noise; and parts that break it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from torch import Generator, nn

import leakgauge as lg
from leakgauge.adversary.labels import reader
from leakgauge.attacks import adaptive
from leakgauge.defenses import Gaussian, RandomPrune, protection
from leakgauge.testing import (
    capped_psnr,
    folded_psnr,
    grants_law,
    hidden_rate_law,
    hiding_law,
    image_records,
    image_task,
    texts_of,
)
from leakgauge.testing.grants import EVERYTHING, RECIPES, Score
from leakgauge.types import Context, Known, Nuisance, Release, Tree, Updates

NOISE = " | gaussian(std=0.001)"
RATE = "recipe.learning_rate"
TEXTS = [text for text in texts_of("input", "model", "training", "update") if protection(text).nuisances]
CHAINS = [text + tail for text in TEXTS for tail in ("", NOISE)]
UNKNOWN_RATE = ["identity()", "gaussian(std=0.0001)", "laplace(scale=0.0001)", "lrp()", "prune(p=0.5)"]
NAMES = ["steps", "decay", "adam"]
"""Of the recipes in which labels are read with the help of the rate, where that is known."""
TELLING = ["random_prune(p=0.4)" + NOISE, "prune(p=0.6)" + NOISE, "precode()" + NOISE, "mixup()"]
"""Where a grant is worth several dB: the law is not met by two equal attacks."""
CONFIDENCE = 0.999
"""Some sixty laws at once: one of twenty sessions may err."""


def rounds_of(text: str) -> int:
    """Mixtures are told apart over several rounds."""
    return 4 if text.startswith(("mixup", "instahide")) else 1


def score_of(text: str) -> Score:
    """InstaHide leaves magnitudes alone to be found."""
    return folded_psnr if text.startswith("instahide") else capped_psnr


def changing(steps: int) -> lg.Task:
    return image_task(recipe=lg.Recipe(shares="change", local_steps=steps))


def dropping() -> lg.Task:
    plain = image_task()
    *body, last = plain.model.children()
    return lg.Task(nn.Sequential(*body, nn.Dropout(0.3), last), plain.domain, lg.Recipe(mode="train"))


def test_every_part_with_nuisances_is_tried() -> None:
    names = {name for name, part in lg.defenses.of_stage("input", "model", "training", "update").items()}
    ours = {text.partition("(")[0] for text in TEXTS}
    assert {"ats", "instahide", "lrp", "mixup", "precode", "prune", "quantise", "random_prune", "soteria"} <= ours
    assert ours <= names


@pytest.mark.parametrize("text", CHAINS)
def test_what_is_hidden_is_not_used(text: str) -> None:
    hiding_law(text, records=image_records(7), attack=adaptive(steps=1))


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("text", UNKNOWN_RATE)
def test_a_hidden_rate_is_not_used(text: str, steps: int) -> None:
    hiding_law(text, task=changing(steps))


@pytest.mark.parametrize("recipe", RECIPES, ids=NAMES)
@pytest.mark.parametrize("text", [*UNKNOWN_RATE, "clip(norm=0.01)", "sign()"])
def test_a_hidden_rate_is_not_used_where_labels_are_inferred(text: str, recipe: lg.Recipe) -> None:
    hidden_rate_law(text, attack=adaptive(steps=1), recipes=[recipe])


def test_hidden_masks_of_dropout_are_not_used() -> None:
    hiding_law("identity()", task=dropping())


@pytest.mark.parametrize("text", TELLING)
def test_a_grant_is_worth_something(text: str) -> None:
    gains = grants_law(text, records=image_records(8), attack=adaptive(steps=40))
    assert max(gain.low for gain in gains.values()) > 0


@pytest.mark.slow
@pytest.mark.parametrize("text", CHAINS)
def test_a_grant_does_not_lower_the_score(text: str) -> None:
    gains = grants_law(
        text, records=image_records(8), rounds=rounds_of(text), confidence=CONFIDENCE, score=score_of(text)
    )
    assert set(gains) - {EVERYTHING} == set(protection(text).nuisances)


@pytest.mark.slow
def test_a_grant_that_leaves_the_search_at_its_start_does_not_lower_the_score() -> None:
    """With its noise granted, no step away from a flat start pays; without, the noise moves and the inputs with it."""
    text = "precode(k=8, form='bayes', uniform=0.05)" + NOISE
    grants_law(text, records=image_records(12), attack=adaptive(steps=200), confidence=CONFIDENCE)


@pytest.mark.slow
@pytest.mark.parametrize("text", ["mixup()", "mixup(k=6)", "instahide()"])
@pytest.mark.parametrize("rounds", [1, 2])
def test_too_few_encodings_are_not_decoded(text: str, rounds: int) -> None:
    """What cannot be solved for is left alone: a fit to too few encodings is worse than an encoding itself."""
    grants_law(text, records=image_records(8), rounds=rounds, confidence=CONFIDENCE, score=score_of(text))


@pytest.mark.slow
@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("text", UNKNOWN_RATE)
def test_a_granted_rate_does_not_lower_the_score(text: str, steps: int) -> None:
    gains = grants_law(text, task=changing(steps), records=image_records(8), confidence=CONFIDENCE)
    assert RATE in gains


@pytest.mark.slow
def test_granted_masks_of_dropout_do_not_lower_the_score() -> None:
    gains = grants_law("identity()", task=dropping(), records=image_records(8))
    assert gains["recipe.dropout"].low > 0


def test_granted_labels_do_not_lower_the_score() -> None:
    gains = grants_law(
        "gaussian(std=0.01)", records=image_records(8), attack=adaptive(steps=40), addresses=["recipe.labels"]
    )
    assert list(gains) == ["recipe.labels"]


# --- the law can be broken -------------------------------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class Remembering(RandomPrune):
    """Its density looks up the mask that it drew last, whether or not that was granted."""

    last: ClassVar[dict[str, Tree]] = {}
    nuisances: ClassVar[tuple[Nuisance, ...]] = (Nuisance("mask", per="entry"),)  # type: ignore[assignment]

    def release(self, update: Tree, context: Context | None, *, generator: Generator) -> Release:
        released = super().release(update, context, generator=generator)
        self.last.update(released.drawn)
        return released

    def apply(self, update: Updates, known: Known) -> Updates | None:
        batched = {key: {name: value.unsqueeze(0) for name, value in tree.items()} for key, tree in self.last.items()}
        return super().apply(update, known or batched)


@dataclass(frozen=True, repr=False)
class Misled(RandomPrune):
    """Told its mask, it takes the other entries."""

    def apply(self, update: Updates, known: Known) -> Updates | None:
        wrong = {
            key: {name: 1 - value.to(torch.float32) for name, value in tree.items()} for key, tree in known.items()
        }
        return super().apply(update, wrong)


def test_a_part_that_remembers_what_it_drew_is_caught() -> None:
    with pytest.raises(AssertionError, match=r"uses one of Remembering\.mask, which are hidden"):
        hiding_law(Remembering(p=0.4) | Gaussian(std=0.001), records=image_records(1))


@pytest.mark.parametrize("recipe", RECIPES, ids=NAMES)
def test_labels_that_are_read_at_the_hidden_rate_are_caught(recipe: lg.Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "hides_rate", lambda task, one: False)  # as if the recipe's own rate were granted
    with pytest.raises(AssertionError, match=r"uses one of recipe\.labels, recipe\.learning_rate, which are hidden"):
        hidden_rate_law("identity()", attack=adaptive(steps=1), recipes=[recipe])


def test_a_part_that_misuses_its_grant_is_caught() -> None:
    with pytest.raises(AssertionError, match=r"granting Misled\.mask lowers the score by"):
        grants_law(Misled(p=0.1) | Gaussian(std=0.01))
