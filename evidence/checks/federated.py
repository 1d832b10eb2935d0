"""Federated training and sums: FedAvg against central SGD, the LRP paper's tables, secure sums."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from itertools import product
from statistics import mean, stdev
from typing import Any

import numpy as np
import torch
from scipy import stats
from torch import Tensor
from torch.func import functional_call, vmap

import leakgauge as lg
from evidence import Context, Measurement, Number, above, at_least, at_most, below, check, exactly, numbers
from leakgauge.client import update_of
from leakgauge.errors import LeakgaugeError
from leakgauge.fl import DroppedError, Federation, SecureSums, Totals, federate, shards, work
from leakgauge.fl.aggregate import mean as mean_of
from leakgauge.fl.engine import Job, batches
from leakgauge.fl.secure_sum import Identity, Member, Session
from leakgauge.seeds import seed_of
from leakgauge.training import train
from leakgauge.updates import trees


def _stored(context: Context, name: str, compute: Callable[[], Any]) -> Any:
    """Plain JSON values, computed once: an interrupted check goes on where it was."""
    path = context.scratch / f"{name}.json"
    if not path.exists():
        path.write_text(json.dumps(compute()))
    return json.loads(path.read_text())


# --- FedAvg


@check("fedavg", rows="fedavg", cost="fast")
def fedavg() -> Measurement:
    """One full-batch step of every client against central SGD, and the mean of a round by hand, float64."""
    sample = lg.data.load("fashion_mnist_sample")
    task = lg.Task(lg.models.build("mlp(width=20, depth=1)", sample.domain), sample.domain).to(dtype=torch.float64)
    records = sample.sample(60, seed=0)
    clients = [records[:6], records[6:18], records[18:40], records[40:]]
    central = train(task, records, steps=5, batch=60, learning_rate=0.1, momentum=0.0, weight_decay=0.0)[-1]
    gaps = {}
    for scheme in ("I", "II"):
        how = Federation(rounds=5, steps=1, minibatch=None, learning_rate=0.1, scheme=scheme)  # type: ignore[arg-type]
        after = federate(task, clients, how).state
        gaps[f"scheme {scheme}"] = max(float((after[n] - p).abs().max()) for n, p in central.state.items())
    params, weights = task.params, {k: float(len(own)) for k, own in enumerate(clients)}
    recipe = lg.Recipe(batch=12, minibatch=4, local_steps=3, shares="change")
    local = lg.Task(task.model, task.domain, recipe)
    changes = {k: work(Job(k, local, own, params, (0, 0, k), 0.1)).change for k, own in enumerate(clients)}
    averaged = mean_of(changes, weights)
    exact = {n: sum(weights[k] * changes[k][n] for k in changes) / 60 for n in params}
    off = max(float((averaged[n] - value).abs().max()) for n, value in exact.items())
    return Measurement(
        numbers(gaps, bars=at_most(1e-6)) | {"largest error of the weighted mean": Number(off, at_most(1e-15))},
        detail="largest difference of a weight after 5 rounds, E = 1, 4 clients of 6 to 22 records, all of them in "
        "every round, full batches; in-process engine",
    )


# --- LRP paper, Table 1

RATES = (0.005, 0.01, 0.02)
SETTINGS = [(one, other, perturbed) for perturbed in (False, True) for one, other in product(RATES, RATES)]
SEEDS = (1024, 1022, 1020)
PAPER_1 = {
    "logistic": (86.84, 87.14, 87.24, 86.26, 86.78, 86.88, 85.48, 86.29, 86.46),
    "mlp": (87.18, 88.59, 89.18, 86.35, 88.16, 89.02, 85.46, 87.67, 88.63),
    "cnn": (87.97, 92.00, 94.39, 86.91, 91.32, 93.95, 85.53, 90.34, 93.59),
}
"""Table 1 without perturbation, in percent, in the order of ``product(RATES, RATES)``."""
PAPER_1_PERTURBED = {
    "logistic": (86.84, 87.14, 87.22, 86.21, 86.78, 86.83, 85.35, 86.14, 86.46),
    "mlp": (87.22, 88.62, 89.18, 86.44, 88.08, 88.84, 85.50, 87.61, 88.50),
    "cnn": (88.36, 92.10, 94.21, 87.07, 91.55, 93.96, 85.97, 90.98, 93.56),
}
NETWORKS = {"logistic": "logistic", "mlp": "mlp(width=200, depth=1)", "cnn": "cnn_13700"}


def _two_clients(train_set: lg.Records, seed: int) -> list[lg.Records]:
    """Four shards of 100 of each of the first two labels; one of each of the other eight."""
    generator = torch.Generator().manual_seed(seed)
    rows: tuple[list[Tensor], list[Tensor]] = ([], [])
    for label in range(10):
        (members,) = (train_set.labels == label).nonzero(as_tuple=True)
        few = members[: len(members) // 100 * 100].view(-1, 100)
        chosen = few[torch.randperm(len(few), generator=generator)[: 4 if label < 2 else 1]]
        rows[0 if label < 2 else 1].append(chosen.flatten())
    return [train_set[torch.cat(own)] for own in rows]


def _lockstep(name: str, rounds: int, steps: int, size: int, settings: list[tuple[float, float, bool]]) -> Any:
    """All settings and seeds at once: the one client function, vmapped over trainings. Accuracy by setting and seed."""
    mnist = lg.data.load("mnist")
    own = [_two_clients(mnist.train, seed) for seed in SEEDS]
    recipe = lg.Recipe(batch=steps * size, minibatch=size, local_steps=steps, shares="change")
    tasks = [lg.Task(lg.models.build(name, mnist.domain, seed=s), mnist.domain, recipe) for s in SEEDS]
    cases = list(product(range(len(SEEDS)), settings))
    params = {n: torch.stack([tasks[s].params[n] for s, _ in cases]) for n in tasks[0].params}
    task = tasks[0]

    def client(theta: dict[str, Tensor], x: Tensor, y: Tensor, rates: Tensor) -> dict[str, Tensor]:
        drawn = task.drawn({})
        return update_of(task.working, theta, task.buffers, x, y, recipe, type(drawn)(rates, drawn.buffers))

    for number in range(rounds):
        changes = []
        for k in (0, 1):
            rows = [batches(800, size, steps, (s, number, k)).flatten() for s in SEEDS]
            inputs = torch.stack([own[s][k].inputs[rows[s]] for s, _ in cases])
            labels = torch.stack([own[s][k].labels[rows[s]] for s, _ in cases])
            rates = torch.stack([_rates(setting, k, steps, (SEEDS[s], number, k)) for s, setting in cases])
            changes.append(vmap(client)(params, inputs, labels, rates))
        params = trees.mapped(lambda p, a, b: p + (a + b) / 2, params, *changes)
    right = torch.zeros(len(cases))
    test = mnist.test
    for start in range(0, len(test), 500):
        few = test[start : start + 500]
        outputs = vmap(lambda p, x=few.inputs: functional_call(task.working, (p, task.buffers), (x,)))(params)
        right += (outputs.argmax(-1) == few.labels).float().sum(1)
    scores = (right / len(test)).tolist()
    return [[scores[i] for i, (_, one) in enumerate(cases) if one == setting] for setting in settings]


def _rates(setting: tuple[float, float, bool], k: int, steps: int, key: tuple[int, int, int]) -> Tensor:
    nominal, perturbed = setting[k], setting[2]
    if not perturbed:
        return torch.full((steps,), nominal)
    generator = torch.Generator().manual_seed(seed_of(*key, 3))
    return nominal * lg.defenses.lrp().law.sample((steps,), generator=generator)


def _table_1(context: Context, network: str, rounds: int = 100, steps: int = 50) -> Measurement:
    name = NETWORKS[network]
    scores = _stored(context, f"{network}-{rounds}-{steps}", lambda: _lockstep(name, rounds, steps, 32, SETTINGS))
    means = {setting: 100 * mean(accuracies) for setting, accuracies in zip(SETTINGS, scores, strict=True)}
    plain = {(a, b): value for (a, b, perturbed), value in means.items() if not perturbed}
    moved = {(a, b): value for (a, b, perturbed), value in means.items() if perturbed}
    papers = zip(plain, PAPER_1[network], PAPER_1_PERTURBED[network], strict=True)
    order = sorted(plain, key=plain.__getitem__)
    spread = {s: 100 * stdev(a) for s, a in zip(SETTINGS, scores, strict=True)}
    return Measurement(
        {
            "rank of (0.005, 0.02), 1 is best": Number(9 - order.index((0.005, 0.02)), exactly(1)),
            "rank of (0.02, 0.005), 9 is worst": Number(9 - order.index((0.02, 0.005)), exactly(9)),
            "perturbation changes a mean by at most": Number(
                round(max(abs(moved[s] - plain[s]) for s in plain), 3), below(0.5)
            ),
            "on average by": Number(round(mean(moved[s] - plain[s] for s in plain), 3)),
        },
        detail=f"test accuracy in percent points; two clients of 800 MNIST images, {rounds} rounds of {steps} steps on "
        f"batches of 32, three seeds, {name}; the paper names neither its steps and batches here nor its widths",
        table=[
            {
                "η₁, η₂": f"{a}, {b}",
                "ours": f"{plain[a, b]:.2f} ± {spread[a, b, False]:.2f}",
                "paper": f"{theirs:.2f}",
                "ours, perturbed": f"{moved[a, b]:.2f} ± {spread[a, b, True]:.2f}",
                "paper, perturbed": f"{perturbed:.2f}",
            }
            for (a, b), theirs, perturbed in papers
        ],
    )


@check("lrp_table_1_logistic", rows="lrp-table-1", cost="minutes")
def lrp_table_1_logistic(context: Context) -> Measurement:
    """Logistic regression, nine pairs of rates with and without perturbation."""
    return _table_1(context, "logistic")


@check("lrp_table_1_mlp", rows="lrp-table-1", cost="long")
def lrp_table_1_mlp(context: Context) -> Measurement:
    """The MLP, nine pairs of rates with and without perturbation."""
    return _table_1(context, "mlp")


@check("lrp_table_1_cnn", rows="lrp-table-1", cost="long")
def lrp_table_1_cnn(context: Context) -> Measurement:
    """A small CNN, nine pairs of rates with and without perturbation."""
    return _table_1(context, "cnn")


@check("lockstep", rows="lrp-table-1", cost="fast")
def lockstep() -> Measurement:
    """Table 1 trains all settings at once, for speed: two rounds of it against federate(), one setting, one seed."""
    ours = _lockstep("logistic", 2, 5, 32, [(0.005, 0.02, False)])[0][0]
    mnist = lg.data.load("mnist")
    clients = _two_clients(mnist.train, SEEDS[0])
    task = lg.Task(lg.models.build("logistic", mnist.domain, seed=SEEDS[0]), mnist.domain)
    params = dict(task.params)
    recipe = lg.Recipe(batch=160, minibatch=32, local_steps=5, shares="change")
    local = lg.Task(task.model, task.domain, recipe)
    for number in range(2):
        jobs = [Job(k, local, clients[k], params, (SEEDS[0], number, k), rate) for k, rate in enumerate((0.005, 0.02))]
        change = mean_of({job.client: work(job).change for job in jobs}, {0: 1.0, 1: 1.0})
        params = trees.mapped(lambda p, c: (p.double() + c).float(), params, change)
    theirs = lg.training.accuracy(task.at(params), mnist.test)
    return Measurement(
        {"difference of accuracies": Number(abs(ours - theirs), at_most(2e-4))},
        detail="at most two of 10,000 images may be decided by rounding",
    )


# --- LRP paper, Table 2

ARMS: Mapping[str, tuple[str, str]] = {
    "vanilla, scheme I": ("identity()", "I"),
    "vanilla, scheme II": ("identity()", "II"),
    "LRP": ("lrp()", "I"),
    "ada-LRP": ("ada_lrp(zeta=0.16666666666666666)", "I"),
}
PAPER_2 = {"vanilla, scheme I": 98.84, "vanilla, scheme II": 98.36, "LRP": 98.90, "ada-LRP": 98.97}


def _table_2(context: Context, rounds: int, model: str) -> Measurement:
    def trained(arm: str, seed: int) -> dict[str, Any]:
        mnist = lg.data.load("mnist")
        defense, scheme = ARMS[arm]
        task = lg.Task(lg.models.build(model, mnist.domain, seed=seed), mnist.domain).protect(defense)
        how = Federation(
            rounds=rounds,
            per_round=10,
            steps=50,
            minibatch=32,
            decay="cosine",
            scheme=scheme,  # type: ignore[arg-type]
        )
        clients = [own[: len(own) * 4 // 5] for own in shards(clients=100, size=200)(mnist.train, seed=seed)]
        history = federate(task, clients, how, test=mnist.test, every=10, seed=seed)
        return {str(number): value for number, value in history.accuracies.items()}

    table, means = [], {}
    for arm in ARMS:
        runs = [_stored(context, f"{arm}-{seed}-{rounds}", lambda a=arm, s=seed: trained(a, s)) for seed in SEEDS]
        last = [100 * run[str(rounds)] for run in runs]
        means[arm] = mean(last)
        table.append({"": arm, "ours": f"{mean(last):.2f} ± {stdev(last):.2f}", "paper": PAPER_2[arm]})
        context.say(f"{arm}: {table[-1]}")
    best = max(means["vanilla, scheme I"], means["vanilla, scheme II"])
    return Measurement(
        numbers({f"accuracy, {arm}": round(value, 3) for arm, value in means.items()})
        | {
            "LRP below the better vanilla training": Number(round(best - means["LRP"], 3), below(0.5)),
            "ada-LRP below the better vanilla training": Number(round(best - means["ada-LRP"], 3), below(0.5)),
        },
        detail=f"test accuracy in percent; MNIST, 100 clients with 1 to 9 shards of 200 (a fifth held back), 10 per "
        f"round, 50 steps on batches of 32, rate 0.01 with a cosine, {rounds} rounds (the paper's number is in its "
        f"appendix), {model}, seeds {SEEDS}; n_k and |Y_k| by secure sums",
        table=table,
    )


@check("lrp_table_2", rows="lrp-table-2", cost="long")
def lrp_table_2(context: Context) -> Measurement:
    """A small CNN over 100 clients: vanilla by both schemes, LRP and ada-LRP."""
    return _table_2(context, rounds=100, model="cnn_13700")


# --- secure sums


@check("secure_sum_exact", rows="secure-sum", cost="minutes")
def secure_sum_exact(context: Context) -> Measurement:
    """100 clients once, then 10,000 random runs of 3 to 6 clients, every tenth of which loses one."""
    generator = np.random.default_rng(0)
    names = [f"client {i}" for i in range(100)]
    values = {name: [int(v) for v in generator.integers(0, 2**40, 2)] for name in names}
    hundred = SecureSums(names, "hundred").attempt(values, "counts")
    off = max(abs(a - sum(v[i] for v in values.values())) for i, a in enumerate(hundred))
    wrong, dropped, silent = 0, 0, 0
    for run in range(10_000):
        some = [str(i) for i in range(int(generator.integers(3, 7)))]
        own = {name: [int(generator.integers(0, 2**60))] for name in some}
        sums = SecureSums(some, str(run))
        absent = [some[int(generator.integers(len(some)))]] if run % 10 == 0 else []
        try:
            (result,) = sums.attempt(own, "counts", absent)
            wrong += result != sum(v for (v,) in own.values())
            silent += bool(absent)
        except DroppedError:
            dropped += 1
        if (run + 1) % 2000 == 0:
            context.say(f"{run + 1} runs, {wrong} wrong, {dropped} dropped")
    return Measurement(
        {
            "error of the sum of 100 clients": Number(off, exactly(0)),
            "random runs": Number(10_000, at_least(10_000)),
            "wrong sums": Number(wrong, exactly(0)),
            "runs that lost a client and said so": Number(dropped, exactly(1000)),
            "sums in spite of a lost client": Number(silent, exactly(0)),
        },
        detail="X25519, HKDF-SHA256, ChaCha20 modulo 2^64, keys signed with Ed25519, new in every run",
    )


@check("secure_sum_view", rows="secure-sum", cost="fast")
def secure_sum_view() -> Measurement:
    """What the server sees of one client that adds 0: bytes of 200,000 words; and of many sessions, one word each."""
    names = ("a", "b", "c")
    sums = SecureSums(names, "view")
    sums.attempt({name: [0] * 200_000 for name in names}, "zeros")
    counts = np.bincount(np.frombuffer(sums.masked["a"].tobytes(), dtype=np.uint8), minlength=256)
    words = []
    for _ in range(2000):
        sums.attempt({name: [7] for name in names}, "sevens")
        words.append(int(sums.masked["a"][0]) / 2**64)
    return Measurement(
        {
            "p-value, bytes of one session": Number(float(stats.chisquare(counts).pvalue), above(0.001)),
            "p-value, words of 2,000 sessions": Number(float(stats.kstest(words, "uniform").pvalue), above(0.001)),
        },
        detail="χ² over 256 bytes; Kolmogorov-Smirnov over [0, 1); keys are new in every run of this check",
    )


@check("secure_sum_refusals", rows="secure-sum", cost="fast")
def secure_sum_refusals() -> Measurement:
    """Everything that would give a value away, or a wrong sum: each must end in an error."""
    names = ("a", "b", "c", "d")
    values = {name: [1] for name in names}

    def run() -> SecureSums:
        return SecureSums(names, "refusals")

    def forged() -> None:
        sums, session = run(), Session("refusals", "counts", names)
        announced = [sums.members[name].announce(session) for name in names]
        announced[1] = Member(Identity.new("b"), sums.directory).announce(session)
        sums.members["a"].mask(session, announced, [1])

    def swapped() -> None:
        sums, session = run(), Session("refusals", "counts", names)
        one, two, *rest = (sums.members[name].announce(session) for name in names)
        exchanged = [type(one)("a", two.key, two.signature), type(one)("b", one.key, one.signature), *rest]
        sums.members["c"].mask(session, exchanged, [1])

    def differing() -> None:
        sums = run()
        sums.attempt(values, "counts")
        sums.attempt({name: [1] for name in names[:3]}, "counts")

    def twice() -> None:
        sums, session = run(), Session("refusals", "counts", names)
        announced = [sums.members[name].announce(session) for name in names]
        for number in (1, 2):
            sums.members["a"].mask(session, announced, [number])

    cases: dict[str, Callable[[], object]] = {
        "a dropped client": lambda: run().attempt(values, "counts", ["d"]),
        "wrong keys": forged,
        "swapped ids": swapped,
        "two clients": lambda: SecureSums(names[:2], "two").attempt({n: [1] for n in names[:2]}, "counts"),
        "a cohort that differs by one": differing,
        "one mask for two values": twice,
        "a value that could overflow": lambda: run().attempt({**values, "a": [2**63]}, "counts"),
        "totals of two clients": lambda: Totals.secure([lg.data.load("fashion_mnist_sample").sample(2)] * 2),
    }
    refused = {}
    for what, call in cases.items():
        try:
            call()
            refused[what] = ""
        except LeakgaugeError as fault:
            refused[what] = str(fault)
    return Measurement(
        {"cases": Number(len(cases)), "refused": Number(sum(map(bool, refused.values())), exactly(len(cases)))},
        table=[{"case": what, "says": says or "nothing"} for what, says in refused.items()],
    )
