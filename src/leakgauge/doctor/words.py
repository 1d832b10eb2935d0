"""What the doctor says: which settings replay, which cannot be told apart, and what else the evidence shows."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import nn

from leakgauge.doctor.replay import Setup
from leakgauge.doctor.search import Search

Classes = tuple[tuple[str, ...], ...]

NAMED = {
    "mode": "the mode of the model",
    "reduction": "the reduction of the loss",
    "smoothing": "label smoothing",
    "holds": 'what the file "after" holds',
    "sign": "the sign",
    "swapped": "the order of the two files",
    "learning_rate": "the learning rate",
    "momentum": "momentum",
    "weight_decay": "weight decay",
    "local_steps": "the number of local steps",
    "minibatch": "the minibatch",
    "order": "the order of the examples",
    "normalise": "normalisation",
    "names": "the names of parameters",
}


def sentences(
    status: str, found: Setup, believed: Setup, residual: float, tolerance: float, classes: Classes
) -> tuple[str, ...]:
    """The diagnosis in words."""
    near = f"relative residual {residual:.1e}, tolerance {tolerance:.1e}"
    said: list[str] = []
    if status == "replays":
        said.append(f"Our client replays yours ({near}).")
    elif status == "replays otherwise":
        said.append(f"Our client replays yours ({near}), but not with the settings of the spec.")
        said += [_change(key, found, believed) for key in found.differs(believed)]
    else:
        said.append(f"Our client does not replay yours under any settings that were tried (nearest: {near}).")
    if classes:
        said += [f"This evidence cannot tell apart: {'; or '.join(each)}." for each in classes]
    return tuple(said)


def _change(key: str, found: Setup, believed: Setup) -> str:
    """One setting that is not the spec's, and what to do about it."""
    said = believed.text(key).partition(" = ")[2]
    if key == "names":
        where = "in both files" if found.renamed == "both" else 'in the file "after"'
        return f"Parameter names are exchanged {where}: {found.text('names').removeprefix('names = ')}."
    if key == "sign" and found.sign < 0:
        return "The update points the other way (sign): your client goes up the gradient, or sends before - after."
    if key == "swapped":
        return 'The two files are swapped: the weights of "after" come before those of "before".'
    if key == "holds":
        return f'The file "after" holds {HELD[found.holds]}, not {HELD[believed.holds]}.'
    if key == "smoothing":
        return (
            f"The loss smooths labels: {found.text(key)} (our {NAMED[key]} is {said}); name such a loss in task.loss."
        )
    if key == "order":
        return f"The examples were used in the {found.text(key)}; save the batch in that order."
    return f"Set {found.text(key)} ({NAMED[key]}; the spec says {said})."


HELD = {"weights": "weights", "change": "a change of weights", "gradient": "a gradient"}


def alternatives(search: Search, found: Setup) -> Classes:
    """Groups of settings that replay alike; each group names what this evidence cannot separate."""
    return tuple(
        each
        for each in (
            _reductions(search, found),
            _momenta(found),
            _modes(search, found),
            _steps(search, found),
            _orders(search, found),
            _norms(search, found),
            _signs(found),
        )
        if each
    )


def _alike(search: Search, setup: Setup) -> Setup | None:
    """The set-up with its learning rate fitted anew, if it replays."""
    if search.replayer.working(setup) is None:
        return None
    score, made = search.fit_rate(setup) if setup.holds != "gradient" else (search.replayer.residual(setup), setup)
    return made if search.within(score, made) else None


def _reductions(search: Search, found: Setup) -> tuple[str, ...]:
    size = found.minibatch or search.replayer.batch
    if found.holds == "gradient" or size == 1:
        return ()
    factor = 1 / size if found.reduction == "mean" else float(size)
    other = replace(
        found,
        reduction="sum" if found.reduction == "mean" else "mean",
        learning_rate=found.learning_rate * factor,
        weight_decay=found.weight_decay / factor,
    )
    keys = ("reduction", "learning_rate", *(("weight_decay",) if found.weight_decay else ()))
    return found.text(*keys), other.text(*keys)


def _momenta(found: Setup) -> tuple[str, ...]:
    if found.local_steps > 1 or found.holds == "gradient":
        return ()
    return f"momentum = {found.momentum:g}", "any other momentum: a first step has none"


def _modes(search: Search, found: Setup) -> tuple[str, ...]:
    if not search.replayer.mode_matters:
        return ()
    other = replace(found, mode="eval" if found.mode == "train" else "train")
    return (found.text("mode"), other.text("mode")) if _alike(search, other) else ()


def _steps(search: Search, found: Setup) -> tuple[str, ...]:
    """Other numbers of steps, with a learning rate of their own."""
    if found.holds == "gradient":
        return ()
    keys = ("local_steps", "learning_rate", "minibatch")
    tried = [replace(found, local_steps=n) for n in (found.local_steps - 1, found.local_steps + 1) if n > 0]
    if found.minibatch is not None:
        tried.append(replace(found, local_steps=1, minibatch=None, order=None))
    if found.local_steps > 2:
        tried.append(replace(found, local_steps=1))
    rated = [replace(s, learning_rate=s.learning_rate * found.local_steps / s.local_steps) for s in tried]
    alike = [made.text(*keys) for made in (_alike(search, s) for s in rated) if made is not None]
    return (found.text(*keys), *dict.fromkeys(alike)) if alike else ()


def _orders(search: Search, found: Setup) -> tuple[str, ...]:
    if found.minibatch is None:
        return ()
    size = search.replayer.batch
    turned = replace(found, order=(found.order or tuple(range(size)))[::-1])
    return (found.text("order"), turned.text("order")) if _alike(search, turned) else ()


def _norms(search: Search, found: Setup) -> tuple[str, ...]:
    others = [c for c in search.contexts(found) if c.mode == found.mode and c.normalise != found.normalise]
    alike = [c.text("normalise") for c in others if _alike(search, c)]
    return (found.text("normalise"), *alike) if alike else ()


def _signs(found: Setup) -> tuple[str, ...]:
    if found.holds == "weights":
        return ()
    if found.holds == "gradient":
        turned = "its sign turned" if found.sign > 0 else "its sign as it should be"
        return f"a gradient, sign = {found.sign}", f"a change with learning_rate = 1 and {turned}"
    if found.sign < 0:
        return f"a change with its sign turned, {found.text('learning_rate')}", "a gradient times a number"
    return ()


def hints(search: Search) -> tuple[str, ...]:
    """What the evidence shows although nothing replays."""
    replayer, believed = search.replayer, search.believed
    observed = replayer.observed(believed)
    if not float(observed.norm()):
        return ("Nothing changed between the two files: they hold the same weights.",)
    if search.blind:
        return ("The change is hardly larger than the rounding of the weights: give an update of a larger step.",)
    said = []
    if search.even:
        said.append("Nearly all weights moved by the same amount, as in Adam's first step; our client trains with SGD.")
    if replayer.working(believed) is not None:
        gradient = replayer.gradient(believed)
        cosine = float(torch.nn.functional.cosine_similarity(-gradient, observed, dim=0))
        said.append(
            f"The cosine between the change and one step of ours is {cosine:.2f}"
            + (": the batch or the weights before are likely others." if abs(cosine) < 0.5 else ".")
        )
    if any(isinstance(m, nn.modules.dropout._DropoutNd) and m.p > 0 for m in replayer.model.modules()):
        said.append("The model has dropout: a client in train mode drew masks that nobody can replay.")
    counted = search.batches_counted()
    if counted:
        said.append(f"The batch norms counted {counted} batches: your client was in train mode for {counted} steps.")
    return tuple(said)
