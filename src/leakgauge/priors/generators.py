"""Priors that are generators: the record is ``x = G(z)`` with ``z ~ N(0, I)``, and the solver moves the codes z.

``log p(z) = −½ ‖z‖² + constant``. Whatever G cannot draw is impossible, so a generator is a strong prior: where the
update says little it still draws something plausible. Compare with the same search on noise in place of the update
(:func:`leakgauge.adversary.nulls.noise`; an audit does so by itself) before a picture is called a reconstruction.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor, nn
from torch.nn import functional as F

from leakgauge import guards
from leakgauge.errors import DomainError, brief
from leakgauge.expr import register
from leakgauge.priors.base import PriorPart, terms_of
from leakgauge.storage.states import FileError, State, read_state
from leakgauge.types import Candidate

TRAIN = "type: leakgauge train-prior"


class Generated(PriorPart):
    """A prior over codes: ``network [n, codes] → [n, *shape]``, pixels in [0, 1] where records are images.

    A subclass says ``network`` and ``codes``; one that draws records of a class (``classes`` > 0) gets the label after
    the codes, one-hot: ``[n, codes + classes]``. An adversary whose prior has one (beside other terms, if you like:
    ``learned(file="faces.safetensors") + 1e-3*tv()``) searches the codes in place of the inputs.
    """

    codes: int
    classes: int = 0

    @property
    def network(self) -> nn.Module:
        raise NotImplementedError

    def __call__(self, candidate: Candidate) -> Tensor:
        square: Tensor = self._raw(candidate)[..., : self.codes].flatten(1).square().sum(1)
        return -0.5 * square

    def begin(self, codes: Tensor, labels: Tensor | None = None) -> Tensor:
        """What the solver moves, ``[N, B, …]``, from codes ``[N, B, codes]`` and labels, which have no slope."""
        if not self.classes:
            return codes
        if labels is None or labels.dim() != 2:
            raise DomainError(
                "it draws records of a class, and no class is known",
                where=repr(self),
                remedy="grant or infer labels, or train a prior without them",
            )
        if int(labels.max()) >= self.classes:
            what = f"it knows {self.classes} classes, a label is {int(labels.max())}"
            raise DomainError(what, where=repr(self), remedy="train it on records of this data set")
        return torch.cat([codes, F.one_hot(labels, self.classes).to(codes)], 2)

    def decoder(self, like: Tensor, shape: tuple[int, ...]) -> Callable[[Tensor], Tensor]:
        """``[N, B, …] → [N, B, *shape]``, in the precision of ``like``; an error if the network draws another shape."""
        network = copied(self.network, like)
        drawn = self._shape(network, like.new_zeros(1, self.codes + self.classes))
        if drawn != shape:
            raise DomainError(
                f"the generator draws records of shape {drawn}, the client's have {shape}",
                where=repr(self),
                remedy="train it on records of this shape",
            )
        return self._decoder(network)

    def _shape(self, network: nn.Module, codes: Tensor) -> tuple[int, ...]:
        """The shape of the records that the network draws; an error if it draws none."""
        try:
            with torch.no_grad():
                drawn = network(codes)
        except RuntimeError as fault:
            what = f"the generator does not take {codes.shape[1]} codes ({brief(' '.join(str(fault).split()))})"
            remedy = "give the number of its codes and, where it draws records of a class, of its classes"
            raise DomainError(what, where=repr(self), remedy=remedy) from None
        if not isinstance(drawn, Tensor):
            what = f"the generator returns a {type(drawn).__name__}"
            raise DomainError(what, where=repr(self), remedy="make it return records, [n, *shape]")
        return tuple(drawn.shape[1:])

    def _decoder(self, network: nn.Module) -> Callable[[Tensor], Tensor]:
        def decode(raw: Tensor) -> Tensor:
            drawn: Tensor = network(self._held(raw.flatten(0, 1), self.codes))
            return drawn.reshape(*raw.shape[:2], *drawn.shape[1:])

        return decode

    def _held(self, raw: Tensor, moving: int) -> Tensor:
        """What enters the network, without a slope beyond the first entries."""
        last = self.codes + self.classes
        return torch.cat([raw[..., :moving], raw[..., moving:last].detach()], -1)

    def _raw(self, candidate: Candidate) -> Tensor:
        if candidate.codes is None:
            raise DomainError(
                "a candidate that was not drawn by a generator has no codes",
                where=repr(self),
                remedy="use this prior in an adversary",
            )
        return candidate.codes


@dataclass(frozen=True, repr=False, eq=False)
class Generator(Generated):
    """Your own generator, a module ``[n, codes] → [n, *shape]``; ``parse`` cannot read its text back."""

    module: nn.Module
    codes: int
    classes: int = 0

    def __post_init__(self) -> None:
        with guards.together():
            guards.count(self.codes, "codes", "generator")
            guards.count(self.classes, "classes", "generator", least=0)
            if not isinstance(self.module, nn.Module):
                what = f"the module is a {type(self.module).__name__}"
                remedy = "give an nn.Module that turns codes into records"
                guards.refuse(DomainError(what, where="generator", remedy=remedy))

    @property
    def network(self) -> nn.Module:
        return self.module

    def __repr__(self) -> str:
        return f"generator({type(self.module).__name__}, codes={self.codes})"


@register("prior", "learned")
@dataclass(frozen=True, repr=False)
class Learned(Generated):
    """A generator from a file that ``leakgauge train-prior`` wrote.

    ``sha256`` is that of the file; it is filled in where it is left out, so that a result says which prior it used.
    """

    file: str
    sha256: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "sha256", same_file(self.file, self.sha256))
        read_decoder(self.file, self.sha256)

    @property
    def network(self) -> nn.Module:
        return read_decoder(self.file, self.sha256)

    @property
    def codes(self) -> int:  # type: ignore[override]
        return int(self.network[0].in_features) - self.classes  # type: ignore[index]

    @property
    def classes(self) -> int:  # type: ignore[override]
        return classes_of(self.file, self.sha256)

    def trained_on(self, inputs: Tensor) -> int:
        """How many of these records the prior was trained on: report none of them."""
        return trained_on(self.file, self.sha256, inputs)


@dataclass(frozen=True, repr=False)
class Tuned(Generated):
    """The same generator, its weights moved for every record, its codes held: GIAS's second step.

    ``log p = −½ ‖z‖² − ½ stiffness ‖W − W₀‖²``: without stiffness, weights can explain whatever noise the update has.
    """

    base: Generated
    stiffness: float = 0.0

    def __post_init__(self) -> None:
        guards.non_negative(self.stiffness, "stiffness", "tuned")

    @property
    def network(self) -> nn.Module:
        return self.base.network

    @property
    def codes(self) -> int:  # type: ignore[override]
        return self.base.codes

    @property
    def classes(self) -> int:  # type: ignore[override]
        return self.base.classes

    def __repr__(self) -> str:
        return f"tuned({self.base!r}, stiffness={self.stiffness})"

    def __call__(self, candidate: Candidate) -> Tensor:
        raw = self._raw(candidate)
        moved = raw[..., self.codes + self.classes :] - self._weights(raw)
        held = -0.5 * raw[..., : self.codes].detach().flatten(1).square().sum(1)
        return held - 0.5 * self.stiffness * moved.flatten(1).square().sum(1)

    def begin(self, codes: Tensor, labels: Tensor | None = None) -> Tensor:
        return torch.cat([self.base.begin(codes, labels), self._weights(codes).expand(*codes.shape[:2], -1)], 2)

    def _weights(self, like: Tensor) -> Tensor:
        return torch.cat([w.detach().flatten() for w in self.network.parameters()]).to(like)

    def _decoder(self, network: nn.Module) -> Callable[[Tensor], Tensor]:
        weights = dict(network.named_parameters())
        sizes, first = [w.numel() for w in weights.values()], self.codes + self.classes

        def one(raw: Tensor) -> Tensor:
            pieces = raw[first:].split(sizes)
            own = {name: p.view(w.shape) for (name, w), p in zip(weights.items(), pieces, strict=True)}
            drawn: Tensor = torch.func.functional_call(network, own, (self._held(raw[None], 0),))
            return drawn[0]

        def decode(raw: Tensor) -> Tensor:
            drawn: Tensor = torch.func.vmap(one)(raw.flatten(0, 1))
            return drawn.reshape(*raw.shape[:2], *drawn.shape[1:])

        return decode


def generator_in(prior: object) -> Generated | None:
    """The generator among the terms of a prior; two of them are an error."""
    generators = [term for term in terms_of(prior) if isinstance(term, Generated)]
    if len(generators) > 1:
        raise DomainError("a record has one code", where=repr(prior), remedy="use one generator")
    return generators[0] if generators else None


def refuse_others(prior: object, attack: str) -> None:
    """Refuse a prior that is no generator, where an attack searches codes."""
    if not isinstance(prior, Generated):
        what = f"it searches the codes of a generator, and {prior!r} has none"
        remedy = "give a prior such as learned(file='prior.safetensors')"
        raise DomainError(what, where=attack, remedy=remedy)


def copied(network: nn.Module, like: Tensor) -> nn.Module:
    """A frozen copy in eval mode, in the precision and on the device of ``like``."""
    return copy.deepcopy(network).to(like).eval().requires_grad_(False)


# --- files


@lru_cache(maxsize=16)
def classes_of(file: str, sha256: str) -> int:
    """How many classes the generator in a file tells apart; 0 where it needs no label."""
    classes = facts_of(read_state(Path(file)), "vae").get("classes", 0)
    if not isinstance(classes, int) or classes < 0:
        raise FileError(f"says what cannot be (classes = {brief(str(classes))})", where=file, remedy=TRAIN)
    return classes


def decoder_network(codes: int, widths: tuple[int, ...], shape: tuple[int, ...], boxed: bool) -> nn.Sequential:
    """The decoder of a small variational autoencoder: linear layers with GELU; a sigmoid at the end of pixels."""
    sizes = (codes, *widths, torch.Size(shape).numel())
    layers: list[nn.Module] = []
    for first, second in pairwise(sizes):
        layers += [nn.Linear(first, second), nn.GELU()]
    layers[-1:] = [nn.Sigmoid()] if boxed else []
    return nn.Sequential(*layers, nn.Unflatten(1, shape))


def fingerprints(inputs: Tensor) -> list[int]:
    """64 bits of the SHA-256 of each record, to bytes of 1/255: enough to say whether a record was among others."""
    rounded = (inputs.detach().cpu().flatten(1).double() * 255).round().to(torch.int32).numpy()
    return [int.from_bytes(hashlib.sha256(row.tobytes()).digest()[:8], "little", signed=True) for row in rounded]


def same_file(file: str, sha256: str) -> str:
    """The SHA-256 of a file, which must be the one that was asked for; an error with what to type if it is missing."""
    path = Path(file)
    if not path.is_file():
        raise FileError("no such prior", where=file, remedy=f"check the path, or {TRAIN} --out {file}")
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    if sha256 not in ("", digest):
        raise FileError(
            f"has SHA-256 {digest[:16]}…, not {sha256[:16]}…",
            where=file,
            remedy="leave sha256 out, or give the file that was meant",
        )
    return digest


def facts_of(state: State, family: str) -> dict[str, Any]:
    """What a file says about the prior in it; an error if it holds something else."""
    facts = state.fact("prior")
    if not isinstance(facts, dict) or facts.get("family") != family:
        raise FileError(f"holds no prior of the kind {family!r}", where=str(state.path), remedy=TRAIN)
    return facts


@lru_cache(maxsize=4)
def known_records(file: str, sha256: str) -> frozenset[int]:
    """The fingerprints of the records that a prior was trained on."""
    records = read_state(Path(file)).tensors.get("records")
    if records is not None and (records.dim() != 1 or records.dtype != torch.int64):
        what = f"its fingerprints of records are {records.dtype} of shape {tuple(records.shape)}"
        raise FileError(what, where=file, remedy=TRAIN)
    return frozenset([] if records is None else records.tolist())


def trained_on(file: str, sha256: str, inputs: Tensor) -> int:
    """How many of these records the prior in a file was trained on."""
    known = known_records(file, sha256)
    return sum(one in known for one in fingerprints(inputs))


@lru_cache(maxsize=4)
def read_decoder(file: str, sha256: str) -> nn.Sequential:
    """The decoder in a file."""
    state = read_state(Path(file))
    facts = facts_of(state, "vae")
    weights = State({name: value for name, value in state.tensors.items() if name != "records"}, state.path)
    try:
        if len(facts["widths"]) > len(weights.tensors):
            raise ValueError("more layers than weights")
        codes, classes = facts["codes"], facts.get("classes", 0)
        if any(type(n) is not int or n < 1 for n in (codes, classes + 1, *facts["widths"], *facts["shape"])):
            raise ValueError("codes, classes, widths and shape are counts")
        sizes = codes + classes, tuple(facts["widths"]), tuple(facts["shape"])
        with torch.device("meta"):  # what the file says is only a claim, and costs no memory here
            claimed = decoder_network(*sizes, facts["boxed"])
        if not weights.misfits(claimed):
            claimed = decoder_network(*sizes, facts["boxed"])
    except (LookupError, TypeError, ValueError, RuntimeError, ArithmeticError) as fault:
        reason = brief(" ".join(str(fault).split()))
        raise FileError(f"says what cannot be ({reason})", where=file, remedy=TRAIN) from None
    weights.into(claimed)
    return claimed.eval()


def write_prior(tensors: dict[str, Tensor], facts: dict[str, Any], records: Tensor) -> bytes:
    """The content of a prior's file: safetensors with its facts, and fingerprints of what it was trained on."""
    held = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    held["records"] = torch.tensor(sorted(fingerprints(records)), dtype=torch.int64)
    return save(held, {"prior": json.dumps(facts)})  # of several entries the order would differ from file to file
