"""Federated training and sums: FedAvg against central SGD, the LRP paper's tables, secure sums."""

from __future__ import annotations

from collections.abc import Callable
from statistics import mean

import numpy as np
import torch
from scipy import stats

import leakgauge as lg
from evidence import Context, Measurement, Number, above, at_least, at_most, below, check, exactly, numbers
from evidence.reproduced import beside, numbers_of, reproduced
from leakgauge.errors import LeakgaugeError
from leakgauge.fl import DroppedError, Federation, SecureSums, Totals, federate, work
from leakgauge.fl.aggregate import mean as mean_of
from leakgauge.fl.engine import Job
from leakgauge.fl.secure_sum import Identity, Member, Session
from leakgauge.papers.lrp.table_1 import NETWORKS, WORK
from leakgauge.papers.lrp.table_1 import TABLES as TABLE_1
from leakgauge.papers.lrp.table_2 import ARMS
from leakgauge.papers.lrp.table_2 import TABLES as TABLE_2
from leakgauge.papers.lrp.two_clients import SEEDS, accuracies, two_clients
from leakgauge.training import train
from leakgauge.updates import trees

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


def _table_1(context: Context, network: str) -> Measurement:
    units = [unit for unit, values in WORK.items() if values["network"] == network]
    outcome = reproduced(TABLE_1, "lrp/table-1", context, scale="full", only=units)
    figures = numbers_of(outcome)
    means = {name: mean(values) for name, values in outcome.samples.items() if name.startswith(f"{network}, ")}
    moves = [means[f"{name}, perturbed"] - plain for name, plain in means.items() if f"{name}, perturbed" in means]
    best, worst, change = (
        figures[f"{network}: {what}"].value
        for what in ("rank of 0.005, 0.02", "rank of 0.02, 0.005", "perturbation changes a mean by")
    )
    return Measurement(
        {
            "rank of (0.005, 0.02), 1 is best": Number(best, exactly(1)),
            "rank of (0.02, 0.005), 9 is worst": Number(worst, exactly(9)),
            "perturbation changes a mean by at most": Number(change, below(0.5)),
            "on average by": Number(round(mean(moves), 3)),
        },
        detail="test accuracy in percent points; two clients of 800 MNIST images, 100 rounds of 50 steps on batches of "
        f"32, three seeds, {NETWORKS[network]}; the paper names neither its steps and "
        "batches here nor its widths",
        table=[row for row in beside(outcome) if row["cell"].startswith(network)],
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
    """LeNet-5, nine pairs of rates with and without perturbation."""
    return _table_1(context, "cnn")


@check("lockstep", rows="lrp-table-1", cost="fast")
def lockstep() -> Measurement:
    """Table 1 trains the settings of a seed at once: two rounds against federate(), one setting, one seed."""
    ours = accuracies("logistic", [(0.005, 0.02, False)], rounds=2, steps=5)[0][0]
    mnist = lg.data.load("mnist")
    clients = two_clients(mnist.train, SEEDS[0])
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


@check("lrp_table_2", rows="lrp-table-2", cost="long")
def lrp_table_2(context: Context) -> Measurement:
    """LeNet-5 over 100 clients: vanilla by both schemes, LRP and ada-LRP."""
    arms = [arm for arm in ARMS if not arm.startswith("IID")]
    units = [f"{arm}, seed {seed}" for arm in arms for seed in SEEDS]
    outcome = reproduced(TABLE_2, "lrp/table-2", context, scale="full", only=units)
    means = {arm: mean(outcome.samples[arm]) for arm in arms}
    best = max(means["vanilla, scheme I"], means["vanilla, scheme II"])
    return Measurement(
        numbers({f"accuracy, {arm}": round(value, 3) for arm, value in means.items()})
        | {
            f"{arm} below the better vanilla training": Number(round(best - means[arm], 3), below(0.5))
            for arm in ("LRP", "ada-LRP")
        },
        detail="test accuracy in percent; MNIST, 100 clients with 1 to 9 shards of 200 (a fifth held back), 10 per "
        "round, 50 steps on batches of 32, rate 0.01 with a cosine, 100 rounds (the paper's number is in its "
        "appendix), lenet5, three seeds; n_k and |Y_k| by secure sums",
        table=beside(outcome),
    )


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
