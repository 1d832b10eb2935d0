"""Captured updates: from files that nobody here produced to something that can be attacked.

The learning rate of a stranger is unknown, so an update is known up to a positive factor: it is read as pointing along
the gradient and scaled to norm one. Attacks that are blind to the scale lose nothing by this. Unless the file states
its ``sign``, the opposite reading is possible, too (before and after exchanged, a change taken for a gradient): both
are attacked, and the likelihood decides.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from torch import Tensor, nn

from leakgauge.batch_norm import RUNNING_MEAN, RUNNING_VARIANCE
from leakgauge.storage.states import ENDINGS, FileError, Kind, State, read_state, some
from leakgauge.updates import norm

ROUND = re.compile(r"(?:^|[^a-z])r(?:ound)?[-_ ]?(\d+)", re.IGNORECASE)
CLIENT = re.compile(r"c(?:lient)?[-_ ]?(\d+)(?!.*c(?:lient)?[-_ ]?\d)", re.IGNORECASE)


class CaptureWarning(UserWarning):
    """A captured file that cannot be used; those of other clients and rounds are."""


@dataclass(frozen=True)
class Capture:
    """One client's update: ``gradient`` has norm one and points along the gradient at the weights ``before``.

    ``size`` is the norm of what was sent, which ``kind`` says; ``declared`` whether the file states its sign. The
    opposite reading of two weights starts at ``after``. ``round`` and ``client`` are those of the file, if known.
    ``sent`` are the running statistics of batch norms that came back with the weights, where they have moved.
    """

    name: str
    before: State
    gradient: dict[str, Tensor]
    notes: tuple[str, ...] = field(default=())
    size: float = 1.0
    kind: Kind = "gradient"
    declared: bool = False
    after: State | None = None
    round: str | None = None
    client: str | None = None
    sent: dict[str, Tensor] = field(default_factory=dict)


def captured(before: State, after: State, model: nn.Module, *, kind: Kind | None = None, name: str = "") -> Capture:
    """The update between two files. ``after`` holds weights unless its metadata or ``kind`` says otherwise."""
    if before.kind in ("gradient", "change"):
        raise FileError(f"holds a {before.kind}, not weights", where=str(before.path), remedy="give the weights")
    kind = kind or after.kind or "state"
    problems = before.misfits(model)
    if problems:
        raise FileError(some(problems), where=str(before.path), remedy="give the weights of this model")
    names = {n: p for n, p in model.named_parameters() if p.requires_grad}
    _check(after, names)
    sent = {n: after.tensors[n].double() for n in names}
    if kind == "state":
        sent = {n: before.tensors[n].double() - value for n, value in sent.items()}
    else:
        turned = (-1 if kind == "change" else 1) * (-1 if after.fact("sign") == -1 else 1)
        sent = {n: turned * value for n, value in sent.items()}
    size = float(norm(sent))
    if not size:
        raise FileError("nothing changed: the update is zero", where=str(after.path), remedy="give another round")
    notes: tuple[str, ...] = (
        ("the learning rate is not known: the update counts up to a positive factor",) if kind != "gradient" else ()
    )
    if kind == "state":
        notes += _rounding(before, sent, size)
    first = next(iter(names.values()))
    return Capture(
        name or after.path.stem,
        before,
        {n: (v / size).to(first.dtype) for n, v in sent.items()},
        notes,
        size,
        kind,
        declared=after.fact("sign") is not None,
        after=after if kind == "state" and not after.misfits(model) else None,
        round=_round(after),
        client=_client(after),
        sent=_moved(before, after, model) if kind == "state" else {},
    )


def _check(after: State, names: Mapping[str, Tensor]) -> None:
    problems = [f"{n!r} is missing" for n in names if n not in after.tensors]
    problems += [
        f"{n!r} has shape {tuple(after.tensors[n].shape)}, the model's has {tuple(p.shape)}"
        for n, p in names.items()
        if n in after.tensors and after.tensors[n].shape != p.shape
    ]
    problems += [
        f"{n!r} holds {str(after.tensors[n].dtype).removeprefix('torch.')}, an update must be floating-point"
        for n in names
        if n in after.tensors and not after.tensors[n].is_floating_point()
    ]
    if problems:
        raise FileError(some(problems), where=str(after.path), remedy="give the update of this model")


def _moved(before: State, after: State, model: nn.Module) -> dict[str, Tensor]:
    """The running statistics in ``after``; none where they are those of before, so that no batch has moved them."""
    names = [n for n, _ in model.named_buffers() if n.rpartition(".")[2] in (RUNNING_MEAN, RUNNING_VARIANCE)]
    sent = {n: after.tensors[n] for n in names if n in after.tensors and n in before.tensors}
    fits = all(value.shape == before.tensors[n].shape for n, value in sent.items())
    moved = fits and any(not torch.equal(value, before.tensors[n].to(value)) for n, value in sent.items())
    return sent if moved else {}


def _rounding(before: State, sent: dict[str, Tensor], size: float) -> tuple[str, ...]:
    """A word where the weights are so coarse that their difference is mostly rounding."""
    types = [before.tensors[n].dtype for n in sent if before.tensors[n].is_floating_point()]
    eps = max((torch.finfo(t).eps for t in types), default=0.0)
    share = eps / 4 * float(norm({n: before.tensors[n].double() for n in sent})) / size
    return (f"about {share:.0%} of the change is rounding of the weights",) if share > 0.01 else ()


def named(state: State, model: nn.Module) -> State:
    """Arrays that are numbered in the order of the state dict, as Flower's older clients send them, by their names."""
    names = list(model.state_dict())
    if set(state.tensors) != {str(i) for i in range(len(names))} or set(names) == set(state.tensors):
        return state
    return replace(state, tensors={name: state.tensors[str(i)] for i, name in enumerate(names)})


def folder_of(folder: Path, model: nn.Module, before: State | None = None) -> list[Capture]:
    """Every client's update in a folder of rounds.

    Round and client stand in the metadata of a file, else in its name (``r12-client3.safetensors``). Weights of a round
    without a client are what its clients began with, those of the client's own folder first (several runs have a folder
    each); ``before`` serves rounds that have none. Arrays "0", "1", … are named by their place in the model's state.
    A file that is torn, does not fit the model or holds no change is left out with a :class:`CaptureWarning`, and the
    other clients' are read; it is an error where none is left.
    """
    captures: list[Capture] = []
    faults: list[FileError] = []
    for start, state in exchanges(folder, before, model, faults.append):
        try:
            captures.append(captured(start, state, model, name=str(state.path.relative_to(folder))))
        except FileError as fault:
            faults.append(fault)
    if not captures and faults:
        raise faults[0]
    if not captures:
        raise FileError("holds no client's update", where=str(folder), remedy="name them r<round>-client<number>")
    for one in faults:
        warnings.warn(f"not inspected: {one}", CaptureWarning, stacklevel=2)
    return captures


def exchanges(
    folder: Path,
    before: State | None = None,
    model: nn.Module | None = None,
    unusable: Callable[[FileError], object] | None = None,
) -> Iterator[tuple[State, State]]:
    """Every client's file in a folder, with the weights that its round began with; see :func:`folder_of`.

    What cannot be used is told to ``unusable``, and raised where there is none.
    """
    paths = sorted(p for p in folder.rglob("*") if p.suffix in ENDINGS and p.is_file())
    if not paths:
        raise FileError(
            "holds no weights or updates", where=str(folder), remedy=f"give a folder of {', '.join(ENDINGS)}"
        )
    states = list(_readable(paths, model, unusable))
    begun = [s for s in states if is_start(s)]
    starts = {_round(s): s for s in begun}
    own = {(s.path.parent, _round(s)): s for s in begun}
    for state in states:
        if is_start(state):
            continue
        start = own.get((state.path.parent, _round(state))) or starts.get(_round(state), before)
        if start is None:
            missing = FileError(
                f"there are no weights that round {_round(state)} began with",
                where=str(state.path),
                remedy="put them into the folder as r<round>.safetensors, or give --before",
            )
            if unusable is None:
                raise missing
            unusable(missing)
            continue
        yield start, state


def is_start(state: State) -> bool:
    """Whether a file of a folder holds weights that a round began with."""
    return _client(state) is None and state.kind in (None, "state")


def _readable(
    paths: Iterable[Path], model: nn.Module | None, unusable: Callable[[FileError], object] | None
) -> Iterator[State]:
    for path in paths:
        try:
            yield read_state(path) if model is None else named(read_state(path), model)
        except FileError as fault:
            if unusable is None:
                raise
            unusable(fault)


def _round(state: State) -> str | None:
    stated = state.fact("round")
    match = ROUND.search(state.path.stem) or ROUND.search(state.path.parent.name)
    return str(stated) if stated is not None else match.group(1) if match else None


def _client(state: State) -> str | None:
    stated = state.fact("client")
    match = CLIENT.search(ROUND.sub("", state.path.stem))
    return str(stated) if stated is not None else match.group(1) if match else None
