"""What defenses know of how they are attacked, by registry: ``adaptive()`` only composes it.

An update-stage part registers a :class:`Hint` (:func:`hints`), an input part a :class:`Decoder` (:func:`decodes`). A
part of another package does the same for itself; one that registers nothing is attacked by what it computes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from leakgauge.adversary import Reconstruction
from leakgauge.defenses import Clip, Identity, InputPart, Protection, Quantise, Sign, Soteria, UpdatePart
from leakgauge.defenses.update.prune import Thresholded
from leakgauge.observation import Observation
from leakgauge.types import Knowledge, Treatment

Invert = Callable[[Sequence[Observation]], Reconstruction]
"""From observations to what the client computed on."""


@dataclass(frozen=True)
class Hint:
    """What an update-stage part says of its own attack.

    ``scales`` that it multiplies the whole update by one positive number and nothing else; ``prior`` how much more the
    prior should weigh, since the part lets less through; ``lengths`` that norms tell something after directions were
    matched; ``drop`` which tensors to leave out where nothing models what it did to them.
    """

    scales: bool = False
    prior: float = 1.0
    lengths: bool = False
    drop: tuple[str, ...] = ()


@dataclass(frozen=True)
class Decoder:
    """How the encodings of an input part are undone, once they are inverted, and what that does about its nuisances.

    Both get the part and its label, under which its grants are found.
    ``smooth`` says whether an encoding still looks like a record, so that a prior of records fits it.
    """

    undo: Callable[[Invert, Any, str, Sequence[Observation]], Reconstruction]
    treat: Callable[[Any, str, Mapping[str, Knowledge]], tuple[Treatment, ...]]
    smooth: bool = True


_HINTS: dict[type[UpdatePart], Callable[[Any], Hint]] = {}
_DECODERS: dict[type[InputPart], Decoder] = {}


def hints(kind: type[UpdatePart]) -> Callable[[Callable[[Any], Hint]], Callable[[Any], Hint]]:
    """Register what a kind of part knows of its own attack; subclasses inherit it."""

    def enter(function: Callable[[Any], Hint]) -> Callable[[Any], Hint]:
        _HINTS[kind] = function
        return function

    return enter


def decodes(kind: type[InputPart], decoder: Decoder) -> None:
    """Register how a kind of encoding is undone; subclasses inherit it."""
    _DECODERS[kind] = decoder


def hint_of(part: UpdatePart) -> Hint:
    return next((_HINTS[base](part) for base in type(part).__mro__ if base in _HINTS), Hint())


def decoder_of(part: InputPart) -> Decoder | None:
    return next((_DECODERS[base] for base in type(part).__mro__ if base in _DECODERS), None)


@dataclass(frozen=True)
class Undone:
    """The input part whose encodings are undone, with its label and its decoder."""

    part: InputPart
    label: str
    decoder: Decoder


def last_decoded(protection: Protection) -> Undone | None:
    """The last input part, if something undoes it: what acted before it is covered by it."""
    for label, part in reversed(protection.stage("input").items()):
        decoder = decoder_of(part)  # type: ignore[arg-type]
        return None if decoder is None else Undone(part, label, decoder)  # type: ignore[arg-type]
    return None


def left_encoded(protection: Protection) -> list[InputPart]:
    """The input parts that nothing undoes."""
    undone = last_decoded(protection)
    return list(protection.input if undone is None else protection.input[:-1])


@hints(Identity)
def _identity(part: Identity) -> Hint:
    return Hint(scales=True)


@hints(Clip)
def _clip(part: Clip) -> Hint:
    return Hint(scales=part.per == "update")


@hints(Thresholded)
def _thresholded(part: Thresholded) -> Hint:
    # fewer survivors say less: chosen on train records of MNIST, for shares of 0.5 to 0.001
    return Hint(prior=3.0 / part.share**0.5 if part.share < 1 else 1.0, lengths=True)


@hints(Sign)
@hints(Quantise)
def _coarse(part: UpdatePart) -> Hint:
    return Hint(prior=10.0)  # so do bits


@hints(Soteria)
def _soteria(part: Soteria) -> Hint:
    return Hint(drop=(part.weight,) if part.p > 0 else ())
