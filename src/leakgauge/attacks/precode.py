"""Against PRECODE: what its bottleneck hides is written into its own gradients, and what lies before it is bare.

For one example every linear layer with a bias gives its input away, ``∂W/∂b``. The encoder's input is h, the decoder's
is the code ``b = μ(h) + ε σ(h)``: together they give the noise, ``ε = (b − μ(h)) / σ(h)``, and with the noise known
the defended network is a network like any other. Where examples mix or the update is not exact, the noise is one more
unknown beside the inputs, with its standard normal prior; or only what lies before the bottleneck is matched.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from leakgauge.adversary import Adversary, Density, Through, cosine, through
from leakgauge.attacks.analytic import input_of
from leakgauge.defenses.model.precode import Bottleneck, bottleneck_of
from leakgauge.observation import Observation, Round
from leakgauge.task import Task

Latent = Literal["joint", "before"]
NOISE = "precode.noise"
MATCHING = 1e-7
"""The weight of the noise's prior beside a matching loss. Chosen on train records of MNIST (Bayes CNN, K = 256, batches
of 1 and 4): 1e-6 ends 1 to 2 dB lower, 1e-5 ten; without a prior it is as good, or 1 dB better."""


def with_latent_noise(adversary: Adversary) -> Adversary:
    """The same adversary with noise that is not known as an unknown; beside a density its prior counts in full."""
    return replace(adversary, hidden=1.0 if isinstance(adversary.likelihood, Density) else MATCHING)


def has_bottleneck(task: Task) -> bool:
    """Whether the network has PRECODE's bottleneck; a model part of another package has noise of its own."""
    return any(isinstance(module, Bottleneck) for module in task.working.modules())


def latent_noise(task: Task, observed_round: Round) -> Tensor:
    """The noise ε of the one example behind a round, ``[1, k]``; exact to rounding for an update up to its scale."""
    name, module = bottleneck_of(task.working)
    bottleneck = copy.deepcopy(module).double()
    bottleneck.load_state_dict(
        {n.removeprefix(f"{name}."): p.double() for n, p in observed_round.params.items() if n.startswith(f"{name}.")}
    )
    first = "encoder" if bottleneck.form == "official" else "first"
    with torch.no_grad():
        mean, std = bottleneck.code(input_of(observed_round.observed, f"{name}.{first}."))
    return ((input_of(observed_round.observed, f"{name}.decoder.") - mean) / std).unsqueeze(0)


def with_noise(task: Task, observation: Observation) -> Observation:
    """The observation with the latent noise of every round filled in, where it was not granted."""
    rounds = [
        each if NOISE in each.granted else replace(each, granted={**each.granted, NOISE: latent_noise(task, each)})
        for each in observation.rounds
    ]
    return replace(observation, rounds=tuple(rounds))


def knows_noise(task: Task, observations: Sequence[Observation]) -> bool:
    """Whether the latent noise of every round is granted."""
    return all(NOISE in each.granted for observation in observations for each in observation.rounds)


def before_bottleneck(task: Task, adversary: Adversary) -> Adversary:
    """The same adversary, matching by cosine only what lies before the bottleneck (through what maps the update)."""
    matched = cosine(drop=(bottleneck_of(task.working)[0].rpartition(".")[0],))
    mapped = isinstance(adversary.likelihood, Through)
    return replace(adversary, likelihood=through(matched) if mapped else matched)
