"""One row: a client under a defense meets an attack. It is measured by the cells of an audit, and kept."""

from __future__ import annotations

import hashlib
import shlex
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeGuard

from torch import Tensor, nn

from leakgauge import attacks, data, models, priors
from leakgauge.adversary import Attack, models_defense
from leakgauge.audit.attacking import NoAnswerError
from leakgauge.audit.cells import FORMAT, AttackCell, TrainCell, TuneCell, versions
from leakgauge.audit.plan import plan
from leakgauge.audit.scoring import scores
from leakgauge.audit.store import Store, StoreError, canonical
from leakgauge.audit.work import Work
from leakgauge.defenses import Protection, protection
from leakgauge.errors import AssumptionWarning, DomainError, LeakgaugeError
from leakgauge.expr import PATH, described, load, parse
from leakgauge.metrics import Interval, mean_interval
from leakgauge.standings.set_ups import TRAINED, VERSION, Client, Size
from leakgauge.study.attack_texts import attack_of, nested_chooser
from leakgauge.study.own_code import fingerprint, has_own_code
from leakgauge.study.sections import Attacks
from leakgauge.study.study import Study
from leakgauge.task import Task
from leakgauge.training import train

_PARTS = (attacks, priors)
"""Rooms whose import registers the parts that an expression may name."""
METRIC, BESIDE = "ssim", "psnr"
RECOGNISABLE = 0.5
"""The SSIM from which a record counts as recognised, as in a verdict on images."""


_OF_HERE = ("row", "failed", "published", "seconds")
"""Fields of a score that are not kept with it: the same row is the same to the byte wherever it is measured."""


@dataclass(frozen=True)
class Row:
    """What is measured: everything that its score depends on, apart from the environment."""

    client: Client
    size: Size
    defense: str
    attack: str

    @property
    def command(self) -> str:
        """What measures this row alone."""
        quick = " --quick" if self.size.name == "quick" else ""
        own = " --own-code" if self.own else ""
        about = f"--client {self.client.name} --defense {_quoted(self.defense)} --attack {_quoted(self.attack)}"
        return f"leakgauge standings {about}{quick}{own}"

    @property
    def own(self) -> list[str]:
        """The user's own objects that it names."""
        return sorted({*PATH.findall(self.defense), *PATH.findall(self.attack)})

    def read(self) -> tuple[Protection, Attack]:
        """Defense and attack as values. Imports the user's code that they name."""
        return _defense(self.defense), _attack(self.attack)

    @property
    def versions(self) -> list[str]:
        """``name@version`` of every part: rows of others can be compared where these agree."""
        return [version for part in self.read() for version in versions(part)]

    @property
    def identity(self) -> str:
        """The hash of what the row is about, with the versions of its parts and the source of the user's own."""
        whole = {
            "standings": VERSION,
            "format": FORMAT,
            "client": asdict(self.client) | {"defenses": None},
            "size": [self.size.updates],
            "defense": self.defense,
            "attack": self.attack,
            "versions": [versions(part) for part in self.read()],
            "source": [_source(path) for path in self.own],
        }
        return hashlib.sha256(canonical(whole).encode()).hexdigest()[:24]


def _defense(text: str) -> Protection:
    return protection(parse(text, "defense", where="--defense"))


def _attack(text: str) -> Attack:
    attack = attack_of(text, "--attack")
    if inner := nested_chooser(attack):
        what = f"{described(inner)} stands inside another attack, where it would choose nothing"
        raise DomainError(what, where="--attack", remedy="enter it by itself")
    return attack


def faults_of(rows: Iterable[Row]) -> list[LeakgaugeError]:
    """Why the defenses and attacks of rows cannot be read, each text once. Imports the user's code that they name."""
    readers: dict[tuple[str, Callable[[str], object]], None] = {}
    for row in rows:
        readers |= {(row.defense, _defense): None, (row.attack, _attack): None}
    faults: list[LeakgaugeError] = []
    for text, read in readers:
        try:
            read(text)
        except LeakgaugeError as fault:
            faults += getattr(fault, "problems", (fault,))
    return faults


@dataclass(frozen=True)
class Score:
    """What a row reached: SSIM and PSNR per record, or why the attack does not apply.

    ``blind`` is the mean SSIM of a guess without any update; ``chosen`` the setting of an attack that chose one.
    ``failed``: the fault is no statement of the attack but an error in its code or ours, and the row is not kept.
    ``published``: it came with leakgauge and was not measured here. ``seconds`` of one processor, if it was.
    """

    row: Row
    ssim: tuple[float, ...] = ()
    psnr: tuple[float, ...] = ()
    recognised: int = 0
    evaluations: int = 0
    blind: float = 0.0
    seconds: float = 0.0
    chosen: str | None = None
    fault: str | None = None
    failed: bool = False
    published: bool = False

    @property
    def interval(self) -> Interval:
        """Of the mean SSIM; no record is above 1, so their mean is not either."""
        between = mean_interval(self.ssim)
        return replace(between, high=min(between.high, 1.0))

    def as_json(self) -> dict[str, Any]:
        about = {
            "identity": self.row.identity,
            "client": self.row.client.name,
            "defense": self.row.defense,
            "attack": self.row.attack,
            "size": self.row.size.name,
            "command": self.row.command,
            "versions": self.row.versions,
        }
        return about | {name: value for name, value in asdict(self).items() if name not in _OF_HERE}

    @classmethod
    def of_json(cls, row: Row, raw: Mapping[str, Any], *, seconds: float = 0.0, where: str = "row") -> Score:
        """Read what a cell keeps. The file may be anybody's."""
        ssim, psnr = raw.get("ssim"), raw.get("psnr")
        match [raw.get(name) for name in ("recognised", "evaluations", "blind", "chosen", "fault")]:
            case int(many), int(spent), int() | float() as blind, str() | None as chosen, str() | None as fault:
                if _are_scores(ssim) and _are_scores(psnr) and len(ssim) == len(psnr) and (ssim or fault):
                    return cls(row, tuple(ssim), tuple(psnr), many, spent, blind, seconds, chosen, fault)
        raise StoreError("is no row of standings", where=where, remedy="delete it; the same command measures it again")


def _are_scores(values: Any) -> TypeGuard[list[float]]:
    return isinstance(values, list) and all(isinstance(value, int | float) for value in values)


def measured(row: Row, store: Store) -> Score:
    """The score of a row: from the store if it is there, or measured and kept."""
    if store.done(row.identity):
        return kept(row, store, store.timings())
    begun = time.process_time()
    try:
        score = _measured(row, store, begun)
    except (NoAnswerError, _BrokenDefenseError) as fault:  # it broke a contract, as an attack that raises does
        return Score(row, fault=str(fault), failed=True)
    except LeakgaugeError as fault:  # an attack that does not apply here: that is a result, too
        score = Score(row, fault=str(fault))
    except Exception as fault:  # anybody's code may raise anything: the other rows go on
        return Score(row, fault=f"{type(fault).__name__}: {fault}", failed=True)
    store.commit(row.identity, {"kind": "row", **score.as_json()}, {})
    store.log(event="done", cell=row.identity, seconds=score.seconds)
    return score


def kept(row: Row, store: Store, timings: Mapping[str, float]) -> Score:
    """The score of a row that was measured before."""
    seconds = timings.get(row.identity, 0.0)
    return Score.of_json(row, store.result(row.identity), seconds=seconds, where=str(store.cell(row.identity)))


def _measured(row: Row, store: Store, begun: float) -> Score:
    study = _study(row, store)
    work = Work(study, store)
    summary: dict[str, Any] = {}
    chosen: str | None = None
    for cell in plan(study).of(defense=row.read()[0]):
        if isinstance(cell, TrainCell) or (isinstance(cell, AttackCell) and cell.arm != "real"):
            continue
        if not store.done(cell.id):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", AssumptionWarning)
                store.commit(cell.id, work.run(cell)[0], {})
        result = store.result(cell.id)
        if isinstance(cell, TuneCell):
            chosen = result["chosen"]
        else:
            summary = _joined(summary, result)
    truth, guess = study.records.inputs, study.guess()
    blind = scores(study.metrics, guess, truth)[METRIC]
    ssim = summary["scores"][METRIC]
    return Score(
        row,
        tuple(ssim),
        tuple(summary["scores"][BESIDE]),
        sum(value >= RECOGNISABLE for value in ssim),
        summary["evaluations"],
        round(sum(blind) / len(blind), 4),
        round(time.process_time() - begun, 2),
        chosen,
    )


def _joined(before: dict[str, Any], result: dict[str, Any]) -> dict[str, Any]:
    """The chunks of an attack as one."""
    if not before:
        return {"scores": dict(result["scores"]), "evaluations": result["evaluations"]}
    by = {name: [*before["scores"][name], *values] for name, values in result["scores"].items()}
    return {"scores": by, "evaluations": before["evaluations"] + result["evaluations"]}


def _study(row: Row, store: Store) -> Study:
    client, (defense, attack) = row.client, row.read()
    dataset = _dataset(client.data)
    absent: dict[str, tuple[Attacks, ...]] = {"any": ("generic",), "none": ("adaptive",)}
    model = network(client, store)
    _try(defense, Task(model, dataset.domain, client.recipe))
    return Study(
        model,
        dataset,
        defenses={"row": defense},
        adversaries={"row": attack},
        recipe=client.recipe,
        updates=row.size.updates,
        leave_out=absent.get(models_defense(attack), ("generic", "adaptive")),
        verdict={"significance": 0.5},  # nothing is judged here, only scored
    )


class _BrokenDefenseError(LeakgaugeError):
    """A defense of somebody's own whose code raises an error that says nothing about clients."""


def _try(defense: Protection, task: Task) -> None:
    """Let a defense of somebody's own release two updates: to a study, an error of its code is a fault of the spec."""
    if not has_own_code(defense):
        return
    try:
        fingerprint(task.protect(defense))
    except LeakgaugeError as fault:
        if fault.__cause__ is not None and not isinstance(fault.__cause__, LeakgaugeError):
            raise _BrokenDefenseError(fault.what, where=fault.where, remedy=fault.remedy) from fault


@lru_cache(maxsize=4)
def _dataset(name: str) -> data.Dataset:
    return data.load(name)


def network(client: Client, store: Store) -> nn.Module:
    """The network of a client; a trained one is trained once per folder."""
    dataset = _dataset(client.data)
    module = models.build(client.model, dataset.domain)
    if not client.trained:
        return module
    about = {"standings": VERSION, "kind": "train", "model": client.model, "data": client.data, "steps": TRAINED}
    identity = hashlib.sha256(canonical(about).encode()).hexdigest()[:24]
    if not store.done(identity):
        store.commit(identity, {**about, "cell": identity}, _trained(module, dataset))
    module.load_state_dict(store.tensors(identity))
    return module


def _trained(module: nn.Module, dataset: data.Dataset) -> dict[str, Tensor]:
    task = Task(module, dataset.domain)
    records = dataset.sample(min(4000, len(dataset.train)), seed=5, split="train")
    (*_, last) = train(task, records, steps=TRAINED, learning_rate=0.02, keep=())
    return {name: value.detach().clone().contiguous() for name, value in last.state.items()}


def _quoted(text: str) -> str:
    """As one word of a shell: in double quotes, unless something in it means more there."""
    return shlex.quote(text) if set(text) & set('"$`\\!') else f'"{text}"'


def _source(path: str) -> str:
    """The hash of the file that defines a part of the user's own: a changed one is measured again."""
    target = load(path, where="standings")
    file = getattr(sys.modules.get(getattr(target, "__module__", "")), "__file__", None)
    return hashlib.sha256(Path(file).read_bytes()).hexdigest() if file else described(target)


__all__ = ["Row", "Score", "faults_of", "kept", "measured", "network"]
