"""Running one cell: train; tune; observe, attack, score."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from leakgauge.adversary import Attack, Reconstruction
from leakgauge.adversary.memory import SMALLER, out_of_memory, smaller_chunks
from leakgauge.attacks.choosing import Choice, Chooser
from leakgauge.audit.attacking import attacked, batches, clients_seed, observed, observed_in, searching, treated
from leakgauge.audit.cells import AttackCell, CallCell, Cell, TrainCell, TuneCell, text_of
from leakgauge.audit.nearness import nearness
from leakgauge.audit.scoring import CROSS, cross, errors_by_feature, scored
from leakgauge.audit.store import Store, StoreError
from leakgauge.defenses import Protection
from leakgauge.metrics import label_counts_accuracy
from leakgauge.observation import Observation, encoded
from leakgauge.seeds import seed_of
from leakgauge.study.study import Study
from leakgauge.task import Task
from leakgauge.training import accuracy, train
from leakgauge.types import Domain, Progress, Records, Tree

RETRIED = (
    f"memory ran out: attacked again with 1/{SMALLER} of the problems at once; scores may differ by rounding from a "
    "run with more memory"
)
Outcome = tuple[dict[str, Any], dict[str, Tensor]]
"""What a cell leaves: JSON and tensors."""


@dataclass(frozen=True)
class Work:
    """The cells of one study in one process: every task is built once per defense and checkpoint."""

    study: Study
    store: Store
    _tasks: dict[tuple[str, str, int], Task] = field(default_factory=dict, repr=False)

    def run(self, cell: Cell, progress: Progress | None = None) -> Outcome:
        """What a cell leaves, as JSON and as tensors. Its parents are done.

        Where memory runs out in an attack, it is tried once more with fewer problems at once; the cell says so.
        """
        try:
            return self._run(cell, progress)
        except (MemoryError, RuntimeError) as fault:
            if not out_of_memory(fault) or not isinstance(cell, AttackCell | TuneCell):
                raise
        with smaller_chunks():  # outside of the handler, whose traceback would keep what filled the memory
            summary, tensors = self._run(cell, progress)
        return {**summary, "assumed": [*summary.get("assumed", []), RETRIED]}, tensors

    def _run(self, cell: Cell, progress: Progress | None) -> Outcome:
        match cell:
            case TrainCell():
                summary, tensors = self._train(cell, progress)
            case TuneCell():
                summary, tensors = self._tune(cell, progress)
            case AttackCell():
                summary, tensors = self._attack(cell, progress)
            case CallCell():
                summary, tensors = cell.function(**cell.values)
        return {"cell": cell.id, "kind": cell.kind, "params": cell.params, **summary}, tensors

    def task(self, cell: TuneCell | AttackCell) -> Task:
        """The task of a cell: at its checkpoint, under its defense."""
        if not cell.step:
            return self.study.under(cell.defense)
        training = cell.parents[0]
        task = self._tasks.get((repr(cell.defense), training, cell.step))
        return task or self._at(cell.defense, training, cell.step, state(self.store, training, cell.step))

    def _at(self, defense: Protection, training: str, step: int, weights: Tree) -> Task:
        task = self.study.under(defense).at(weights)
        self._tasks[repr(defense), training, step] = task
        return task

    def _train(self, cell: TrainCell, progress: Progress | None) -> Outcome:
        """The states of a training at the steps asked for, and their accuracy; step 0 is the model as given."""
        schedule, task = cell.schedule, self.study.under(cell.defense)
        checkpoints = train(
            task,
            self.study.train,
            steps=max(schedule.train_steps),
            batch=schedule.batch,
            learning_rate=schedule.learning_rate,
            momentum=schedule.momentum,
            weight_decay=schedule.weight_decay,
            seed=cell.seed,
            keep=schedule.train_steps,
            progress=progress,
        )
        models = {c.step: self._at(cell.defense, cell.id, c.step, c.state) for c in checkpoints}
        reached = {str(step): accuracy(model, self.study.test) for step, model in models.items()}
        states = {f"{c.step}/{n}": value.contiguous().clone() for c in checkpoints for n, value in c.state.items()}
        return {"accuracy": reached}, states

    def _tune(self, cell: TuneCell, progress: Progress | None) -> Outcome:
        """The mean score of every setting on records that are not reported; the first best is chosen."""
        task, private = self.task(cell), self.study.tuning
        seed = seed_of(cell.seed, 3)
        observations = observed(task, private, cell.threat, seed=seed, rounds=cell.rounds) if len(private) else []
        if len(cell.settings) == 1:
            return self._choose(cell, task, observations, progress), {}
        means = []
        for attack in cell.settings:
            guess, _ = attacked(attack, task, observations, cell.threat, seed=seed_of(cell.seed, 4), progress=progress)
            by = scored(self.study, guess, private)[0]
            means.append(round(float(np.mean(by[self._judge])), 6))
        best = int(np.argmax(means))
        return {"means": means, "chosen": text_of(cell.settings[best : best + 1]), "place": best}, {}

    def _choose(
        self, cell: TuneCell, task: Task, observations: list[Observation], progress: Progress | None
    ) -> dict[str, Any]:
        """What an attack that chooses by itself chose on records that are not reported."""
        chooser = searching(cell.settings[0], cell.threat)
        assert isinstance(chooser, Chooser)
        size = self.study.task.recipe.batch

        def score(guess: Reconstruction, places: Sequence[int]) -> float:
            private = self.study.tuning[[i * size + j for i in places for j in range(size)]]
            by = scored(self.study, guess, private)[0][self._judge]
            return float(np.mean(by))

        choice = chooser.choose(task, observations, score, seed=seed_of(cell.seed, 4), progress=progress)
        return choice.as_json()

    def _chosen(self, cell: AttackCell) -> tuple[Attack, Attack, list[str]]:
        """The attack as it is named, the one that attacks, and what was done to choose it."""
        place = self._place(cell)
        named = cell.settings[place]
        if len(cell.settings) > 1:
            return named, named, self._of_a_list(cell, place)
        if isinstance(named, Chooser) and cell.parents and self.store.done(cell.parents[-1]):
            path, own = self.store.cell(cell.parents[-1]), f"{text_of(cell.settings)} {cell.defense!r}"
            choice = Choice.of_json(self.store.result(cell.parents[-1]), where=str(path), own=own)
            return named, choice.attack, choice.sentences(named)
        return named, named, []

    def _of_a_list(self, cell: AttackCell, place: int) -> list[str]:
        """How one of several settings was chosen."""
        means = self.store.result(cell.parents[-1]).get("means")
        if not isinstance(means, list) or len(means) != len(cell.settings) or not isinstance(means[place], float):
            raise StoreError(
                f"has no mean score of each of {len(cell.settings)} settings",
                where=str(self.store.cell(cell.parents[-1])),
                remedy="delete it; the same command computes it again",
            )
        updates = len(self.study.tuning) // self.study.task.recipe.batch
        return [
            f"the attack was tuned; {len(means)} settings were tried on {updates} other updates, and the best mean "
            f"{self._judge} was {means[place]:.3g}",
            f"chose {text_of(cell.settings[place : place + 1])}",
        ]

    def _attack(self, cell: AttackCell, progress: Progress | None) -> Outcome:
        """The scores of an adversary, per record, and the reconstructions behind them."""
        named, attack, tuned = self._chosen(cell)
        pieces = [self._client(cell, attack, first, last, progress) for first, last in cell.clients]
        summary = _together([piece[0] for piece in pieces])
        tensors = {name: torch.cat([piece[1][name] for piece in pieces]) for name in pieces[0][1]}
        if cell.arm == "real" and cell.without is None:
            summary["nearness"] = nearness(self.study, tensors["inputs"], cell.updates[0])
        about = {"adversary": text_of((named,)), "metric": self._judge, "tuned": tuned}
        # of the attack that was chosen, where it says: its likelihood may treat what is hidden in another way
        treatments = treated(attack, self.task(cell), cell.threat) or treated(named, self.task(cell), cell.threat)
        return {**about, **summary, "treatments": treatments}, tensors

    def _place(self, cell: AttackCell) -> int:
        """Which of its settings an attack uses: the tuning's choice, which must be one of them."""
        if len(cell.settings) == 1:
            return 0
        place = self.store.result(cell.parents[-1]).get("place")
        if not isinstance(place, int) or not 0 <= place < len(cell.settings):
            raise StoreError(
                f"chooses setting {place!r} of {len(cell.settings)}",
                where=str(self.store.cell(cell.parents[-1])),
                remedy="delete it; the same command computes it again",
            )
        return place

    @property
    def _judge(self) -> str:
        """The metric that verdicts are about."""
        return self.study.metrics.judge.meaning.name

    def _client(self, cell: AttackCell, attack: Attack, first: int, last: int, progress: Progress | None) -> Outcome:
        """The same of updates that belong together."""
        task, size = self.task(cell), self.study.task.recipe.batch
        private, others = (records[first * size : last * size] for records in (self.study.records, self.study.others))
        drawn = clients_seed(cell.seed, first)
        observations = observed_in(
            cell.arm, task, private, others, cell.threat, seed=drawn, noise=seed_of(cell.seed, 2), rounds=cell.rounds
        )
        guess, assumed = attacked(
            attack, task, observations, cell.threat, seed=seed_of(cell.seed, first * size, 1), progress=progress
        )
        by, inputs, labels = scored(self.study, guess, private)
        summary: dict[str, Any] = {
            "scores": by,
            "errors": errors_by_feature(private.domain, inputs, private.inputs),
            "labels": [int(a == b) for a, b in zip(labels.tolist(), private.labels.tolist(), strict=True)],
            "label_shares": label_counts_accuracy(guess.labels.cpu(), batches(private.labels, size)).tolist(),
            "status": list(guess.status),
            "evaluations": guess.evaluations,
            "assumed": assumed.sentences,
            "unmodelled": assumed.unmodelled,
        }
        if cell.arm == "another":
            some = batches(self.study.records.inputs, size)[:CROSS]
            summary["cross"] = cross(self.study.metrics, guess.inputs.detach().cpu(), some)
        tensors = {"inputs": _stored(inputs, task.domain), "labels": labels.contiguous()}
        if task.protection.input:
            summary["encoding"], pictures = self._encoding(task, guess, private, drawn)
            tensors |= pictures
        return summary, tensors

    def _encoding(
        self, task: Task, guess: Reconstruction, private: Records, seed: int
    ) -> tuple[dict[str, list[float]], dict[str, Tensor]]:
        """Scores against what the client trained on in the first round, and both as pictures."""
        truth = encoded(task, private, seed=seed).inputs
        early = guess if guess.encodings is None else replace(guess, inputs=guess.encodings)
        by, inputs, _ = scored(self.study, early, replace(private, inputs=truth))
        return by, {"encodings": _stored(inputs, task.domain), "encoded": _stored(truth, task.domain)}


def _stored(inputs: Tensor, domain: Domain) -> Tensor:
    """As they are kept for reports: images inside their box."""
    return (inputs if domain.box is None else inputs.clamp(*domain.box)).float().contiguous()


def _together(summaries: list[dict[str, Any]]) -> dict[str, Any]:
    """The summaries of several clients as one: lists follow each other, numbers add up, sentences stand once."""
    if len(summaries) == 1:
        return summaries[0]
    whole: dict[str, Any] = {}
    for name, value in summaries[0].items():
        values = [summary[name] for summary in summaries]
        if name in ("assumed", "unmodelled"):
            whole[name] = sorted({sentence for sentences in values for sentence in sentences})
        elif isinstance(value, dict):
            whole[name] = {key: [item for one in values for item in one[key]] for key in value}
        else:
            whole[name] = sum(values) if isinstance(value, int) else [item for one in values for item in one]
    return whole


def state(store: Store, identity: str, step: int) -> dict[str, Tensor]:
    """The state that a training left at a step."""
    tensors = store.tensors(identity)
    return {name.partition("/")[2]: value for name, value in tensors.items() if name.startswith(f"{step}/")}
