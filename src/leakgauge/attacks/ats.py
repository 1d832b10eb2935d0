"""Against ATS: reconstruct the transformed record, then undo what the known policy allows.

Which policy and which signs an image got is hidden, but there are few: of all of them the one is taken whose undone
image, transformed again, comes closest to what was reconstructed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from leakgauge.adversary import Reconstruction
from leakgauge.attacks.adapting import Decoder, Invert, decodes
from leakgauge.defenses.input.ats import AutomaticTransformation, apply, undone
from leakgauge.observation import Observation
from leakgauge.types import Knowledge, Treatment, own_of


def undo_transformation(
    invert: Invert,
    part: AutomaticTransformation,
    label: str,
    observations: Sequence[Observation],
) -> Reconstruction:
    """The transformed records as ``invert`` finds them, and then, as ``inputs``, what they were before.

    Every round transforms anew; the first is used. Status ``undone`` where every operation of the chosen policy can
    be undone, else ``transformed in part``.
    """
    inverted = invert([replace(observation, rounds=observation.rounds[:1]) for observation in observations])
    rows, status = [], []
    for inputs, observation in zip(inverted.inputs, observations, strict=True):
        known = own_of(observation.rounds[0].granted, label)
        guesses = [
            raw_image(part, x, _granted(part, known, b) or part.draws()) for b, x in enumerate(inputs.detach().cpu())
        ]
        rows.append(torch.stack([x for x, _ in guesses]))
        status.append("undone" if all(whole for _, whole in guesses) else "transformed in part")
    return replace(
        inverted, inputs=torch.stack(rows).to(inverted.inputs), status=tuple(status), encodings=inverted.inputs
    )


def _treat(part: AutomaticTransformation, label: str, knows: Mapping[str, Knowledge]) -> tuple[Treatment, ...]:
    sentence = "hidden; every value is tried, and the one that fits the reconstruction best is taken"
    return tuple(Treatment(f"{label}.{name}", "enumerated", sentence) for name in ("choice", "signs"))


decodes(AutomaticTransformation, Decoder(undo_transformation, _treat))


def raw_image(
    part: AutomaticTransformation, encoding: Tensor, draws: Sequence[tuple[int, tuple[int, ...]]]
) -> tuple[Tensor, bool]:
    """``argmin_d ‖T_d(T_d⁻¹(x̃)) − x̃‖`` over draws d of policy and signs, and whether every operation was undone."""
    policies, encoding = part.policies, encoding.clamp(0, 1)
    guesses = [(c, signs, undone(policies[c], encoding, signs)) for c, signs in draws]
    gaps = [float((apply(policies[c], x, signs) - encoding).square().sum()) for c, signs, x in guesses]
    c, signs, best = guesses[gaps.index(min(gaps))]
    whole = all(op.undo(encoding, s) is not None for op, s in zip(policies[c], signs, strict=False))
    return best, whole


def _granted(part: AutomaticTransformation, known: Mapping[str, Tensor], b: int) -> list[tuple[int, tuple[int, ...]]]:
    """The draw of one image, if the choice and the signs are granted."""
    if not {"choice", "signs"} <= set(known):
        return []
    c = int(known["choice"][b])
    return [(c, tuple(known["signs"][b].tolist()[: len(part.policies[c])]))]
