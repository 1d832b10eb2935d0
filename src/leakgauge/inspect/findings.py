"""Inspecting captured updates: attack them with no knowledge of the client but its model.

With known records the reconstructions are scored. Without, what can be said is how much of the update each
reconstruction explains, beside what the same attack explains of noise in its place.
"""

from __future__ import annotations

import copy
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor, nn

from leakgauge import metrics
from leakgauge.adversary import Adversary, Reconstruction, cosine, nulls, scaled_l2, signed_adam
from leakgauge.adversary.solver import Lbfgs
from leakgauge.attacks import Analytic
from leakgauge.attacks.analytic import first_linear
from leakgauge.client import Recipe
from leakgauge.errors import DataError, ModelError
from leakgauge.inspect.captures import Capture, captured, folder_of, upright
from leakgauge.observation import Observation, Round
from leakgauge.priors import tv, uniform
from leakgauge.seeds import seed_of
from leakgauge.storage.private import write
from leakgauge.task import Task
from leakgauge.types import Domain, Records

Attack = Callable[..., Reconstruction]
KINKED = (
    nn.ReLU,
    nn.ReLU6,
    nn.LeakyReLU,
    nn.PReLU,
    nn.RReLU,
    nn.Hardtanh,
    nn.Hardsigmoid,
    nn.Hardswish,
    nn.Threshold,
    nn.MaxPool1d,
    nn.MaxPool2d,
    nn.MaxPool3d,
)
SMOOTH = (nn.Sigmoid, nn.Tanh, nn.Softplus, nn.ELU, nn.SELU, nn.GELU, nn.SiLU, nn.Mish)


@dataclass(frozen=True)
class Finding:
    """What one captured update gave away.

    ``inputs [B, …]`` and ``labels [B]`` are the reconstruction, ``explained`` its share ``cos²`` of the update;
    ``null`` and ``null_explained`` the same of noise in the update's place (its best draw). With known records,
    ``psnr`` and ``null_psnr`` score both, per known record.
    """

    name: str
    inputs: Tensor
    labels: Tensor
    explained: float
    null: Tensor
    null_explained: float
    adversary: str
    sentence: str
    psnr: tuple[float, ...] = ()
    null_psnr: tuple[float, ...] = ()
    notes: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Everything but the images."""
        return {
            "name": self.name,
            "labels": self.labels.tolist(),
            "explained": round(self.explained, 6),
            "null_explained": round(self.null_explained, 6),
            "adversary": self.adversary,
            "psnr": [round(v, 3) for v in self.psnr],
            "null_psnr": [round(v, 3) for v in self.null_psnr],
            "sentence": self.sentence,
            "notes": list(self.notes),
        }


def inspect(
    model: nn.Module,
    domain: Domain,
    captures: Sequence[Capture],
    *,
    batch: int = 1,
    labels: Tensor | None = None,
    known: Records | None = None,
    attacks: Sequence[Attack] | None = None,
    mode: str = "eval",
    draws: int = 2,
    seed: int = 0,
) -> list[Finding]:
    """Attack every capture; labels are read off the last layer unless given.

    ``batch`` is the number of examples behind each update (a guess is allowed: it is an assumption). ``known`` are
    records that may be among them; each is scored against its best match.
    """
    if not captures:
        raise DataError("there is no update to inspect", where="inspect", remedy="give at least one")
    return [
        _inspected(_task(model, domain, one, batch, mode), upright(one, domain.classes, batch), options, i)
        for i, one in enumerate(captures)
        for options in [_Options(batch, labels, known, attacks, draws, seed)]
    ]


@dataclass(frozen=True)
class _Options:
    batch: int
    labels: Tensor | None
    known: Records | None
    attacks: Sequence[Attack] | None
    draws: int
    seed: int


def _task(model: nn.Module, domain: Domain, capture: Capture, batch: int, mode: str) -> Task:

    own = copy.deepcopy(model)
    capture.before.into(own)
    return Task(own, domain, Recipe(batch=batch, mode="train" if mode == "train" else "eval"))


def attacks_on(task: Task, batch: int) -> list[Attack]:
    """The attacks that suit a model: all of them blind to the scale of the update.

    A first linear layer with a bias gives a single record away; smooth networks suit L-BFGS, others signed Adam with
    total variation; where the modules do not tell, both are run and the one that explains more of the update wins.
    """
    found: list[Attack] = []
    modules = list(task.model.modules())
    kinked = any(isinstance(module, KINKED) for module in modules)
    smooth = not kinked and any(isinstance(module, SMOOTH) for module in modules)
    images = task.domain.kind == "image"
    if batch == 1:
        try:
            first_linear(task)
            found.append(Analytic())
        except ModelError:
            pass
    if not kinked:
        found.append(Adversary(scaled_l2(), solver=Lbfgs(steps=400, target=1e-7), restarts=2))
    if not smooth:
        prior = 1e-3 * tv() if images else uniform()
        found.append(Adversary(cosine(), prior=prior, solver=signed_adam(lr=0.1, steps=500)))
    return found


def _inspected(task: Task, capture: Capture, options: _Options, place: int) -> Finding:
    seen = Observation((Round(capture.gradient, task.params),), options.batch, options.labels)
    noisy = [nulls.noise([seen], seed=seed_of(options.seed, place, k))[0] for k in range(max(1, options.draws))]
    best: list[tuple[float, Tensor, Tensor, str]] = []
    for attack in options.attacks or attacks_on(task, options.batch):
        made = attack(task, [seen, *noisy], seed=seed_of(options.seed, place))
        for i, aim in enumerate((seen, *noisy)):
            inputs, labels = made.inputs[i].detach().float(), made.labels[i]
            if task.domain.box is not None:
                inputs = inputs.nan_to_num().clamp(*task.domain.box)
            share = explained(task, inputs, labels, aim)
            if len(best) <= i:
                best.append((share, inputs, labels, repr(attack)))
            elif share > best[i][0]:
                best[i] = (share, inputs, labels, repr(attack))
    share, inputs, labels, name = best[0]
    null = max(best[1:], key=lambda one: one[0])
    scores = [_scores(one[1], options.known) for one in best]
    null_scores = tuple(max(column) for column in zip(*scores[1:], strict=True))
    return Finding(
        capture.name,
        inputs,
        labels,
        share,
        null[1],
        null[0],
        name,
        _sentence(share, null[0], scores[0], null_scores),
        scores[0],
        null_scores,
        capture.notes,
    )


def explained(task: Task, inputs: Tensor, labels: Tensor, seen: Observation) -> float:
    """``cos²`` between a candidate's update and the observed one: the share that it explains up to scale."""
    ours = task.update(Records(inputs, labels, task.domain))
    theirs = seen.rounds[0].observed
    dot = sum(float((ours[n].double() * theirs[n].double()).sum()) for n in ours)
    sizes = [sum(float(v.double().square().sum()) for v in tree.values()) for tree in (ours, theirs)]
    return max(dot, 0.0) ** 2 / max(sizes[0] * sizes[1], 1e-300)


def _scores(inputs: Tensor, known: Records | None) -> tuple[float, ...]:
    """The PSNR of each known record with its best match."""
    if known is None:
        return ()
    return tuple(min(999.0, float(metrics.psnr(inputs, x.expand_as(inputs)).max())) for x in known.inputs.to(inputs))


def _sentence(share: float, null: float, psnr: tuple[float, ...], null_psnr: tuple[float, ...]) -> str:
    if psnr:
        gains = [a - b for a, b in zip(psnr, null_psnr, strict=True)]
        best = max(range(len(psnr)), key=lambda i: psnr[i])
        beaten = f"{sum(g > 0 for g in gains)} of {len(gains)} known records are nearer than from noise"
        return f"Best known record {best}: {psnr[best]:.1f} dB, from noise {null_psnr[best]:.1f} dB; {beaten}."
    told = f"The reconstruction explains {share:.1%} of the update, the same attack {null:.1%} of noise in its place. "
    if share > 0.9 and share - null > 0.3:
        return told + "An update of this shape comes from inputs like these: take them for your data and look."
    if share - null > 0.1:
        return told + "Something was found, but not all of it: treat the picture as a hint."
    return told + "Nothing can be concluded: the attack did no better than on noise."


def picture(findings: Sequence[Finding], path: Path, known: Records | None = None) -> None:
    """One row per update: reconstruction, null and, where given, known records; a private PNG file."""

    rows = [torch.cat([f.inputs, f.null, *([known.inputs.float()] if known is not None else [])]) for f in findings]
    if rows[0].dim() != 4 or rows[0].shape[1] not in (1, 3):
        raise DataError("these records are no images", where="inspect", remedy="leave the picture out")
    lines = [torch.cat([nn.functional.pad(x, (1, 1, 1, 1), value=0.5) for x in row], dim=2) for row in rows]
    image = torch.cat(lines, dim=1).clamp(0, 1).mul(255).round().byte()
    array = image.permute(1, 2, 0).numpy()
    shown = Image.fromarray(array[..., 0] if array.shape[2] == 1 else array)
    out = io.BytesIO()
    shown.resize((shown.width * 4, shown.height * 4), Image.Resampling.NEAREST).save(out, "PNG")
    write(path, out.getvalue())


__all__ = [
    "Capture",
    "Finding",
    "attacks_on",
    "captured",
    "explained",
    "folder_of",
    "inspect",
    "picture",
]
