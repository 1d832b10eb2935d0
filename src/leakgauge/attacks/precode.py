"""Against PRECODE: what its bottleneck hides is written into its own gradients, and what lies before it is bare.

For one example every linear layer with a bias gives its input away, ``∂W/∂b``. The encoder's input is h, the decoder's
is the code ``b = μ(h) + ε σ(h)``: together they give the noise, ``ε = (b − μ(h)) / σ(h)``, and with the noise known
the defended network is a network like any other.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from leakgauge.adversary import Adversary, Reconstruction, Through, cosine, through
from leakgauge.attacks.analytic import Analytic, input_of, inverts
from leakgauge.defenses.precode import bottleneck_of
from leakgauge.observation import Observation, Round
from leakgauge.task import Task


def behind_bottleneck(
    adversary: Adversary, task: Task, observations: Sequence[Observation], bare: bool, given: Mapping[str, Any]
) -> Reconstruction:
    """The attack with everything that the observations allow; ``bare`` says that updates are exact up to a scale."""
    exact = bare and all(seen.batch == 1 for seen in observations) and task.recipe.local_steps == 1
    if exact and inverts(task):
        return Analytic()(task, observations, **given)
    if exact:
        return adversary(task, [with_noise(task, seen) for seen in observations], **given)
    key = f"{bottleneck_of(task.working)[0]}.noise"
    known = all(key in made.nuisances for seen in observations for made in seen.rounds)
    return (adversary if known else before_bottleneck(task, adversary))(task, observations, **given)


def latent_noise(task: Task, seen: Round) -> Tensor:
    """The noise ε of the one example behind a round, ``[1, k]``; exact to rounding for an update up to its scale."""
    name, module = bottleneck_of(task.working)
    bottleneck = copy.deepcopy(module).double()
    bottleneck.load_state_dict(
        {n.removeprefix(f"{name}."): p.double() for n, p in seen.params.items() if n.startswith(f"{name}.")}
    )
    first = "encoder" if bottleneck.form == "official" else "first"
    with torch.no_grad():
        mean, std = bottleneck.code(input_of(seen.observed, f"{name}.{first}."))
    return ((input_of(seen.observed, f"{name}.decoder.") - mean) / std).unsqueeze(0)


def with_noise(task: Task, seen: Observation) -> Observation:
    """The observation with the latent noise of every round filled in, where it was not granted."""
    key = f"{bottleneck_of(task.working)[0]}.noise"
    rounds = [
        made if key in made.nuisances else replace(made, nuisances={**made.nuisances, key: latent_noise(task, made)})
        for made in seen.rounds
    ]
    return replace(seen, rounds=tuple(rounds))


def before_bottleneck(task: Task, adversary: Adversary) -> Adversary:
    """The same adversary, matching by cosine only what lies before the bottleneck (through what maps the update)."""
    matched = cosine(drop=(bottleneck_of(task.working)[0].rpartition(".")[0],))
    mapped = isinstance(adversary.likelihood, Through)
    return replace(adversary, likelihood=through(matched) if mapped else matched)
