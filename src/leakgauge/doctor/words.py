"""What the doctor says: which settings replay, and what else the evidence shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import nn

from leakgauge.defenses import Protection
from leakgauge.doctor.alternatives import Classes
from leakgauge.doctor.case import Case
from leakgauge.doctor.protections import Trial
from leakgauge.doctor.rivals import EVERYTHING
from leakgauge.doctor.setup import Setup

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
    "shares": "what the defense acts on",
    "order": "the order of the examples",
    "normalise": "normalisation",
    "names": "the names of parameters",
}


def sentences(
    status: str, settings: Setup, believed: Setup, residual: float, tolerance: float, classes: Classes
) -> tuple[str, ...]:
    """The diagnosis in words."""
    near = f"relative residual {residual:.1e}, tolerance {tolerance:.1e}"
    lines: list[str] = []
    if status == "replays":
        lines.append(f"Our client replays yours ({near}).")
    elif status == "replays otherwise":
        lines.append(f"Our client replays yours ({near}), but not with the settings of the spec.")
        lines += [_change(key, settings, believed) for key in settings.differs(believed)]
    else:
        lines.append(f"Our client does not replay yours under any settings that were tried (nearest: {near}).")
    if classes:
        lines += [f"This evidence cannot tell apart: {'; or '.join(each)}." for each in classes]
    return tuple(lines)


def of_trial(status: str, trial: Trial, believed: Setup, classes: Classes) -> tuple[str, ...]:
    """The diagnosis of a client with a defense, in words."""
    fit = trial.examined
    under = f"{trial.name}, {trial.protection!r}"
    near = f"relative residual {fit.residual:.1e}, of our own client up to {fit.expected:.1e}; {_p(fit.p)}"
    if status == "does not replay":
        return (f"Our client does not replay yours under {under} with any settings that were tried ({near}).",)
    lines = [f"Our client replays yours under {under}: the residual follows the law of that defense ({near})."]
    if status == "replays otherwise":
        lines[0] = f"Our client replays yours under {under} ({near}), but not with the settings of the spec."
        lines += [_change(key, fit.setup, believed) for key in trial.differs(believed)]
    lines += [f"This evidence cannot tell apart: {'; or '.join(each)}." for each in classes]
    if fit.hidden == EVERYTHING:
        lines.append("The update shows its noise and no recipe: a client with an update of zeros would replay as well.")
    elif fit.hidden:
        names = ", ".join(NAMED[key] for key in fit.hidden)
        lines.append(f"The defense hides these settings, which may be others: {names}.")
    return tuple(lines)


def of_trials(tried: Sequence[Trial], left_out: Mapping[str, Protection]) -> tuple[str, ...]:
    """The defenses that do not explain the update, and those that cannot be replayed."""
    failed = [f"{trial.name} ({_p(trial.examined.p)})" for trial in tried if not trial.examined.fits]
    lines = [f"Nor does the residual follow the law of a defense: {', '.join(failed)}."] if failed else []
    if left_out:
        lines.append(
            f"Not tried: {', '.join(left_out)}. A defense of records or of the model draws what nobody can replay; "
            "save an update without it."
        )
    return tuple(lines)


def _p(value: float) -> str:
    return "p < 0.001" if value < 0.001 else f"p = {value:.2g}"


def _change(key: str, settings: Setup, believed: Setup) -> str:
    """One setting that is not the spec's, and what to do about it."""
    spec = believed.text(key).partition(" = ")[2]
    if key == "names":
        where = "in both files" if settings.renamed == "both" else 'in the file "after"'
        return f"Parameter names are exchanged {where}: {settings.text('names').removeprefix('names = ')}."
    if key == "sign" and settings.sign < 0:
        return "The update points the other way (sign): your client goes up the gradient, or sends before - after."
    if key == "swapped":
        return 'The two files are swapped: the weights of "after" come before those of "before".'
    if key == "holds":
        return f'The file "after" holds {HELD[settings.holds]}, not {HELD[believed.holds]}.'
    if key == "smoothing":
        smoothed = f"The loss smooths labels: {settings.text(key)} (our {NAMED[key]} is {spec})"
        return f"{smoothed}; name such a loss in task.loss."
    if key == "order":
        return f"The examples were used in the {settings.text(key)}; save the batch in that order."
    return f"Set {settings.text(key)} ({NAMED[key]}; the spec says {spec})."


HELD = {"weights": "weights", "change": "a change of weights", "gradient": "a gradient"}


def hints(case: Case) -> tuple[str, ...]:
    """What the evidence shows although nothing replays."""
    replayer, believed = case.replayer, case.believed
    observed = replayer.observed(believed)
    if not float(observed.norm()):
        return ("Nothing changed between the two files: they hold the same weights.",)
    if case.unreadable:
        return ("The change is hardly larger than the rounding of the weights: give an update of a larger step.",)
    lines = []
    if case.even:
        lines.append(
            "Nearly all weights moved by the same amount, as in Adam's first step; our client trains with SGD."
        )
    if replayer.working(believed) is not None:
        gradient = replayer.gradient(believed)
        cosine = float(torch.nn.functional.cosine_similarity(-gradient, observed, dim=0))
        lines.append(
            f"The cosine between the change and one step of ours is {cosine:.2f}"
            + (": the batch or the weights before are likely others." if abs(cosine) < 0.5 else ".")
        )
    if any(isinstance(m, nn.modules.dropout._DropoutNd) and m.p > 0 for m in replayer.model.modules()):
        lines.append("The model has dropout: a client in train mode drew masks that nobody can replay.")
    if counted := case.batches_counted:
        lines.append(f"The batch norms counted {counted} batches: your client was in train mode for {counted} steps.")
    return tuple(lines)
