"""Exact recovery of batches: peeling, the exposure check, sparse directions, and what an audit makes of them.

Networks and batches are drawn from seeds that nothing was tuned on. A record counts as recovered if it is certified and
no pixel is further off than the row allows; a certificate for anything else is a false one. Seconds are those of the
processor, on one thread: the machine may be busy.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import mean, median

import torch
from torch import nn

import leakgauge as lg
from evidence import Context, Measurement, Number, at_least, below, check, exactly
from leakgauge.attacks import recover
from leakgauge.attacks.exposure import peelable
from leakgauge.attacks.recovering import Methods, Recovery, first_layer
from leakgauge.audit import audit
from leakgauge.preflight import preflight
from leakgauge.study import Study
from leakgauge.training import accuracy, train

FIRST_SEED = 1000
PIXEL = {torch.float64: 1e-6, torch.float32: 1e-3}


@dataclass(frozen=True)
class _Outcome:
    """One batch: records recovered, certificates that are false, labels that are right, the largest error."""

    right: int
    false: int
    labels: float
    error: float
    seconds: float
    complete: bool
    batch: int

    @property
    def recall(self) -> float:
        return self.right / self.batch


def _task(data: lg.data.Dataset, model: nn.Module | str, batch: int, dtype: torch.dtype, seed: int) -> lg.Task:
    built = lg.models.build(model, data.domain, seed=seed) if isinstance(model, str) else model
    return lg.Task(built.to(dtype), data.domain, lg.Recipe(batch=batch))


def _records(data: lg.data.Dataset, batch: int, dtype: torch.dtype, seed: int) -> lg.Records:
    drawn = data.sample(batch, seed=seed, split="test")
    return lg.Records(drawn.inputs.to(dtype), drawn.labels, drawn.domain)


def _recovered(task: lg.Task, records: lg.Records, methods: Methods = "both") -> tuple[_Outcome, Recovery]:
    """Labels and the batch are the adversary's to find; only here is the answer compared with the records."""
    (observation,) = lg.observe(task, records, threat=lg.Threat(labels="inferred"))
    start = time.process_time()
    recovery = recover(task, observation, methods=methods)
    spent = time.process_time() - start
    inputs, truth = recovery.inputs.flatten(1).double(), records.inputs.flatten(1).double()
    gaps = (inputs.unsqueeze(1) - truth).abs().amax(-1) if len(inputs) else torch.zeros(0, len(truth))
    allowed = PIXEL[records.inputs.dtype]
    near = gaps.argmin(1) if len(inputs) else torch.zeros(0, dtype=torch.long)
    good = gaps.amin(1) < allowed if len(inputs) else torch.zeros(0, dtype=torch.bool)
    right = len(set(near[good].tolist()))
    agree = float((recovery.labels[good] == records.labels[near[good]]).double().mean()) if right else 1.0
    error = float(gaps.amin(1)[good].max()) if right else 0.0
    outcome = _Outcome(right, int((~good).sum()), agree, error, spent, recovery.complete, len(records))
    return outcome, recovery


def _row(name: str, outcomes: list[_Outcome]) -> dict[str, object]:
    return {
        "setting": name,
        "batches": len(outcomes),
        "mean recall": round(mean(o.recall for o in outcomes), 4),
        "least recall": round(min(o.recall for o in outcomes), 4),
        "whole batches certified": sum(o.complete for o in outcomes),
        "false certificates": sum(o.false for o in outcomes),
        "labels right": round(min(o.labels for o in outcomes), 4),
        "largest error": f"{max(o.error for o in outcomes):.1e}",
        "slowest (s)": round(max(o.seconds for o in outcomes), 1),
    }


def _numbers(outcomes: dict[str, list[_Outcome]], recall: float, seconds: float) -> dict[str, Number]:
    every = [o for some in outcomes.values() for o in some]
    means = {name: mean(o.recall for o in some) for name, some in outcomes.items()}
    return {
        **{f"recall, {name}": Number(value, at_least(recall)) for name, value in means.items()},
        "labels right": Number(min(o.labels for o in every), exactly(1.0)),
        "false certificates": Number(sum(o.false for o in every), exactly(0)),
        "slowest batch in seconds": Number(max(o.seconds for o in every), below(seconds)),
    }


@check("peeling_untrained", rows="peeling", cost="minutes")
def peeling_untrained(context: Context) -> Measurement:
    """MNIST, 784-1000-10 ReLU, default initialisation, labels hidden: B = 16 and 32 in float64, 16 in float32."""
    data, outcomes = lg.data.load("mnist"), dict[str, list[_Outcome]]()
    for name, batch, dtype in (("B = 16", 16, torch.float64), ("B = 32", 32, torch.float64)):
        context.say(name)
        outcomes[name] = [_mnist(data, batch, dtype, FIRST_SEED + seed) for seed in range(5)]
    context.say("float32")
    single = [_mnist(data, 16, torch.float32, FIRST_SEED + seed) for seed in range(5)]
    largest = max(o.error for some in outcomes.values() for o in some)
    return Measurement(
        {
            **_numbers({**outcomes, "B = 16, float32": single}, 0.99, 30),
            "largest pixel error, float64": Number(largest, below(1e-6)),
        },
        detail="5 networks and batches each; peeling alone, no sparse directions",
        table=[_row(name, some) for name, some in {**outcomes, "B = 16, float32": single}.items()],
    )


def _mnist(data: lg.data.Dataset, batch: int, dtype: torch.dtype, seed: int) -> _Outcome:
    task = _task(data, "mlp(width=1000, depth=1)", batch, dtype, seed)
    return _recovered(task, _records(data, batch, dtype, seed), methods="peeling")[0]


@check("peeling_certificates", rows="peeling", cost="minutes")
def peeling_certificates(context: Context) -> Measurement:
    """False certificates over 50 other batches of MNIST: B = 32 and 64 in float64, 16 in float32."""
    data, outcomes = lg.data.load("mnist"), dict[str, list[_Outcome]]()
    settings = ((32, torch.float64, 25), (16, torch.float32, 15), (64, torch.float64, 10))
    for batch, dtype, count in settings:
        name = f"B = {batch}, {str(dtype).removeprefix('torch.')}"
        context.say(name)
        outcomes[name] = [_mnist(data, batch, dtype, FIRST_SEED + 100 + seed) for seed in range(count)]
    every = [o for some in outcomes.values() for o in some]
    return Measurement(
        {
            "batches": Number(len(every), at_least(50)),
            "certificates": Number(sum(o.right + o.false for o in every), at_least(1)),
            "false certificates": Number(sum(o.false for o in every), exactly(0)),
        },
        detail="a certificate is false if no record of the batch lies within 1e-6 (float32: 1e-3) in every pixel",
        table=[_row(name, some) for name, some in outcomes.items()],
    )


@check("peeling_trained", rows="peeling", cost="minutes")
def peeling_trained(context: Context) -> Measurement:
    """The same network trained to 90 %, float64, 5 batches each: recall at 8 and 16 (bar), at 32 and 64 (measured)."""
    data, seeds = lg.data.load("mnist"), range(FIRST_SEED, FIRST_SEED + 5)
    task = _task(data, "mlp(width=1000, depth=1)", 8, torch.float32, FIRST_SEED)
    *_, checkpoint = train(task, data.sample(10_000, seed=FIRST_SEED, split="train"), steps=600, keep=(600,))
    trained = task.at(checkpoint.state)
    reached = accuracy(trained, data.sample(2000, seed=FIRST_SEED, split="test"))
    context.say(f"accuracy {reached:.3f}")
    outcomes = {
        f"B = {batch}": [
            _recovered(
                _task(data, trained.model, batch, torch.float64, seed),
                _records(data, batch, torch.float64, seed),
                methods="peeling",
            )[0]
            for seed in seeds
        ]
        for batch in (8, 16, 32, 64)
    }
    bars = {"B = 8": at_least(0.95), "B = 16": at_least(0.95)}
    every = [o for some in outcomes.values() for o in some]
    return Measurement(
        {
            "test accuracy": Number(reached, at_least(0.90)),
            **{f"recall, {n}": Number(mean(o.recall for o in some), bars.get(n)) for n, some in outcomes.items()},
            "labels right": Number(min(o.labels for o in every), exactly(1.0)),
            "false certificates": Number(sum(o.false for o in every), exactly(0)),
        },
        detail="peeling alone, no sparse directions; SGD, 600 steps on 10,000 train records",
        table=[_row(name, some) for name, some in outcomes.items()],
    )


@check("exposure_check", rows="exposure-check", cost="minutes")
def exposure_check(context: Context) -> Measurement:
    """Records that the exposure check predicts against those that peeling takes, over 20 batches; its time."""
    data, table = lg.data.load("mnist"), []
    for number, batch in enumerate([16] * 5 + [32] * 5 + [48] * 5 + [64] * 5):
        seed = FIRST_SEED + 300 + number
        task = _task(data, "mlp(width=1000, depth=1)", batch, torch.float64, seed)
        records = _records(data, batch, torch.float64, seed)
        predicted = sum(lg.exposure(task, records).exposed)
        outcome, _ = _recovered(task, records, methods="peeling")
        table.append({"batch": batch, "predicted": predicted, "recovered": outcome.right})
        context.say(f"{number + 1} of 20: {predicted} predicted, {outcome.right} recovered")
    near = sum(abs(int(row["predicted"]) - int(row["recovered"])) <= 1 for row in table)
    step, watched, alone = _times(data)
    return Measurement(
        {
            "batches predicted within one record": Number(near, exactly(20)),
            "time beside a training step": Number(watched / step, below(0.05)),
            "with a forward pass of its own": Number(alone / step),
        },
        detail=f"784-1000-10; times at batch 32, float32, one thread: a step of SGD takes {1e3 * step:.2f} ms, the "
        f"exposure {1e3 * watched:.3f} ms off the step's own forward pass, {1e3 * alone:.2f} ms with another",
        table=table,
    )


def _times(data: lg.data.Dataset, repeats: int = 300) -> tuple[float, float, float]:
    """Median seconds of a training step, of the exposure inside its forward pass, and of one with its own pass."""
    task = _task(data, "mlp(width=1000, depth=1)", 32, torch.float32, FIRST_SEED)
    records, model = _records(data, 32, torch.float32, FIRST_SEED), task.model
    # so small a rate leaves the network as it was drawn: 300 steps on one batch would change what is peeled
    optimiser, loss = torch.optim.SGD(model.parameters(), lr=1e-6), nn.CrossEntropyLoss()
    layer, bare, inside, alone = first_layer(task), list[float](), list[float](), list[float]()

    def step() -> None:
        optimiser.zero_grad()
        loss(model(records.inputs), records.labels).backward()
        optimiser.step()

    def watched(module: nn.Module, args: object, before: torch.Tensor) -> None:
        """What Watch does in its hook, timed."""
        inside.append(_seconds(lambda: peelable(before)))

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for _ in range(repeats):  # in turn: what else the machine does slows all three
            bare.append(_seconds(step))
            hook = model.get_submodule("linear1").register_forward_hook(watched)
            step()
            hook.remove()
            alone.append(_seconds(lambda: lg.exposure(task, records, layer=layer)))
    finally:
        torch.set_num_threads(threads)
    return median(bare), median(inside), median(alone)


def _seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


@check("sparse_directions", rows="sparse-directions", cost="minutes")
def sparse_directions(context: Context) -> Measurement:
    """MNIST in float64, three linear layers, without peeling first: batches of 8, 10, 16 and 24."""
    data, numbers, table = lg.data.load("mnist"), dict[str, Number](), []
    for batch, width, repeats, seconds in ((8, 200, 5, 10), (10, 200, 5, 10), (16, 400, 2, 60), (24, 1000, 1, 90)):
        context.say(f"B = {batch}")
        outcomes = []
        for seed in range(FIRST_SEED, FIRST_SEED + repeats):
            task = _task(data, f"mlp(width={width}, depth=2)", batch, torch.float64, seed)
            outcomes.append(_recovered(task, _records(data, batch, torch.float64, seed), "sparse")[0])
        name = f"B = {batch}, width {width}"
        exact = sum(o.complete and o.right == batch and o.error < 1e-8 for o in outcomes)
        numbers[f"exact, {name}"] = Number(exact, exactly(repeats))
        numbers[f"slowest, {name}"] = Number(max(o.seconds for o in outcomes), below(seconds))
        table.append(_row(name, outcomes))
    return Measurement(
        numbers, detail="seconds on this machine; the batch counts if every pixel is within 1e-8", table=table
    )


@check("exact_table", rows="sparse-directions", cost="minutes")
def exact_table(context: Context) -> Measurement:
    """Standardised rows of breast cancer, 100-100-2 ReLU, float64, B = 12: all methods, and peeling alone."""
    data, table = lg.data.load("breast_cancer"), []
    for seed in range(FIRST_SEED, FIRST_SEED + 5):
        task, records = (
            _task(data, "mlp(width=100, depth=2)", 12, torch.float64, seed),
            _records(data, 12, torch.float64, seed),
        )
        peeled, _ = _recovered(task, records, "peeling")
        both, recovery = _recovered(task, records)
        context.say(f"seed {seed}: {both.right} of 12, by peeling alone {peeled.right}, {both.seconds:.1f} s")
        table.append(
            {
                "seed": seed,
                "exact": both.right if both.error < 1e-8 else 0,
                "by peeling alone": peeled.right,
                "false certificates": both.false + peeled.false,
                "by sparse directions": recovery.methods.count("sparse directions"),
                "seconds": round(both.seconds, 1),
            }
        )
    none = [row for row in table if row["by peeling alone"] == 0]
    return Measurement(
        {
            "batches with all rows exact": Number(sum(row["exact"] == 12 for row in table), exactly(5)),
            "batches where peeling finds none": Number(len(none), at_least(1)),
            "of these, with all rows exact": Number(sum(row["exact"] == 12 for row in none), exactly(len(none))),
            "false certificates": Number(sum(int(row["false certificates"]) for row in table), exactly(0)),
        },
        detail="5 networks and batches, error below 1e-8 in every column",
        table=table,
    )


SPEC = """
[task]
model = "mlp(width=256, depth=1)"
data = "fashion_mnist_sample"
records = 7
[task.recipe]
batch = 8
[defenses]
none = "identity()"
clipped = "clip(norm=1.0)"
noisy = "gaussian(std=0.01)"
"""


@check("exact_audit", rows="exact-audit", cost="minutes")
def exact_audit(context: Context) -> Measurement:
    """A 784-256-10 ReLU MLP, batches of 8, default adversaries: what preflight says before, and the audit's words."""
    path = context.scratch / "exact.toml"
    path.write_text(SPEC)
    study = Study.load(path)
    before = [leak for leak in preflight(study.task, study.records) if leak.name == "exact recovery"]
    result = audit(study, context.scratch / "run")
    words = {name: defense.verdict for name, defense in result.defenses.items()}
    says = [line for line in result.ledger if "exact recovery does not apply" in line.assumes]
    return Measurement(
        {
            "preflight says exact": Number(sum(leak.severity == "exact" for leak in before), exactly(1)),
            "exact without a defense": Number(int(words["none"] == "exact"), exactly(1)),
            "exact under clipping": Number(int(words["clipped"] == "exact"), exactly(1)),
            "exact under noise": Number(int(words["noisy"] == "exact"), exactly(0)),
            "lines of the ledger that say it does not apply": Number(
                sum("noisy" in line.number for line in says), at_least(1)
            ),
            "that say so of another defense": Number(sum("noisy" not in line.number for line in says), exactly(0)),
        },
        detail="; ".join([*(leak.sentence for leak in before), *(f"{name}: {word}" for name, word in words.items())]),
        table=[{"number": line.number, "assumes": line.assumes} for line in says],
    )
