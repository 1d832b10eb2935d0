"""FedAvg: equal to central SGD where it should be, exact means, losses noted, everything seeded."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
import torch
from torch import nn

import leakgauge as lg
from leakgauge.errors import DataError, DomainError, ModelError
from leakgauge.fl import Federation, FederationError, History, InProcess, Job, Lost, Reply, Totals, federate, work
from leakgauge.fl.engine import batches
from leakgauge.testing import small_records, small_task
from leakgauge.training import train

SIZES = (2, 6, 4)


def clients() -> list[lg.Records]:
    records = small_records(sum(SIZES))
    starts = [sum(SIZES[:k]) for k in range(len(SIZES))]
    return [records[start : start + size] for start, size in zip(starts, SIZES, strict=True)]


def gap(one: History, other: dict | History) -> float:
    state = other.state if isinstance(other, History) else other
    return max(float((value - state[name]).abs().max()) for name, value in one.state.items())


@pytest.mark.parametrize("scheme", ["I", "II"])
def test_one_full_step_of_all_clients_is_central_sgd(scheme: str) -> None:
    """``Σ p_k ∇L_k`` is the gradient of all records, by either scheme."""
    how = Federation(rounds=3, steps=1, minibatch=None, learning_rate=0.2, scheme=scheme)  # type: ignore[arg-type]
    task = small_task()
    central = train(task, small_records(12), steps=3, batch=12, learning_rate=0.2, momentum=0.0, weight_decay=0.0)[-1]
    # float64, three steps; the shares p_k N η are rounded to float32
    assert gap(federate(task, clients(), how), dict(central.state)) < 1e-7


def test_a_round_is_the_weighted_mean_of_what_its_clients_send() -> None:
    how = Federation(rounds=1, steps=3, minibatch=2, learning_rate=0.2, scheme="II")
    task = small_task()
    jobs: list[Job] = []

    class Recording(InProcess):
        def run(self, jobs_of_round: Sequence[Job]) -> Iterator[Reply | Lost]:
            jobs.extend(jobs_of_round)
            return super().run(jobs_of_round)

    after = federate(task, clients(), how, engine=Recording(), seed=5)
    changes = [work(job).change for job in jobs]
    for name, p in task.params.items():
        wanted = p + sum(size / 12 * change[name] for size, change in zip(SIZES, changes, strict=True))
        torch.testing.assert_close(after.state[name], wanted, rtol=1e-12, atol=1e-15)


def test_the_sum_of_a_round_can_be_secure() -> None:
    options = {"rounds": 2, "steps": 2, "minibatch": 2, "learning_rate": 0.2}
    for scheme in ("I", "II"):
        clear = federate(small_task(), clients(), Federation(**options, scheme=scheme))  # type: ignore[arg-type]
        secret = federate(small_task(), clients(), Federation(**options, scheme=scheme, secure=True))  # type: ignore[arg-type]
        # two rounds, three entries each rounded by half of 2⁻³², and what the second round makes of that
        assert 0 < gap(secret, clear) < 20 * 2.0**-32


def test_where_updates_are_summed_in_secret_no_count_is_sent_in_clear(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("cryptography", reason="needs leakgauge[fl]")
    in_clear: list[int] = []
    own = Totals.in_clear

    def noted(some: list[lg.Records]) -> Totals:
        in_clear.append(len(some))
        return own(some)

    monkeypatch.setattr(Totals, "in_clear", noted)
    for secure in (True, False):
        how = Federation(rounds=1, steps=1, minibatch=None, scheme="II", secure=secure)
        federate(small_task(), clients(), how)
    assert in_clear == [len(clients())]  # the training whose updates are in clear, alone


def test_a_secure_sum_adds_parameters_by_name() -> None:
    class Reversing(InProcess):
        """An engine whose second client names its parameters in another order."""

        def run(self, jobs: Sequence[Job]) -> Iterator[Reply | Lost]:
            for reply in super().run(jobs):
                assert isinstance(reply, Reply)
                yield Reply(1, dict(reversed(reply.change.items()))) if reply.client == 1 else reply

    how = Federation(rounds=1, steps=1, minibatch=None, secure=True)
    assert gap(federate(small_task(), clients(), how, engine=Reversing()), federate(small_task(), clients(), how)) == 0


def test_the_clients_of_a_recipe_are_no_clients_within_a_client() -> None:
    task, how = small_task(), Federation(rounds=1, steps=2, minibatch=2)
    summed = replace(task, recipe=replace(task.recipe, batch=2, clients=2))
    assert gap(federate(summed, clients(), how), federate(task, clients(), how)) == 0


def test_a_history_counts_its_rounds_without_the_model_before_them() -> None:
    how = Federation(rounds=1, steps=1, minibatch=2)
    assert "1 round," in repr(federate(small_task(), clients(), how, test=small_records(4)))
    assert "1 round," in repr(federate(small_task(), clients(), how))


def test_trainings_are_functions_of_their_seed() -> None:
    how = Federation(rounds=2, per_round=2, steps=2, minibatch=2, learning_rate=0.5, decay="cosine")
    one, again, other = (federate(small_task(), clients(), how, seed=seed) for seed in (1, 1, 2))
    assert gap(one, again) == 0 < gap(one, other)
    assert [log.clients for log in one.rounds] == [log.clients for log in again.rounds]
    assert [round(log.rate, 12) for log in one.rounds] == [0.5, 0.25]
    assert all(len(log.clients) == 2 for log in one.rounds)


def test_batches_use_every_record_once_per_pass() -> None:
    rows = batches(7, 3, 5, (0, 0, 0))
    assert rows.shape == (5, 3)
    for one in (rows[:2], rows[2:4]):
        assert len(set(one.flatten().tolist())) == 6


def test_epochs_take_as_many_steps_as_a_client_has_batches() -> None:
    steps = []

    class Counting(InProcess):
        def run(self, jobs: Sequence[Job]) -> Iterator[Reply | Lost]:
            steps.extend(job.task.recipe.local_steps for job in jobs)
            return super().run(jobs)

    federate(small_task(), clients(), Federation(rounds=1, epochs=2, minibatch=2), engine=Counting())
    assert steps == [2, 6, 4]


def test_training_learns_under_lrp_and_reports_accuracies() -> None:
    records = small_records(24)
    upper, lower = (records.inputs[:, 0, rows].mean((1, 2)) for rows in (slice(0, 3), slice(3, 6)))
    easy = lg.Records(records.inputs, (upper > lower).long(), records.domain)
    shared = [easy[:8], easy[8:16], easy[16:]]
    ticks: list[tuple[int, int]] = []
    for how in ("identity()", "lrp()", "ada_lrp(zeta=0.2)"):
        history = federate(
            small_task().protect(how),
            shared,
            Federation(rounds=20, steps=4, minibatch=8, learning_rate=0.2),
            test=easy,
            every=10,
            progress=lambda done, total, best: ticks.append((done, total)),
        )
        assert list(history.accuracies) == [0, 10, 20]
        assert history.accuracy > 0.8 > history.accuracies[0]
    assert ticks == [(r, 20) for r in range(1, 21)] * 3


def test_ada_lrp_knows_each_client_and_refuses_factors_that_are_no_rate() -> None:
    """Classes 1, 2, 3 of a mean of 2: factors 1 − ζ, 1, 1 + ζ of the expected rate."""
    records = small_records(12)
    labels = torch.tensor([0, 0, 0, 0, 0, 1, 0, 1, 0, 1, 2, 2])
    some = lg.Records(records.inputs, labels, records.domain)
    jobs: list[Job] = []

    class Recording(InProcess):
        def run(self, jobs_of_round: Sequence[Job]) -> Iterator[Reply | Lost]:
            jobs.extend(jobs_of_round)
            return super().run(jobs_of_round)

    shared = [some[:4], some[4:8], some[8:]]
    how = Federation(rounds=1, steps=2, minibatch=2)
    federate(small_task().protect("ada_lrp(zeta=0.25)"), shared, how, engine=Recording())
    assert [job.task.protection.training[0].law.mean for job in jobs] == [0.75, 1.0, 1.25]  # type: ignore[attr-defined]
    with pytest.raises(DomainError, match=r"a client with 1 classes, of 2 on average.*give zeta below 1"):
        federate(small_task().protect("ada_lrp(zeta=1.5)"), shared, how)


def test_adam_clients_train_and_are_perturbed() -> None:
    task = lg.Task(small_task().model, small_task().domain, lg.Recipe(shares="change", optimiser="adam"))
    how = Federation(rounds=2, steps=3, minibatch=2, learning_rate=0.01, scheme="II")
    plain, perturbed = federate(task, clients(), how), federate(task.protect("lrp()"), clients(), how)
    for history in (plain, perturbed):
        moved = max(float((history.state[name] - p).abs().max()) for name, p in task.params.items())
        assert 0.01 < moved < 2 * 3 * 2 * 0.02  # an entry moves by about the rate in a step of Adam
    assert gap(plain, perturbed) > 1e-3


def test_a_client_that_vanishes_is_left_out_and_noted() -> None:
    how = Federation(rounds=6, steps=1, learning_rate=0.1, minibatch=None)
    history = federate(small_task(), clients(), how, engine=InProcess(drop=0.3), seed=2)
    assert history.lost
    assert all(lost.why == "it did not answer" for _, lost in history.lost)
    for log in history.rounds:
        assert sorted((*log.clients, *(lost.client for lost in log.lost))) == [0, 1, 2]


def test_a_round_without_answers_keeps_the_rounds_before_it() -> None:
    class Vanishing(InProcess):
        def run(self, jobs: Sequence[Job]) -> Iterator[Reply | Lost]:
            return super().run(jobs) if jobs[0].key[1] < 2 else iter(())

    how = Federation(rounds=4, steps=1, minibatch=None, learning_rate=0.1)
    with pytest.raises(FederationError, match=r"round 3: no client of 3 answered \(it did not answer\)") as fault:
        federate(small_task(), clients(), how, engine=Vanishing())
    two = federate(small_task(), clients(), Federation(rounds=2, steps=1, minibatch=None, learning_rate=0.1))
    assert len(fault.value.history.rounds) == 2
    assert gap(two, fault.value.history) == 0


def test_a_secure_sum_of_too_few_clients_keeps_the_rounds_before_it() -> None:
    class Thinning(InProcess):
        def run(self, jobs: Sequence[Job]) -> Iterator[Reply | Lost]:
            return super().run(jobs if jobs[0].key[1] < 1 else jobs[:2])

    how = Federation(rounds=3, steps=1, minibatch=None, learning_rate=0.1, secure=True)
    with pytest.raises(FederationError, match=r"round 2: no secure sum of 2 of 3 clients.*at least 3") as fault:
        federate(small_task(), clients(), how, engine=Thinning())
    assert [log.clients for log in fault.value.history.rounds] == [(0, 1, 2)]
    assert fault.value.history.state.keys() == dict(small_task().model.state_dict()).keys()


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda t: {n: v for n, v in t.items() if n != "last.bias"}, "its update has no parameter 'last.bias'"),
        (lambda t: {**t, "last.bias": t["last.bias"][:2]}, r"'last.bias' has shape \(2,\), the model's has \(4,\)"),
        (lambda t: {**t, "last.bias": t["last.bias"] / 0}, "'last.bias' holds NaN or infinite values"),
        (lambda t: {**t, "more": t["last.bias"]}, "the model has no parameter 'more'"),
        (lambda t: {**t, "last.bias": t["last.bias"].tolist()}, "'last.bias' is a list, not a tensor"),
    ],
)
def test_an_update_that_does_not_fit_is_left_out(spoil, why: str) -> None:
    class Spoiling(InProcess):
        def run(self, jobs: Sequence[Job]) -> Iterator[Reply | Lost]:
            for reply in super().run(jobs):
                assert isinstance(reply, Reply)
                yield Reply(1, spoil(reply.change)) if reply.client == 1 else reply

    how = Federation(rounds=1, steps=1, minibatch=None, scheme="II")
    history = federate(small_task(), clients(), how, engine=Spoiling())
    ((_, lost),) = history.lost
    assert lost.client == 1
    assert re.search(why, lost.why)
    assert history.rounds[0].clients == (0, 2)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"steps": 0}, "steps must be an integer ≥ 1"),
        ({"epochs": 0}, "epochs must be an integer ≥ 1"),
        ({}, "neither steps nor epochs"),
        ({"steps": 1, "epochs": 1}, "both steps and epochs"),
        ({"steps": 1, "rounds": 0}, "rounds must be an integer ≥ 1"),
        ({"steps": 1, "scheme": "III"}, "scheme must be one of I, II"),
    ],
)
def test_bad_settings_are_refused(options: dict, says: str) -> None:
    with pytest.raises(DomainError, match=says):
        Federation(**options)


def test_bad_clients_are_refused() -> None:
    how = Federation(rounds=1, steps=1)
    with pytest.raises(DomainError, match="a secure sum of 2 clients hides nobody's update"):
        federate(small_task(), clients(), Federation(rounds=1, steps=1, per_round=2, secure=True))
    with pytest.raises(DomainError, match="there are no clients"):
        federate(small_task(), [], how)
    with pytest.raises(DataError, match="client 1 has no records"):
        federate(small_task(), [small_records(2), small_records(2)[:0]], how)
    with pytest.raises(DomainError, match="5 clients per round of 3"):
        federate(small_task(), clients(), Federation(rounds=1, steps=1, per_round=5))
    with pytest.raises(DomainError, match="2 clients cannot add up their counts in secret"):
        federate(small_task().protect("lrp()"), clients()[:2], how)
    federate(small_task().protect("lrp()"), clients()[:2], how, totals=Totals.in_clear(clients()[:2]))
    model = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(36), nn.Linear(36, 4))
    with pytest.raises(ModelError, match="running statistics"):
        federate(lg.Task(model, small_task().domain, lg.Recipe(mode="train")), clients(), how)


def test_answers_that_nobody_asked_for_do_not_count() -> None:
    class Chatty(InProcess):
        def run(self, jobs: Sequence[Job]) -> Iterator[Reply | Lost]:
            yield from super().run(jobs)
            change = {name: value + 1 for name, value in work(jobs[0]).change.items()}
            yield Reply(0, change)
            yield Reply(77, change)

    how = Federation(rounds=1, steps=1, minibatch=None, scheme="II")
    chatty, plain = (federate(small_task(), clients(), how, engine=engine) for engine in (Chatty(), InProcess()))
    assert gap(chatty, plain) == 0
    assert [(lost.client, lost.why) for _, lost in chatty.lost] == [
        (0, "it was not asked, or has answered before"),
        (77, "it was not asked, or has answered before"),
    ]


def test_an_engine_that_breaks_keeps_the_answers_that_are_there() -> None:
    class Breaking(InProcess):
        def run(self, jobs: Sequence[Job]) -> Iterator[Reply | Lost]:
            yield work(jobs[0])
            raise ConnectionError("the network is gone")

    how = Federation(rounds=1, steps=1, minibatch=None)
    (log,) = federate(small_task(), clients(), how, engine=Breaking()).rounds
    assert log.clients == (0,)
    assert {lost.why for lost in log.lost} == {"the engine ended by ConnectionError: the network is gone"}
    assert [lost.client for lost in log.lost] == [1, 2]


def test_a_client_whose_code_raises_is_lost_and_the_others_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    def raising(job: Job) -> Reply:
        if job.client == 1:
            raise OSError("its disk is gone")
        return work(job)

    monkeypatch.setattr("leakgauge.fl.engine.work", raising)
    (log,) = federate(small_task(), clients(), Federation(rounds=1, steps=1, minibatch=None)).rounds
    assert log.clients == (0, 2)
    assert log.lost == (Lost(1, "OSError: its disk is gone"),)


def test_an_accuracy_after_every_zero_rounds_is_refused() -> None:
    with pytest.raises(DomainError, match="every must be an integer ≥ 1, got 0"):
        federate(small_task(), clients(), Federation(rounds=1, steps=1), test=small_records(2), every=0)


@pytest.mark.parametrize("wrong", [{"momentum": -0.1}, {"momentum": 1.0}, {"weight_decay": -1.0}])
def test_a_recipe_refuses_what_a_spec_refuses(wrong: dict[str, float]) -> None:
    with pytest.raises(DomainError, match=next(iter(wrong))):
        lg.Recipe(shares="change", **wrong)  # type: ignore[arg-type]
