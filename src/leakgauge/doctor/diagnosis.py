"""The doctor: does our client replay what the user's real client did, and if not, what would?

Cheap invariants first. Names: which tensor of "after" is nearest to which of "before". One step: the update lies in the
span of the gradient, the gradient towards uniform labels (label smoothing) and the weights (weight decay), so that
learning rate, sign, smoothing and decay follow from one small least-squares fit per mode and normalisation. Only where
no single step explains the update are several steps, minibatches, orders and momentum tried, with the continuous
settings fitted by Gauss-Newton. Whatever else replays as well is said to be indistinguishable by this evidence.

A client with a defense replays as what it is: its update must follow the law of that defense around ours
(:mod:`leakgauge.doctor.law`), and no other settings may fit much better (:mod:`leakgauge.doctor.rivals`).
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import torch
from torch import nn

from leakgauge import data, models
from leakgauge.defenses import Protection, protection
from leakgauge.doctor.alternatives import alternatives
from leakgauge.doctor.case import Case
from leakgauge.doctor.protections import Trial, best, testable, trials
from leakgauge.doctor.replay import Evidence, Replayer
from leakgauge.doctor.search import search
from leakgauge.doctor.setup import Channels, Setup
from leakgauge.doctor.words import hints, of_trial, of_trials, sentences
from leakgauge.errors import DataError
from leakgauge.losses import CrossEntropy, loss_named
from leakgauge.storage.states import read_state
from leakgauge.study.spec import Spec
from leakgauge.task import refuse_draws, working_copy
from leakgauge.types import Domain, Loss, Records

Status = Literal["replays", "replays otherwise", "does not replay"]


@dataclass(frozen=True)
class Diagnosis:
    """What the doctor found.

    ``settings`` replay (the nearest ones if none do), ``differs`` names those that are not the spec's. Each entry of
    ``indistinguishable`` lists settings that this evidence cannot tell apart. ``residual`` is ``‖ours − theirs‖ /
    ‖theirs‖``, to be compared with ``tolerance``. ``defense`` names the one that the client used, if it has one; ``p``
    is then the probability of a residual that departs as far from its law.
    """

    status: Status
    settings: Setup
    differs: tuple[str, ...]
    indistinguishable: tuple[tuple[str, ...], ...]
    sentences: tuple[str, ...]
    residual: float
    tolerance: float
    gradients: int = field(default=0, compare=False)
    defense: str | None = None
    p: float | None = None

    @property
    def replays(self) -> bool:
        """Whether some settings replay, the spec's or others."""
        return self.status != "does not replay"

    @property
    def sentence(self) -> str:
        """All that is said, as one paragraph."""
        return " ".join(self.sentences)


def diagnose(
    model: nn.Module,
    evidence: Evidence,
    believed: Setup | None = None,
    *,
    loss: Loss | None = None,
    budget: int = 800,
    defenses: Mapping[str, Protection] | None = None,
    bare: bool = True,
) -> Diagnosis:
    """Compare the evidence with our client under ``believed``; search for what replays if that does not.

    ``model`` normalises nothing by itself (``believed.normalise`` says what comes first). ``budget`` limits the search
    for several steps, in gradients of the batch. ``defenses`` are those that the client may have used, by name;
    ``bare`` says whether it may have used none.
    """
    believed = believed or Setup()
    loss = loss or CrossEntropy(believed.smoothing)
    case = Case(Replayer(model, evidence, loss), believed, budget)
    defenses = {} if case.unreadable else defenses or {}
    if bare and case.explains(case.residual(believed)):
        return _undefended(case, (), {})
    tried = trials(case, {name: how for name, how in defenses.items() if testable(how)})
    chosen = best(tried)
    if chosen is not None and (not chosen.differs(believed) or chosen.blurred or not bare):
        return _defended(case, chosen, tried)
    left_out = {name: how for name, how in defenses.items() if not testable(how)}
    if not bare and tried and not left_out:
        nearest = min(tried, key=lambda trial: -trial.examined.p)
        return _defended(case, nearest, tried)
    plain = _undefended(case, tried, left_out)
    fewer = chosen is not None and len(chosen.differs(believed)) < len(plain.differs)
    return _defended(case, chosen, tried) if chosen is not None and (fewer or not plain.replays) else plain


def _defended(case: Case, trial: Trial, tried: tuple[Trial, ...]) -> Diagnosis:
    """The diagnosis of a client with a defense."""
    examined, believed = trial.examined, case.believed
    differs = trial.differs(believed)
    status: Status = "does not replay" if not examined.fits else "replays otherwise" if differs else "replays"
    alike = tuple(one.name for one in tried if one.examined.fits and one.differs(believed) == differs)
    indistinguishable = ((alike,) if len(alike) > 1 else ()) + examined.alike
    lines = of_trial(status, trial, believed, indistinguishable) + (of_trials(tried, {}) if not examined.fits else ())
    return Diagnosis(
        status,
        examined.setup,
        differs,
        indistinguishable,
        lines,
        examined.residual,
        examined.expected,
        case.replayer.gradients,
        trial.name if examined.fits else None,
        examined.p,
    )


def _undefended(case: Case, tried: tuple[Trial, ...], left_out: Mapping[str, Protection]) -> Diagnosis:
    """The diagnosis of a client without a defense."""
    believed = case.believed
    residual, settings = search(case)
    tolerance = case.replayer.tolerance(settings)
    status: Status = "does not replay"
    indistinguishable: tuple[tuple[str, ...], ...] = ()
    if residual <= tolerance and not case.unreadable:
        status = "replays" if not settings.differs(believed) else "replays otherwise"
        indistinguishable = alternatives(case, settings)
    lines = sentences(status, settings, believed, residual, tolerance, indistinguishable)
    if status == "does not replay":
        lines += hints(case) + of_trials(tried, left_out)
    differs, gradients = settings.differs(believed), case.replayer.gradients
    return Diagnosis(status, settings, differs, indistinguishable, lines, residual, tolerance, gradients)


def examine(
    spec: Spec,
    folder: Path,
    *,
    model: nn.Module | None = None,
    loss: Loss | None = None,
    defenses: Mapping[str, Protection] | None = None,
) -> Diagnosis:
    """The diagnosis of a spec with ``[task.replay]``. This imports the user's code, unless what it names is given."""
    replay = spec.task.replay
    if replay is None:
        raise DataError(
            "the spec has no [task.replay]",
            where="doctor",
            remedy='add before = "…", after = "…" and batch = "…": the weights and the batch of one real update',
        )
    records = _records(folder / replay.batch, spec, folder)
    model = model if model is not None else models.build(spec.task.model, records.domain, seed=spec.seed)
    evidence = Evidence.of(read_state(folder / replay.before), read_state(folder / replay.after), records)
    loss = loss if loss is not None else loss_named(spec.task.loss)
    _check_repeats(model, evidence.records, spec.task.recipe.mode)
    named = {name: protection(text) for name, text in spec.defenses.items()} if defenses is None else defenses
    if replay.defense is not None:
        named = {replay.defense: named[replay.defense]}
    used = {name: how for name, how in named.items() if repr(how) != repr(Protection())}
    bare = replay.defense is None or not used
    return diagnose(model, evidence, believed(spec, evidence, loss), loss=loss, defenses=used, bare=bare)


def _check_repeats(model: nn.Module, records: Records, mode: str) -> None:
    """What draws random numbers never replays, and no setting is to blame; other faults are said by the replay."""
    own, before = working_copy(model, mode), torch.get_rng_state()
    with suppress(Exception), torch.no_grad():
        own(records.inputs[:2].to(next(own.parameters())))
    refuse_draws(before, "doctor")


def believed(spec: Spec, evidence: Evidence, loss: Loss) -> Setup:
    """The set-up that a spec says."""
    recipe, norm = spec.task.recipe, spec.task.normalise
    channels: Channels | None = (tuple(norm.mean), tuple(norm.std)) if norm is not None else None
    return Setup(
        mode=recipe.mode,
        reduction=recipe.reduction,
        smoothing=loss.smoothing if isinstance(loss, CrossEntropy) else 0.0,
        holds="weights" if evidence.kind is None or evidence.kind == "state" else evidence.kind,
        learning_rate=recipe.learning_rate,
        momentum=recipe.momentum,
        weight_decay=recipe.weight_decay,
        local_steps=recipe.local_steps,
        minibatch=recipe.minibatch if recipe.minibatch != len(evidence.records) else None,
        shares=recipe.shares or ("gradient" if recipe.local_steps == 1 else "change"),
        normalise=channels,
    )


def _records(path: Path, spec: Spec, folder: Path) -> Records:
    """The known batch, all of it, in its order; classes as the spec's data has them."""
    npz = data.read_npz(path)
    classes = npz.classes
    if classes is None:
        named = spec.task.data
        near = folder / named
        classes = data.load(str(near) if near.exists() else named).domain.classes
    shape = tuple(npz.train.inputs.shape[1:])
    domain = Domain("image" if len(shape) == 3 else "table", shape, classes, npz.features)
    return npz.train.records(domain)
