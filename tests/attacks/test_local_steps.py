"""Many local steps, several rounds and several clients: what adaptive() makes of them."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import leakgauge as lg
from leakgauge.attacks import adaptive
from leakgauge.attacks.surrogate import surrogate
from leakgauge.errors import AssumptionWarning, ObservationError
from leakgauge.metrics import psnr
from leakgauge.testing import capped_psnr, image_records, image_task, small_records, small_task

NOISY = "gaussian(std=0.05)"


def test_many_steps_are_taken_for_one_gradient_on_the_way() -> None:
    recipe = lg.Recipe(shares="change", local_steps=20, learning_rate=0.02)
    task = image_task(recipe=recipe).protect("lrp()")
    records = image_records(1)
    observations = lg.observe(task, records, seed=1)
    with pytest.warns(AssumptionWarning, match="takes 20 local steps for one gradient on the way"):
        near = adaptive(steps=60)(task, observations)
    single, turned = surrogate(task, observations)
    assert single.recipe.local_steps == 1
    middle = turned[0].rounds[0].params["first.weight"]
    begun, change = (getattr(observations[0].rounds[0], key)["first.weight"] for key in ("params", "observed"))
    torch.testing.assert_close(middle, begun + change / 2)
    scores = psnr(near.inputs[:, 0].float(), records.inputs)
    assert float(scores.mean()) > 18
    listed = {one.address: one.how for one in adaptive().against(task).treatments}
    assert listed["lrp.scale"] == "cancelled"


def test_the_direction_of_a_way_is_nearer_the_gradient_at_its_middle_than_at_its_start() -> None:
    recipe = lg.Recipe(shares="change", local_steps=20, learning_rate=0.01)
    task, records = image_task(recipe=recipe).to(dtype=torch.float64), image_records(1)
    (observation,) = lg.observe(task, records)
    single, (turned,) = surrogate(task, [observation])

    def alike(params: dict) -> float:
        gradient = single.update(records, params)
        one, other = (torch.cat([t.flatten() for t in tree.values()]) for tree in (gradient, turned.rounds[0].observed))
        return float(torch.nn.functional.cosine_similarity(one, other, dim=0))

    assert alike(dict(turned.rounds[0].params)) > alike(task.params)


def test_one_example_in_several_steps_is_read_off_a_linear_layer_exactly() -> None:
    """Every step adds ``δ_t xᵀ`` to the weight and ``δ_t`` to the bias: the ratio of the sums is x, under LRP, too."""
    domain = small_task().domain
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(36, 20), torch.nn.Tanh(), torch.nn.Linear(20, 4))
    recipe = lg.Recipe(shares="change", local_steps=5, momentum=0.9)
    task = lg.Task(model.double(), domain, recipe).protect("lrp()")
    records = small_records(2)
    reconstruction = adaptive()(task, lg.observe(task, records))
    assert reconstruction.status == ("exact", "exact")
    torch.testing.assert_close(reconstruction.inputs[:, 0].float(), records.inputs, rtol=1e-4, atol=1e-5)
    assert adaptive().against(task).exact
    decayed = lg.Task(model, domain, replace(recipe, weight_decay=0.1))
    assert not adaptive().against(decayed).exact


@pytest.mark.slow
def test_more_rounds_tell_more() -> None:
    task, records = image_task().protect("gaussian(std=0.1)"), image_records(1)
    observations = lg.observe(task, records, seed=1, rounds=30)
    few = [replace(one, rounds=one.rounds[:1]) for one in observations]
    scores = [
        float(capped_psnr(adaptive(steps=40)(task, seen).inputs[:, 0], records.inputs).mean())
        for seen in (few, observations)
    ]
    assert scores[1] > scores[0] + 2


def test_rounds_at_one_state_share_one_update() -> None:
    """The log posterior of R rounds at one state is that of R terms, whether the update is computed once or R times."""
    task, records = image_task().protect(NOISY), image_records(1)
    copied = {name: p.clone() for name, p in task.params.items()}
    shared, apart = (
        lg.observe(task, records, seed=1, rounds=two) for two in ([task.params] * 2, [task.params, copied])
    )
    one, other = (adaptive(steps=1)(task, seen).log_posterior for seen in (shared, apart))
    torch.testing.assert_close(one, other, rtol=1e-5, atol=0)


def test_the_mean_of_clients_is_attacked_as_one_observation() -> None:
    recipe = lg.Recipe(batch=2, clients=2, shares="change", local_steps=2, learning_rate=0.1)
    task, records = image_task(recipe=recipe).protect("lrp()"), image_records(2)
    (observation,) = lg.observe(task, records, seed=1, threat=lg.Threat(grants=frozenset({"lrp.scale"})))
    scale = observation.rounds[0].granted["lrp.scale"]
    assert isinstance(scale, torch.Tensor)
    assert scale.shape == (4,)  # two clients of two steps
    assert observation.rounds[0].clients == 2
    reconstruction = adaptive(steps=5)(task, [observation])
    assert reconstruction.inputs.shape[:2] == (1, 2)
    hidden = adaptive(steps=5)(task, [observation.given("lrp.scale", None)])
    assert bool(hidden.inputs.isfinite().all())
    alone = image_task(recipe=replace(recipe, clients=1)).protect("lrp()")
    with pytest.raises(ObservationError, match=r"it sums 2 clients.*or the mean of clients=2 in the recipe"):
        adaptive(steps=1)(alone, [observation.given("lrp.scale", None)])


def test_a_hidden_order_is_assumed_and_said() -> None:
    recipe = lg.Recipe(batch=2, minibatch=1, local_steps=4, shares="change", shuffle=True)
    task = image_task(recipe=recipe)
    listed = {one.address: (one.how, one.sentence) for one in adaptive().against(task).treatments}
    assert listed["recipe.order"] == ("assumed", "hidden; every pass over the examples is taken to use one order")
    observations = lg.observe(task, image_records(2), threat=lg.Threat(grants=frozenset({"order"})))
    for seen in (observations, [observations[0].given("recipe.order", None)]):
        assert bool(adaptive(steps=3)(task, seen).inputs.isfinite().all())
