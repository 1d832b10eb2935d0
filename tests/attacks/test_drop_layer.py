"""The attack on Soteria: what it leaves out, and how it finds the layer."""

from __future__ import annotations

import pytest
import torch

import leakgauge as lg
from leakgauge.attacks import drop_layer
from leakgauge.errors import DomainError, LeakgaugeError, ModelError
from leakgauge.testing import small_records, small_task


def test_what_is_left_out() -> None:
    whole, columns = (drop_layer(leave=leave).against("middle") for leave in ("weight", "columns"))
    assert repr(whole.likelihood) == "cosine(drop=('middle.weight',))"
    assert repr(columns.likelihood) == "through(likelihood=cosine())"


@pytest.mark.parametrize("leave", ["weight", "columns"])
@pytest.mark.parametrize("layer", ["middle", "last"])
def test_the_layer_is_found_by_its_residual(layer: str, leave: str) -> None:
    task, records = small_task(dtype=torch.float32), small_records(3)
    seen = lg.observe(task.protect(f"soteria(layer='{layer}')"), records)
    attack = drop_layer(leave=leave, scout=60, steps=60)  # type: ignore[arg-type]
    assert attack.find(task, seen) == [layer] * 3


def test_each_observation_is_attacked_under_its_own_layer() -> None:
    task, records = small_task(dtype=torch.float32), small_records(3)
    layers = ["last", "middle", "last"]
    seen = [lg.observe(task.protect(f"soteria(layer='{layer}')"), records[[i]])[0] for i, layer in enumerate(layers)]
    made = drop_layer(scout=60, steps=20)(task, seen)
    assert made.inputs.shape == (3, 1, 1, 6, 6)
    for i, layer in enumerate(layers):
        alone = drop_layer(layer=layer, steps=20)(
            task, [s for s, found in zip(seen, layers, strict=True) if found == layer]
        )
        place = layers[: i + 1].count(layer) - 1
        torch.testing.assert_close(made.inputs[i], alone.inputs[place])


def test_it_beats_the_generic_attack() -> None:
    data = lg.data.load("fashion_mnist_sample")
    records = data.sample(2, seed=4, split="train")
    task = lg.Task(lg.models.build("bayes_cnn", data.domain), data.domain).protect("soteria(layer='linear1')")
    seen = lg.observe(task, records)
    generic, drop, adaptive = (
        lg.metrics.psnr(attack(task, seen).inputs[:, 0], records.inputs)
        for attack in (
            lg.attacks.inverting_gradients(steps=100),
            drop_layer(layer="linear1", steps=100, tv_weight=1e-4),
            lg.attacks.adaptive(steps=100),
        )
    )
    assert bool((drop - generic > 2).all())
    assert bool((adaptive - generic > 5).all())


def test_bad_settings_are_refused() -> None:
    with pytest.raises(DomainError, match="drop_layer: leave must be one of weight, columns"):
        drop_layer(leave="rows")  # type: ignore[arg-type]
    with pytest.raises(DomainError, match="scout must be an integer ≥ 1"):
        drop_layer(scout=0)
    task = small_task()
    with pytest.raises(ModelError, match="there is no layer 'lats'; did you mean 'last'"):
        drop_layer(layer="lats")(task, lg.observe(task, small_records(1)))
    assert issubclass(ModelError, LeakgaugeError)
