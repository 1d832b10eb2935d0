"""What a task lets an adversary do: questions that ``adaptive()`` asks of protection, recipe and network."""

from __future__ import annotations

from leakgauge.adversary.simulation import Simulation
from leakgauge.adversary.simulation.simulate import is_silent
from leakgauge.attacks.adapting import decoder_of, hint_of
from leakgauge.attacks.recovering import NOT_APPLICABLE, first_layer, obstacle
from leakgauge.defenses import UpdatePart
from leakgauge.task import Task


def ratio_is_exact(task: Task, batch: int) -> bool:
    """Whether a first linear layer's change is ``(Σ_t η_t δ_t) xᵀ`` beside ``Σ_t η_t δ_t``: one example, however often.

    Momentum only mixes the δ_t; weight decay and Adam would act on weight and bias apart.
    """
    recipe = task.recipe
    plain = batch == 1 and recipe.optimiser == "sgd" and not recipe.weight_decay and not has_dropout(task)
    return plain and all(hint_of(part).scales for part in task.protection.chain.parts)


def is_exact(task: Task, batch: int) -> bool:
    """Whether every update is a positive multiple of one example's gradient."""
    return task.recipe.local_steps == 1 and ratio_is_exact(task, batch)


def has_dropout(task: Task) -> bool:
    return "recipe.dropout" in task.nuisances


def is_smooth(task: Task) -> bool:
    """Whether what the client computes on looks like images: flipped pixels are not smooth."""
    decoders = [decoder_of(part) for part in task.protection.input]
    return task.domain.kind == "image" and all(decoder is None or decoder.smooth for decoder in decoders)


def is_opaque(part: UpdatePart) -> bool:
    """Whether nothing is known of a part but its release."""
    return is_silent(part) and not hint_of(part).scales


def recovery_sentence(task: Task) -> str:
    """What exact recovery does about a batch; nothing where the network gives it no hold."""
    if task.recipe.batch == 1 or first_layer(task) is None:
        return ""
    reason = obstacle(task)
    return NOT_APPLICABLE + reason if reason else "exact recovery first: peeling, then sparse directions"


def simulation_sentences(simulation: Simulation) -> list[str]:
    """What was made of every part that has only a ``release``."""
    return [
        *(f"{part!r} is {part.sentence}" for part in simulation.stand_ins),
        *(f"{part!r} is not modelled: {reason}" for part, reason in simulation.unmodelled),
    ]


__all__ = [
    "has_dropout",
    "is_exact",
    "is_opaque",
    "is_smooth",
    "ratio_is_exact",
    "recovery_sentence",
    "simulation_sentences",
]
