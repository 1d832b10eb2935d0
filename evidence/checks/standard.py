"""``standard()``: how strong it is without a knob, what it costs, that it is blind, and that its controls hold."""

from __future__ import annotations

import json
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import leakgauge as lg
from benchmarks.cases import Setting
from benchmarks.cases import case as benchmark
from benchmarks.machine import prepare
from benchmarks.peers import Peer
from evidence import Context, Measurement, Number, above, at_least, at_most, check, exactly
from leakgauge.adversary import Adversary, Attack, Reconstruction, gauss_newton, l2
from leakgauge.attacks import adaptive, inverting_gradients, standard
from leakgauge.attacks.choosing import Choice, Choosing
from leakgauge.attacks.portfolio import Portfolio
from leakgauge.audit import audit
from leakgauge.metrics import clopper_pearson, match, psnr
from leakgauge.study import Study, of
from leakgauge.testing import attack_reaches_map
from leakgauge.training import train

REPORTED, REFERENCE, TRAINED = 8, 4, 300
LEVEL = 0.05


def _group_norm(domain: lg.Domain) -> nn.Module:
    """A small ConvNet with GroupNorm."""
    channels, side = domain.shape[0], domain.shape[1] // 4
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        return nn.Sequential(
            nn.Conv2d(channels, 32, 3, padding=1, stride=2),
            nn.GroupNorm(4, 32),
            nn.ReLU(),
            nn.Conv2d(32, 64, 3, padding=1, stride=2),
            nn.GroupNorm(8, 64),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(64 * side * side, domain.classes),
        )


@dataclass(frozen=True)
class SetUp:
    """A client: network, data, defense, batch, and whether it was trained first."""

    model: str
    data: str
    defense: str = "identity()"
    batch: int = 1
    trained: bool = False

    @property
    def name(self) -> str:
        stage = f"after {TRAINED} steps" if self.trained else "untrained"
        return f"{self.model}, {self.data}, {self.defense}, batch {self.batch}, {stage}"

    def task(self) -> tuple[lg.Task, lg.data.Dataset]:
        dataset = lg.data.load(self.data)
        domain = dataset.domain
        network = _group_norm(domain) if self.model == "group_norm" else lg.models.build(self.model, domain)
        task = lg.Task(network, domain, lg.Recipe(batch=self.batch))
        if self.trained:
            records = dataset.sample(4000, seed=5, split="train")
            (*_, last) = train(task, records, steps=TRAINED, learning_rate=0.02, keep=())
            task = task.at(last.state)
        return task.protect(self.defense), dataset


SET_UPS = (
    SetUp("bayes_cnn", "cifar10"),
    SetUp("bayes_cnn", "fashion_mnist"),
    SetUp("dlg_lenet", "cifar10"),
    SetUp("convbig", "cifar10"),
    SetUp("dlg_lenet", "fashion_mnist", batch=4),
    SetUp("dlg_lenet", "cifar10", "gaussian(std=0.0001)"),
    SetUp("bayes_cnn", "fashion_mnist", "gaussian(std=0.001)", trained=True),
    SetUp("bayes_cnn", "cifar10", "clip(norm=1.0) | gaussian(std=0.001)"),
    SetUp("bayes_cnn", "fashion_mnist", "prune(p=0.9)"),
    SetUp("bayes_cnn", "fashion_mnist", "random_prune(p=0.5) | gaussian(std=0.01)"),
    SetUp("bayes_cnn", "fashion_mnist", "sign()"),
    SetUp("bayes_cnn", "fashion_mnist", batch=4, trained=True),
    SetUp("convbig", "cifar10", "prune(p=0.9)"),
    SetUp("group_norm", "cifar10"),
    SetUp("group_norm", "fashion_mnist", trained=True),
    SetUp("mlp(width=200, depth=2)", "fashion_mnist", batch=4),
)


@dataclass(frozen=True)
class Case:
    """A set-up with observations of reported and of reference records."""

    task: lg.Task
    reported: lg.Records
    reference: lg.Records
    private: list[lg.Observation]
    other: list[lg.Observation]

    @classmethod
    def of(cls, how: SetUp, reported: int = REPORTED) -> Case:
        task, dataset = how.task()
        records = dataset.sample(reported * how.batch, seed=0, split="test")
        others = dataset.sample(REFERENCE * how.batch, seed=3, split="train")
        return cls(task, records, others, lg.observe(task, records, seed=1), lg.observe(task, others, seed=2))

    def scores(self, guess: Reconstruction) -> Tensor:
        """PSNR of every reported record."""
        return _scores(guess, self.reported, self.task.recipe.batch)

    def choose(self, attack: Any) -> Choice:
        choice: Choice = attack.choose(self.task, self.other, _by_psnr(self.reference, self.task.recipe.batch))
        return choice


def _scores(guess: Reconstruction, records: lg.Records, batch: int) -> Tensor:
    truth = records.inputs.unflatten(0, (-1, batch))
    inputs = guess.inputs.clamp(0, 1)
    if batch > 1:
        inputs = match(inputs, truth).apply(inputs)
    return psnr(inputs.flatten(0, 1), truth.flatten(0, 1)).clamp(max=100.0)


def _by_psnr(records: lg.Records, batch: int) -> Callable[[Reconstruction, Sequence[int]], float]:
    def score(guess: Reconstruction, places: Sequence[int]) -> float:
        own = records[[i * batch + j for i in places for j in range(batch)]]
        return float(_scores(guess, own, batch).mean())

    return score


def _timed(work: Callable[[], Any]) -> tuple[Any, float]:
    begun = time.process_time()
    return work(), time.process_time() - begun


def _oracle(case: Case, context: Context) -> tuple[float, int]:
    """The best mean of any setting in the box, chosen on the reported records themselves: it cheats."""
    score = _by_psnr(case.reported, case.task.recipe.batch)
    best, tried = -1e9, 0
    weights = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
    whole: list[Attack] = [adaptive(steps=1000)]
    whole += [adaptive(steps=300, tv_weight=w, tv_density=3000 * w) for w in weights]
    whole += [inverting_gradients(steps=300, tv_weight=w) for w in weights]
    for attack in whole:
        best, tried = max(best, score(attack(case.task, case.private), range(len(case.private)))), tried + 1
    if choice := _searched(case, score):
        best, tried = max(best, choice.score), tried + choice.tried
    context.say(f"oracle: {best:.2f} dB from {tried} settings")
    return best, tried


def _searched(case: Case, score: Callable[[Reconstruction, Sequence[int]], float]) -> Choice | None:
    """The portfolio with every reported record in every rung."""
    every = len(case.private)
    effort = replace(standard().effort, look=every, records=every)
    return Choosing(Portfolio.of(case.task, case.private), effort, case.task, case.private, score).choose()


def _measured(how: SetUp, context: Context, *, oracle: bool = True) -> dict[str, Any]:
    """One set-up: kept, so that an interrupted check goes on where it was."""
    path = context.scratch / f"{how.name.replace(' ', '_').replace('|', '-')}{'' if oracle else '-short'}.json"
    if path.exists():
        return dict(json.loads(path.read_text()))
    prepare("tuned")
    case = Case.of(how)
    choice, choosing = _timed(lambda: case.choose(standard()))
    guess, attacking = _timed(lambda: choice.attack(case.task, case.private))
    plain, before = _timed(lambda: adaptive(steps=1000)(case.task, case.private))
    twenty = 20 / REPORTED
    row = {
        "set-up": how.name,
        "standard dB": round(float(case.scores(guess).mean()), 2),
        "adaptive dB": round(float(case.scores(plain).mean()), 2),
        "settings": choice.tried,
        "choice / adaptive on 20": round(choosing / (before * twenty), 2),
        "all / adaptive on 20": round((choosing + attacking * twenty) / (before * twenty), 2),
        "chosen": repr(choice.attack),
    }
    if oracle:
        best, tried = _oracle(case, context)
        row |= {"oracle dB": round(best, 2), "oracle settings": tried}
    context.say(str(row))
    path.write_text(json.dumps(row))
    return row


@check("standard_strength", rows="standard-strength", cost="long")
def strength(context: Context) -> Measurement:
    """16 set-ups, 8 reported updates each: against an oracle that searches on the reported records, and adaptive()."""
    rows = [_measured(how, context) for how in SET_UPS]
    near = sum(row["standard dB"] >= row["oracle dB"] - 0.3 for row in rows)
    gain = sum(row["standard dB"] - row["adaptive dB"] for row in rows) / len(rows)
    return Measurement(
        {
            "set-ups within 0.3 dB of the oracle": Number(near, at_least(14)),
            "mean gain over adaptive(steps=1000), dB": Number(gain, at_least(2.0)),
            "greatest processor time, of adaptive on 20 records": Number(
                max(row["all / adaptive on 20"] for row in rows), at_most(3.0)
            ),
            "fewest settings of the oracle": Number(min(row["oracle settings"] for row in rows), at_least(60)),
        },
        detail=f"{len(rows)} set-ups, mean PSNR of {REPORTED} updates of test records; settings chosen on {REFERENCE} "
        "updates of train records",
        table=rows,
    )


@check("standard_opening", rows="standard-opening", cost="long")
def opening(context: Context) -> Measurement:
    """The four undefended set-ups in which a setting found by hand beat adaptive(steps=1000): without an oracle."""
    rows = [_measured(how, context, oracle=False) for how in SET_UPS[:4]]
    gains = [row["standard dB"] - row["adaptive dB"] for row in rows]
    return Measurement(
        {
            "mean gain over adaptive(steps=1000), dB": Number(sum(gains) / len(gains), at_least(2.0)),
            "least gain, dB": Number(min(gains), at_least(0.0)),
        },
        detail=f"mean PSNR of {REPORTED} test records, settings chosen on {REFERENCE} train records",
        table=rows,
    )


@check("standard_choice", rows="standard-choice", cost="long")
def choice_is_cheap(context: Context) -> Measurement:
    """What choosing costs, in processor time of adaptive(steps=1000) on 20 records, on the four opening set-ups."""
    rows = [_measured(how, context, oracle=False) for how in SET_UPS[:4]]
    return Measurement(
        {
            "greatest share": Number(max(row["choice / adaptive on 20"] for row in rows), at_most(1.0)),
            "fewest settings": Number(min(row["settings"] for row in rows), at_least(60)),
        },
        detail="processor time on one thread, tuned allocator, in one process",
        table=rows,
    )


def _choices(folder: Path) -> dict[str, bytes]:
    cells = [path.read_bytes() for path in sorted((folder / "cells").glob("*.json"))]
    return {json.loads(cell)["params"]["defense"]: cell for cell in cells if json.loads(cell)["kind"] == "tune"}


@check("standard_blind", rows="standard-blind", cost="minutes")
def blind() -> Measurement:
    """The reported records of an audit replaced by others: the cells of the choices, byte by byte."""
    dataset = lg.data.load("fashion_mnist_sample")
    reference = dataset.sample(60, seed=0, split="train")
    chosen, differ = [], []
    for seed in (1, 2):
        records = dataset.sample(8, seed=seed, split="test")
        study = Study(
            "dlg_lenet",
            records,
            reference=reference,
            defenses={"none": "identity()", "noisy": "gaussian(std=0.001)"},
            adversaries={"standard": standard(work="quick")},
            updates=8,
            leave_out=["generic"],
        )
        with tempfile.TemporaryDirectory() as folder:
            audit(study, folder, redact=True)
            chosen.append(_choices(Path(folder)))
        differ.append(records.inputs)
    same = sum(chosen[0][defense] == chosen[1][defense] for defense in chosen[0])
    return Measurement(
        {
            "choices that stay the same to the byte": Number(same, exactly(len(chosen[0]))),
            "records that differ": Number(float((differ[0] != differ[1]).flatten(1).any(1).sum()), exactly(8)),
        },
        detail="sigmoid LeNet, two defenses, 8 reported updates of Fashion-MNIST, 60 reference records",
    )


@check("standard_false_alarms", rows="standard-controls", cost="long")
def false_alarms(context: Context) -> Measurement:
    """200 audits of updates drowned in noise with standard(work="quick"), 8 updates each, level 0.05."""
    words: Counter[str] = Counter()
    for seed in range(200):
        path = context.scratch / f"{seed}.txt"
        if not path.exists():
            raw = {
                "seed": seed,
                "task": {"model": "cnn_13700", "records": 8},
                "defenses": {"drowned": "gaussian(std=100.0)"},
                "adversaries": {"standard": 'standard(work="quick")'},
                "leave_out": ["generic"],
                "verdict": {"significance": LEVEL},
            }
            with tempfile.TemporaryDirectory() as folder:
                result = audit(Study.of(of(raw), folder), Path(folder) / "run", redact=True)
            path.write_text(result.checkpoints[0].defenses[0].attack.verdict)
        words[path.read_text()] += 1
        context.say(f"{seed + 1} of 200: {dict(words)}")
    loud = sum(words[word] for word in ("detectable", "recognisable", "exact"))
    low, high = clopper_pearson(loud, 200)
    return Measurement(
        {
            "share above no evidence": Number(loud / 200, interval=(low, high)),
            "lower end of its interval": Number(low, at_most(LEVEL)),
            "share called no evidence": Number(words["no evidence"] / 200, above(0.5)),
        },
        detail=f"words: {dict(sorted(words.items()))}; the choice is made anew in each audit",
    )


@check("gauss_newton_linear", rows="gauss-newton", cost="fast")
def gauss_newton_linear() -> Measurement:
    """Five steps of Gauss-Newton on the linear client, float64: the distance from the closed-form MAP."""
    gap = attack_reaches_map(gauss_newton(steps=5), tolerance=1.0)
    return Measurement({"largest distance": Number(gap, at_most(1e-6))}, detail="Gaussian noise and prior, 3 records")


@check("gauss_newton_lenet", rows="gauss-newton", cost="long")
def gauss_newton_lenet(context: Context) -> Measurement:
    """Gauss-Newton alone on the sigmoid LeNet, 20 CIFAR-10 test images, batch 1, from grey."""
    case = Case.of(SetUp("dlg_lenet", "cifar10"), reported=20)
    attack = Adversary(l2(relative=True), solver=gauss_newton(steps=60, inner=300), start="grey")
    scores, evaluations = [], 0
    for i, one in enumerate(case.private):
        path = context.scratch / f"{i}.pt"
        if not path.exists():
            guess = attack(case.task, [one])
            torch.save({"inputs": guess.inputs, "evaluations": guess.evaluations}, path)
        made = torch.load(path, weights_only=True)
        scores.append(float(psnr(made["inputs"][0], case.reported.inputs[i : i + 1])[0]))
        evaluations += made["evaluations"]
        context.say(f"image {i}: {scores[-1]:.1f} dB")
    count = sum(score > 50 for score in scores)
    return Measurement(
        {"share above 50 dB": Number(count / 20, at_least(0.95), clopper_pearson(count, 20))},
        detail=f"{count} of 20 above 50 dB (worst {min(scores):.1f}, median {sorted(scores)[10]:.1f}), {attack!r}, "
        f"{evaluations} evaluations",
        table=[{"image": i, "PSNR dB": round(score, 1)} for i, score in enumerate(scores)],
    )


def _peer(setting: Setting, image: int, steps: int, seed: int) -> Tensor:
    """Inverting gradients with its own settings, one image: signed Adam, decayed x.1 at 3/8, 5/8 and 7/8, TV 1e-4."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(1, *setting.case.model.shape, generator=generator).requires_grad_()
    optimiser = torch.optim.Adam([x], lr=0.1)
    decay = torch.optim.lr_scheduler.MultiStepLR(optimiser, [steps * k // 8 for k in (3, 5, 7)], gamma=0.1)
    objective = Peer(setting, only_image=False).objective(image, x)
    for _ in range(steps):
        optimiser.zero_grad()
        setting.net.zero_grad()
        objective().backward()
        assert x.grad is not None
        x.grad.sign_()
        optimiser.step()
        decay.step()
        with torch.no_grad():
            x.clamp_(0, 1)
    return x.detach()


def _time_to_quality(model: str, images: int, context: Context) -> dict[str, Any]:
    path = context.scratch / f"{model}.json"
    if path.exists():
        return dict(json.loads(path.read_text()))
    prepare("tuned")
    case = Case.of(SetUp(model, "cifar10"), reported=images)
    net = case.task.model.eval()
    setting = Setting(replace(benchmark(model), problems=images), net, case.task, case.private, case.reported.labels)
    guesses, spent = _timed(lambda: torch.stack([_peer(setting, i, 1000, i) for i in range(images)]))
    quality = float(psnr(guesses[:, 0], case.reported.inputs).mean())
    context.say(f"{model}: the loop reaches {quality:.2f} dB in {spent:.0f} s")
    portfolio, ours, reached, steps = Portfolio.of(case.task, case.private), 0.0, -1e9, 0
    for steps in (10, 15, 20, 30, 40, 60, 80, 120, 160, 240, 320, 640, 1000):
        attack = portfolio.fixed(steps)[0].stages[0]
        attack = replace(attack, solver=replace(attack.solver, steps=steps))  # type: ignore[type-var]
        guess, ours = _timed(lambda one=attack: one(case.task, case.private))  # type: ignore[misc]
        reached = float(case.scores(guess).mean())
        if reached >= quality:
            break
    ratio = spent / ours if reached >= quality else 0.0
    row = {"network": model, "loop dB": round(quality, 2), "loop s": round(spent, 1), "our steps": steps}
    row |= {"our dB": round(reached, 2), "our s": round(ours, 2), "ratio": round(ratio, 1)}
    context.say(str(row))
    path.write_text(json.dumps(row))
    return row


@check("standard_time_to_quality", rows="standard-time", cost="long")
def time_to_quality(context: Context) -> Measurement:
    """Processor time until the mean PSNR that the one-image loop has after 1,000 iterations; untrained, no defense."""
    rows = [_time_to_quality(model, images, context) for model, images in TIMED.items()]
    return Measurement(
        {row["network"]: Number(row["ratio"], at_least(30)) for row in rows},
        detail="CIFAR-10 test images, both in one process on one thread under a tuned allocator; ours is the first "
        "stage of the fixed portfolio, with the fewest steps of a ladder that reach the loop's quality",
        table=rows,
    )


TIMED = {"bayes_cnn": 8, "convbig": 4, "resnet18": 2}


@check("standard_control", rows="standard-controls", cost="long")
def control(context: Context) -> Measurement:
    """The positive control of standard(work="quick") in every network, data set and stage of the strength table."""
    bare = list(dict.fromkeys(replace(how, defense="identity()") for how in SET_UPS))
    rows = []
    for how in bare:
        path = context.scratch / f"{how.name.replace(' ', '_')}.json"
        if not path.exists():
            task, dataset = how.task()
            study = Study(
                task.model,
                dataset,
                recipe=task.recipe,
                adversaries={"standard": standard(work="quick")},
                updates=REPORTED,
                leave_out=["generic"],
            )
            defense = audit(study, redact=True).checkpoints[0].defenses[0]
            path.write_text(json.dumps({"set-up": how.name, "verdict": defense.attack.verdict, "p": defense.attack.p}))
        rows.append(json.loads(path.read_text()))
        context.say(str(rows[-1]))
    working = sum(row["p"] is not None and row["p"] <= LEVEL for row in rows)
    return Measurement(
        {"set-ups in which the control works": Number(working, exactly(len(rows)))},
        detail=f"{REPORTED} updates each, without a defense, level {LEVEL}",
        table=rows,
    )
