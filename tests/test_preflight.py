"""Preflight: the structure alone says what leaks, in under a second."""

from __future__ import annotations

import re
import time
from collections import OrderedDict

import pytest
import torch
from torch import nn

import leakgauge as lg
from leakgauge import Recipe, Task, data, models
from leakgauge.errors import DataError, ModelError, ObservationError
from leakgauge.losses import SquaredError
from leakgauge.preflight import Leak, preflight
from leakgauge.study import SpecError
from leakgauge.types import Domain, Records

DOMAIN = Domain("image", (1, 8, 8), 4)


def found(model: nn.Module, **recipe: object) -> dict[str, Leak]:
    return {leak.name: leak for leak in preflight(Task(model, DOMAIN, Recipe(**recipe)))}  # type: ignore[arg-type]


def dense(bias: bool = True, width: int = 32) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, width, bias=bias), nn.ReLU(), nn.Linear(width, 4))


def convolutional(norm: bool = False, bias: bool = True) -> nn.Module:
    layers = [nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2) if norm else nn.Identity(), nn.ReLU(), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(72, 16, bias=bias), nn.ReLU(), nn.Linear(16, 4))


def test_a_first_linear_layer_is_exact_at_batch_1() -> None:
    leak = found(dense())["first linear layer"]
    assert leak.severity == "exact"
    assert "exactly" in leak.sentence
    assert found(dense(), batch=4)["first linear layer"].severity == "high"
    assert "brightness" in found(dense(bias=False))["first linear layer"].sentence
    assert "first linear layer" not in found(convolutional())


def test_normalisation_hides_nothing() -> None:
    assert "first linear layer" in found(models.normalised(dense(), [0.3], [0.2]))


def test_the_first_layer_is_the_one_that_runs_first() -> None:
    class Backwards(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.last = nn.Linear(32, 4)
            self.first = nn.Linear(64, 32)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            made: torch.Tensor = self.last(self.first(x.flatten(1)).relu())
            return made

    assert "'first'" in found(Backwards())["first linear layer"].sentence


def test_frozen_layers_leak_nothing() -> None:
    model = dense()
    next(m for m in model.modules() if isinstance(m, nn.Linear)).requires_grad_(False)
    assert "first linear layer" not in found(model)


def test_inner_layers() -> None:
    assert "72 inputs exactly" in found(convolutional())["inner linear layer"].sentence
    assert "rank 8" in found(convolutional(), batch=8)["batch smaller than a layer"].sentence
    assert "batch smaller than a layer" not in found(convolutional(), batch=16)


def test_labels() -> None:
    assert found(dense())["labels"].severity == "high"
    assert found(dense(), batch=3)["labels"].severity == "medium"
    assert "labels" not in found(dense(), loss=SquaredError())
    pooled = nn.Sequential(OrderedDict(conv=nn.Conv2d(1, 4, 8), flat=nn.Flatten()))
    assert "labels" not in found(pooled)


def test_batch_norm_statistics() -> None:
    assert "means and variances" in found(convolutional(norm=True), mode="train")["batch-norm statistics"].sentence
    assert "batch-norm statistics" not in found(convolutional(norm=True), mode="eval")
    assert "batch-norm statistics" not in found(convolutional(), mode="train")


def test_equations() -> None:
    assert found(dense())["more equations than unknowns"].severity == "medium"
    assert "more equations than unknowns" not in found(convolutional(), batch=32)


def test_worst_first_and_json() -> None:
    leaks = preflight(Task(dense(), DOMAIN))
    assert [leak.severity for leak in leaks] == sorted(
        (leak.severity for leak in leaks), key=["exact", "high", "medium", "low"].index
    )
    assert leaks[0].as_json().keys() == {"name", "severity", "sentence"}


@pytest.mark.parametrize("name", ["bayes_cnn", "dlg_lenet", "mlp"])
def test_under_a_second(name: str) -> None:
    domain = data.load("fashion_mnist_sample").domain
    task = Task(models.build(name, domain), domain)
    start = time.process_time()
    assert preflight(task)
    assert time.process_time() - start < 1


class Bag(nn.Module):
    """A text as the mean of its tokens' embeddings; ``cast`` takes token numbers as floats."""

    def __init__(self, *, cast: bool = False) -> None:
        super().__init__()
        self.cast, self.words, self.last = cast, nn.Embedding(50, 8), nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.last(self.words(x.long() if self.cast else x).mean(1))
        return scores


def test_the_rows_of_an_embedding_name_the_tokens() -> None:
    torch.manual_seed(0)
    task = Task(Bag(), Domain("tokens", (6,), 3), Recipe(batch=2))
    (leak,) = [leak for leak in preflight(task) if leak.name == "tokens"]
    assert leak.severity == "exact"
    distinct = int(re.findall(r"with (\d+) different", leak.sentence)[0])
    assert f"{distinct} of 50 rows were not zero and {distinct} of them name a token" in leak.sentence
    tokens = torch.tensor([[3, 3, 7, 9, 11, 40], [1, 7, 7, 7, 2, 2]])
    update = task.update(Records(tokens, torch.tensor([0, 2]), task.domain))
    assert update["words.weight"].any(1).nonzero().flatten().tolist() == [1, 2, 3, 7, 9, 11, 40]


def test_tokens_are_refused_in_one_sentence() -> None:
    table, tokens = Domain("table", (6,), 3), Domain("tokens", (6,), 3)
    with pytest.raises(ModelError, match="looked up in the embedding 'words', where no gradient reaches them"):
        Task(Bag(cast=True), table)
    task = Task(Bag(), tokens)
    records = Records(torch.randint(50, (40, 6)), torch.arange(40) % 3, tokens)
    with pytest.raises(ObservationError, match=r"attack: tokens are not attacked; ask preflight\(task\)"):
        lg.attacks.adaptive(steps=1)(task, lg.observe(task, records[:2]))
    with pytest.raises(SpecError, match=r"task\.data: holds tokens, which are not attacked"):
        lg.Study(Bag(), records)


def test_an_embedding_of_places_is_no_lookup_of_inputs() -> None:
    class Placed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.places, self.last = nn.Embedding(6, 1), nn.Linear(6, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            scores: torch.Tensor = self.last(x + self.places(torch.arange(6)).flatten())
            return scores

    assert "tokens" not in {leak.name for leak in preflight(Task(Placed(), Domain("table", (6,), 3)))}


def test_records_that_fill_no_batch_are_not_passed_over() -> None:
    task = Task(dense(width=256), DOMAIN, Recipe(batch=4))
    generator = torch.Generator().manual_seed(0)
    records = Records(torch.rand(6, 1, 8, 8, generator=generator), torch.arange(6) % 4, DOMAIN)
    leak = next(leak for leak in preflight(task, records) if leak.name == "exact recovery")
    assert "of 4 can be read off" in leak.sentence
    assert leak.sentence.endswith("The last 2 do not fill a batch, and were not looked at.")
    with pytest.raises(DataError, match="preflight: 3 records do not fill a batch of 4"):
        preflight(task, records[:3])
    with pytest.raises(DataError, match="preflight: the records are a list; give Records"):
        preflight(task, [records])  # type: ignore[arg-type]
    with pytest.raises(ModelError, match="preflight: the first argument is a Sequential; give a Task"):
        preflight(task.model)  # type: ignore[arg-type]
