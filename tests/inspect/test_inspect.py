"""Inspecting updates that plain PyTorch loops produced: none of our client code, the learning rate unknown."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import Tensor, nn
from typer.testing import CliRunner

from leakgauge import data, models
from leakgauge.adversary import Adversary, lbfgs, scaled_l2, signed_adam
from leakgauge.adversary.likelihoods import cosine
from leakgauge.attacks import Standard
from leakgauge.attacks.adaptive import Adaptive
from leakgauge.attacks.portfolio import Portfolio
from leakgauge.attacks.staged import posterior
from leakgauge.cli.app import app
from leakgauge.defenses import Protection, protection
from leakgauge.errors import DomainError
from leakgauge.inspect import Capture, CaptureWarning, attacks_on, captured, folder_of, inspect, picture, sign_of
from leakgauge.inspect import attacks as chosen
from leakgauge.inspect.client import Client
from leakgauge.inspect.cost import evaluations
from leakgauge.inspect.readings import decided, readings
from leakgauge.inspect.separable import separable
from leakgauge.priors import tv
from leakgauge.storage.states import FileError, State, metadata_of, read_state
from leakgauge.task import Task
from leakgauge.types import Domain, Records

DOMAIN = Domain("image", (1, 8, 8), 4)
Files = dict[str, Tensor]


def small(smooth: bool = True) -> nn.Module:
    torch.manual_seed(3)
    made = nn.Sequential(
        nn.Conv2d(1, 6, 5, stride=2, padding=2),
        nn.Sigmoid() if smooth else nn.ReLU(),
        nn.Flatten(),
        nn.Linear(96, 4),
    )
    for p in made.parameters():
        nn.init.uniform_(p, -0.5, 0.5)
    return made


def trained(model: nn.Module, x: Tensor, y: Tensor, rate: float = 0.07, steps: int = 1) -> tuple[Files, Files]:
    """The whole of a stranger's client."""
    before = {name: value.clone() for name, value in model.state_dict().items()}
    optimiser = torch.optim.SGD(model.parameters(), lr=rate)
    for _ in range(steps):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimiser.step()
    return before, {name: value.clone() for name, value in model.state_dict().items()}


def record(n: int = 1) -> Records:
    x = torch.rand(n, 1, 8, 8, generator=torch.Generator().manual_seed(5))
    return Records(x, torch.tensor([2, 0, 1, 3])[:n], DOMAIN)


def waves() -> Records:
    """A smooth picture."""
    at = torch.linspace(0, 3, 8)
    return Records((0.5 + 0.4 * at.sin().outer(at.cos())).expand(1, 1, 8, 8), torch.tensor([2]), DOMAIN)


def states(folder: Path, before: Files, after: Files, **facts: object) -> tuple[State, State]:
    save_file(before, folder / "a.safetensors")
    save_file(after, folder / "b.safetensors", {k: str(v) for k, v in facts.items()} or None)
    return read_state(folder / "a.safetensors"), read_state(folder / "b.safetensors")


@pytest.mark.parametrize(
    ("name", "attack"),
    [
        ("dlg_lenet", Adversary(scaled_l2(), solver=lbfgs(steps=120, target=1e-6))),
        pytest.param(
            "bayes_cnn",
            Adversary(cosine(), prior=1e-3 * tv(), solver=signed_adam(lr=0.1, steps=150)),
            marks=pytest.mark.slow,
        ),
    ],
)
def test_two_checkpoints_give_the_record_away(name: str, attack: Adversary, tmp_path: Path) -> None:
    found = data.load("fashion_mnist_sample")
    private = found.sample(1, seed=1, split="test")
    before, after = trained(models.build(name, found.domain), private.inputs, private.labels, rate=0.03)
    model = models.build(name, found.domain, seed=7)  # other weights: the file brings the true ones
    capture = captured(*states(tmp_path, before, after), model)
    (made,) = inspect(model, found.domain, [capture], known=private, attacks=[attack], draws=3)
    assert made.labels.tolist() == private.labels.tolist()
    assert made.psnr[0] > 20
    assert made.psnr[0] > made.null_psnr[0] + 5
    assert "dB" in made.sentence


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dlg_lenet", "bayes_cnn"])
@pytest.mark.parametrize("rate", [0.1, 0.003])
def test_the_default_attacks_reach_twenty_decibels(name: str, rate: float, tmp_path: Path) -> None:
    found = data.load("fashion_mnist_sample")
    private = found.sample(1, seed=2, split="test")
    before, after = trained(models.build(name, found.domain), private.inputs, private.labels, rate=rate)
    capture = captured(*states(tmp_path, before, after), models.build(name, found.domain))
    (made,) = inspect(models.build(name, found.domain), found.domain, [capture], known=private)
    assert made.psnr[0] > 20


def test_without_known_records_it_says_what_can_be_said(tmp_path: Path) -> None:
    private = record()
    capture = captured(*states(tmp_path, *trained(small(), private.inputs, private.labels)), small())
    attack = Adversary(scaled_l2(), solver=lbfgs(steps=100, target=1e-7))
    (made,) = inspect(small(), DOMAIN, [capture], attacks=[attack], draws=3)
    assert made.explained > 0.999
    assert made.null_explained < 0.7
    assert made.psnr == ()
    assert "take them for your data" in made.sentence
    picture([made], tmp_path / "seen.png", private)
    assert (tmp_path / "seen.png").stat().st_mode & 0o777 == 0o600
    with Image.open(tmp_path / "seen.png") as shown:
        assert shown.size == (4 * 30, 4 * 10)
    assert made.as_json()["labels"] == [2]


def test_noise_gives_nothing(tmp_path: Path) -> None:
    before, after = trained(small(), *(record().inputs, record().labels))
    after = {name: before[name] + torch.randn_like(value) * 0.01 for name, value in after.items()}
    attack = Adversary(scaled_l2(), solver=lbfgs(steps=50))
    (made,) = inspect(small(), DOMAIN, [captured(*states(tmp_path, before, after), small())], attacks=[attack])
    assert "Nothing can be concluded" in made.sentence


def sent_as(kind: str, folder: Path, model: nn.Module, private: Records) -> Capture:
    before, after = trained(model, private.inputs, private.labels)
    change = {name: after[name] - before[name] for name in before}
    down = {name: -value for name, value in change.items()}
    if kind == "state":
        pair = states(folder, before, after)
    elif kind == "swapped":
        pair = states(folder, after, before)
    elif kind == "change":
        pair = states(folder, before, change, kind="change")
    elif kind == "change called gradient":
        pair = states(folder, before, change, kind="gradient")
    else:
        pair = states(folder, before, down, kind="change", sign=-1)
    return captured(*pair, model)


@pytest.mark.parametrize("kind", ["state", "swapped", "change", "change called gradient", "stated"])
def test_the_sign_of_one_example_shows_in_the_last_layer(kind: str, tmp_path: Path) -> None:
    private = record()
    capture = sent_as(kind, tmp_path, small(), private)
    sign = sign_of(Task(small(), DOMAIN), capture.gradient, 1)
    assert sign == (-1 if kind in ("swapped", "change called gradient") else 1)
    assert capture.declared == (kind == "stated")
    assert float(sum(v.square().sum() for v in capture.gradient.values())) == pytest.approx(1, rel=1e-5)
    attack = Adversary(scaled_l2(), solver=lbfgs(steps=40))
    (finding,) = inspect(small(), DOMAIN, [capture], known=private, attacks=[attack], draws=3)
    assert finding.turned == (sign == -1)
    assert finding.labels.tolist() == [2]
    assert finding.psnr[0] > 20


@pytest.mark.parametrize("activation", [nn.SiLU, nn.Tanh])
@pytest.mark.parametrize("seed", range(6))
def test_signed_features_without_a_last_bias_are_not_turned(activation: type[nn.Module], seed: int) -> None:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Conv2d(1, 4, 3, stride=2), activation(), nn.Flatten(), nn.Linear(36, 10, bias=False))
    x, y = torch.rand(1, 1, 8, 8), torch.tensor([seed])
    nn.functional.cross_entropy(model(x), y).backward()
    gradient = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
    task = Task(model, Domain("image", (1, 8, 8), 10))
    assert sign_of(task, gradient, 1) == 1
    assert sign_of(task, {n: -g for n, g in gradient.items()}, 1) == -1
    assert sign_of(task, gradient, 2) is None  # of a batch the last layer alone does not say


@pytest.mark.parametrize("batch", [2, 5, 8])
def test_labels_of_signed_features_do_not_depend_on_the_sign(batch: int) -> None:
    torch.manual_seed(batch)
    model = nn.Sequential(nn.Conv2d(1, 4, 3, stride=2), nn.Tanh(), nn.Flatten(), nn.Linear(36, 10, bias=False))
    x, y = torch.rand(batch, 1, 8, 8), torch.randperm(10)[:batch]
    nn.functional.cross_entropy(model(x), y).backward()
    gradient = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
    for sign in (1, -1):
        labels = separable({n: sign * g for n, g in gradient.items()}, 10, batch)
        assert labels is not None
        assert labels.tolist() == sorted(y.tolist())
    noisy = {n: g + 0.01 * g.abs().max() * torch.randn_like(g) for n, g in gradient.items()}
    assert separable(noisy, 10, batch) is None  # its rank is no longer that of the batch
    assert separable(gradient, 10, 9) is None


@pytest.mark.parametrize("turned", [False, True])
def test_the_attack_decides_the_sign_of_a_batch_of_most_classes(turned: bool, tmp_path: Path) -> None:
    private = record(3)
    before, after = trained(small(), private.inputs, private.labels)
    pair = states(tmp_path, after, before) if turned else states(tmp_path, before, after)
    attack = Adversary(scaled_l2(), solver=lbfgs(steps=60))
    (finding,) = inspect(small(), DOMAIN, [captured(*pair, small())], batch=3, attacks=[attack], draws=3)
    assert finding.labels.tolist() == [0, 1, 2]  # the factor of a captured update is not known: labels need none
    assert finding.turned == turned
    assert finding.other is None


def test_two_classes_cannot_say_and_both_are_shown(tmp_path: Path) -> None:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.Sigmoid(), nn.Linear(8, 2))
    domain = Domain("image", (1, 8, 8), 2)
    private = Records(record().inputs, torch.tensor([1]), domain)
    before, after = trained(model, private.inputs, private.labels)
    change = {name: after[name] - before[name] for name in before}
    capture = captured(*states(tmp_path, before, change, kind="change"), model)
    attacks = attacks_on(Task(model, domain), 1)[:1]
    (finding,) = inspect(model, domain, [capture], attacks=attacks, draws=3)
    assert finding.other is not None
    assert {int(finding.labels), int(finding.other.labels)} == {0, 1}  # the opposite sign is the other class
    assert any("cannot be told" in note for note in finding.notes)
    assert finding.as_json()["opposite_sign"]["labels"] == finding.other.labels.tolist()
    picture([finding], tmp_path / "both.png")
    with Image.open(tmp_path / "both.png") as image:
        assert image.size == (4 * 30, 4 * 10)
    stated = captured(*states(tmp_path, before, change, kind="change", sign=1), model)
    (finding,) = inspect(model, domain, [stated], attacks=attacks, draws=3)
    assert finding.other is None


def test_little_explained_under_noise_is_more_than_nothing(tmp_path: Path) -> None:
    private = record()
    before, after = trained(small(), private.inputs, private.labels, rate=1.0)
    generator = torch.Generator().manual_seed(0)
    size = torch.cat([(after[n] - before[n]).flatten() for n in before]).norm()
    entries = sum(v.numel() for v in before.values())
    std = 3 * float(size) / entries**0.5  # the truth explains a tenth
    noisy = {n: v + std * torch.randn(v.shape, generator=generator) for n, v in after.items()}
    capture = captured(*states(tmp_path, before, noisy, kind="state", sign=1), small())
    attack = Adversary(cosine(), prior=1e-2 * tv(), solver=signed_adam(lr=0.1, steps=60))
    (finding,) = inspect(small(), DOMAIN, [capture], labels=private.labels, attacks=[attack])
    assert finding.explained < 0.5
    assert finding.above_noise
    assert "something was found" in finding.sentence


def test_a_known_record_is_nearer_only_beyond_the_spread(tmp_path: Path) -> None:
    before, after = trained(small(), record().inputs, record().labels)
    generator = torch.Generator().manual_seed(2)
    noise = {n: before[n] + 0.01 * torch.randn(v.shape, generator=generator) for n, v in after.items()}
    attack = Adversary(scaled_l2(), solver=lbfgs(steps=20))
    many = Records(torch.rand(20, 1, 8, 8, generator=generator), torch.arange(20) % 4, DOMAIN)
    capture = captured(*states(tmp_path, before, noise, sign=1), small())
    (finding,) = inspect(small(), DOMAIN, [capture], known=many, attacks=[attack])
    assert sum(finding.nearer) == 0
    assert "0 of 20 known records are nearer" in finding.sentence


def test_a_declared_defense_is_modelled(tmp_path: Path) -> None:
    private = record()
    model = small()
    nn.functional.cross_entropy(model(private.inputs), private.labels).backward()
    generator = torch.Generator().manual_seed(0)
    noisy = {
        n: p.grad + 0.002 * torch.randn(p.shape, generator=generator)
        for n, p in model.named_parameters()
        if p.grad is not None
    }
    before = {n: v.clone() for n, v in model.state_dict().items()}
    capture = captured(*states(tmp_path, before, noisy, kind="gradient"), model)
    attack = Adaptive(steps=30)
    (finding,) = inspect(
        model, DOMAIN, [capture], attacks=[attack], known=private, defense=protection("gaussian(std=0.002)"), draws=3
    )
    assert not finding.turned
    assert finding.nearer == (True,)
    with pytest.raises(DomainError, match="acts on the records"):
        inspect(model, DOMAIN, [capture], defense=protection("mixup(k=2)"))


def test_costs_are_refused_before_they_are_spent(tmp_path: Path) -> None:
    capture = captured(*states(tmp_path, *trained(small(), record().inputs, record().labels)), small())
    with pytest.raises(DomainError, match=r"candidate of 10,000,000 examples .* GB.*at most [\d,]+ examples"):
        inspect(small(), DOMAIN, [capture], batch=10_000_000)
    forever = Adversary(cosine(), solver=signed_adam(lr=0.1, steps=10**12))
    with pytest.raises(DomainError, match="floating-point operations"):
        inspect(small(), DOMAIN, [capture], attacks=[forever])


def test_a_batch_is_matched(tmp_path: Path) -> None:
    private = record(2)
    capture = captured(*states(tmp_path, *trained(small(), private.inputs, private.labels)), small())
    attack = Adversary(scaled_l2(), solver=lbfgs(steps=150, target=1e-6))
    (made,) = inspect(
        small(), DOMAIN, [capture], batch=2, labels=private.labels, known=private, attacks=[attack], draws=3
    )
    assert made.inputs.shape == (2, 1, 8, 8)
    assert min(made.psnr) > max(made.null_psnr)


def test_captures_are_attacked_with_the_standard_attack() -> None:
    linear = nn.Sequential(nn.Flatten(), nn.Linear(64, 4))
    both = ["standard()", "standard() without reading off"]  # a capture may hold noise that nobody declared
    for model, defense, batch, names in (
        (small(), "", 1, both[:1]),
        (small(smooth=False), "", 4, both[:1]),
        (linear, "", 1, both),
        (linear, "", 4, both[:1]),
        (linear, "gaussian(std=0.1)", 1, both[:1]),
    ):
        task = Task(model, DOMAIN, protection=protection(defense) if defense else Protection())
        assert [repr(attack) for attack in attacks_on(task, batch)] == names


@pytest.mark.slow
@pytest.mark.parametrize("smooth", [True, False])
def test_the_standard_attack_is_at_least_as_near_as_what_it_replaced(smooth: bool, tmp_path: Path) -> None:
    """Under one posterior, which is all there is without the truth."""
    private, model = waves(), small(smooth)
    capture = captured(*states(tmp_path, *trained(model, private.inputs, private.labels), sign=1), model)
    task = Client(model, DOMAIN).task(capture)
    (reading,) = readings(task, capture, 1, None)
    seen = [reading.observation]
    by_lbfgs = Adversary(scaled_l2(), solver=lbfgs(steps=400, target=1e-7), restarts=2)
    by_adam = Adversary(cosine(), prior=1e-3 * tv(), solver=signed_adam(lr=0.1, steps=500))
    judge = Portfolio.of(task, seen, scale_known=False).judge
    standard, before = (
        posterior(judge, task, seen, attack(task, seen)) for attack in (Standard(), by_lbfgs if smooth else by_adam)
    )
    assert float(standard) >= float(before) - torch.finfo(torch.float32).eps * 100


def test_by_default_a_finding_names_the_standard_attack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chosen, "Standard", partial(Standard, work="quick"))
    private = waves()
    capture = captured(*states(tmp_path, *trained(small(), private.inputs, private.labels), sign=1), small())
    (finding,) = inspect(small(), DOMAIN, [capture], known=private, draws=3)
    assert finding.adversary == f"standard(work='quick'), version {Standard.version}"
    assert finding.above_noise
    assert finding.nearer == (True,)


@pytest.mark.parametrize(
    "defense", ["", *(pytest.param(d, marks=pytest.mark.slow) for d in ("gaussian(std=0.01)", "prune(p=0.5)"))]
)
def test_the_cost_of_an_attack_is_not_underestimated(defense: str, tmp_path: Path) -> None:
    private, quick = record(), Standard(work="quick")
    capture = captured(*states(tmp_path, *trained(small(), private.inputs, private.labels), sign=1), small())
    task = Client(small(), DOMAIN, defense=protection(defense) if defense else None).task(capture)
    (reading,) = readings(task, capture, 1, None)
    assert quick(task, [reading.observation]).evaluations <= evaluations(quick)


def test_a_linear_first_layer_is_exact(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 4))
    private = record()
    capture = captured(*states(tmp_path, *trained(model, private.inputs, private.labels)), model)
    attacks = attacks_on(Task(model, DOMAIN), 1)[:1]
    (made,) = inspect(model, DOMAIN, [capture], known=private, attacks=attacks)
    assert made.psnr[0] > 60


def test_a_folder_of_rounds_and_clients(tmp_path: Path) -> None:
    model = small()
    expected = []
    for r in (1, 2):
        private = record(2)
        start = {name: value.clone() for name, value in model.state_dict().items()}
        save_file(start, tmp_path / f"r{r}.safetensors")
        for c in (1, 2):
            model.load_state_dict(start)
            _, after = trained(model, private.inputs[c - 1 : c], private.labels[c - 1 : c])
            if c == 1:
                save_file(after, tmp_path / f"r{r}-client{c}.safetensors")
            else:
                change = {name: after[name] - start[name] for name in start}
                save_file(change, tmp_path / f"u{r}.safetensors", metadata_of("change", round=r, client="b"))
            expected.append(int(private.labels[c - 1]))
    captures = folder_of(tmp_path, small())
    assert [c.name for c in captures] == [f"{n}.safetensors" for n in ("r1-client1", "r2-client1", "u1", "u2")]
    assert [int(c.gradient["3.bias"].argmin()) for c in captures] == [2, 2, 0, 0]
    (tmp_path / "r2.safetensors").unlink()
    with pytest.warns(CaptureWarning, match="round 2 began with") as told:
        rest = folder_of(tmp_path, small())
    assert len(told) == 2  # both clients of round 2; those of round 1 are kept
    assert [c.name for c in rest] == ["r1-client1.safetensors", "u1.safetensors"]
    (tmp_path / "r1.safetensors").unlink()
    with pytest.raises(FileError, match=r"round \d began with"):
        folder_of(tmp_path, small())
    assert len(folder_of(tmp_path, small(), captures[0].before)) == 4


@pytest.mark.parametrize("same", [True, False])
def test_rounds_of_one_client_are_looked_at_together(same: bool, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 24), nn.ReLU(), nn.Linear(24, 4))
    private = record()
    for r in (1, 2):
        generator = torch.Generator().manual_seed(9 if same else r)
        save_file({n: v.clone() for n, v in model.state_dict().items()}, tmp_path / f"r{r}.safetensors")
        model.zero_grad()
        nn.functional.cross_entropy(model(private.inputs), private.labels).backward()
        gradient = {
            n: p.grad + torch.randn(p.shape, generator=generator)
            for n, p in model.named_parameters()
            if p.grad is not None
        }
        save_file(gradient, tmp_path / f"u{r}.safetensors", metadata_of("gradient", round=r, client=3))
        torch.optim.SGD(model.parameters(), lr=0.3).step()
    captures = folder_of(tmp_path, model)
    attacks = attacks_on(Task(model, DOMAIN), 1)[:1]
    first, second, *further = inspect(model, DOMAIN, captures, known=private, attacks=attacks, draws=3)
    assert max(*first.psnr, *second.psnr) < 20
    assert len(further) == same
    assert any("the noise of rounds 1 and 2 repeats" in note for note in second.notes) == same
    for finding in further:
        assert finding.psnr[0] > 40
        assert finding.nearer == (True,)
        assert finding.labels.tolist() == [2]
        assert finding.name == "client 3, difference"


def test_what_cannot_be_inspected(tmp_path: Path) -> None:
    before, after = trained(small(), record().inputs, record().labels)
    for one, other, said in (
        (before, before, "nothing changed"),
        ({k: v for k, v in before.items() if k != "3.bias"}, after, "'3.bias' is missing"),
        (before, {**after, "3.bias": torch.zeros(5)}, "has shape"),
    ):
        with pytest.raises(FileError, match=said):
            captured(*states(tmp_path, one, other), small())
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileError, match="no weights or updates"):
        folder_of(tmp_path / "empty", small())


def test_one_bad_file_does_not_cost_the_other_clients_theirs(tmp_path: Path) -> None:
    before, after = trained(small(), record().inputs, record().labels)
    save_file(before, tmp_path / "r1.safetensors")
    for client, sent in {1: after, 2: before, 3: {**after, "3.bias": torch.zeros(5)}, 4: after}.items():
        save_file(sent, tmp_path / f"r1-client{client}.safetensors")
    save_file(after, tmp_path / "r2-client1.safetensors")  # its round began with weights that nobody wrote
    torn = tmp_path / "r1-client4.safetensors"
    torn.write_bytes(torn.read_bytes()[:-40])
    with pytest.warns(CaptureWarning) as caught:
        (capture,) = folder_of(tmp_path, small())
    assert capture.name == "r1-client1.safetensors"
    told = " ".join(str(one.message) for one in caught)
    assert all(f"r1-client{client}.safetensors" in told for client in (2, 3, 4))
    assert "r2-client1.safetensors" in told
    (tmp_path / "r1-client1.safetensors").unlink()
    with pytest.raises(FileError):  # nothing is left
        folder_of(tmp_path, small())


@pytest.mark.slow
def test_the_command_names_what_it_left_out_and_inspects_the_rest(tmp_path: Path) -> None:
    (tmp_path / "captures").mkdir()
    before, after = trained(models.build("mlp(width=4, depth=1)", DOMAIN), record().inputs, record().labels)
    for name, state in {"r1": before, "r1-client7": after, "r1-client8": after}.items():
        save_file(state, tmp_path / "captures" / f"{name}.safetensors")
    (tmp_path / "captures" / "r1-client0.safetensors").write_bytes(b"torn")
    shape = ",".join(map(str, DOMAIN.shape))
    arguments = ["inspect", "--folder", str(tmp_path / "captures"), "--model", "mlp(width=4, depth=1)"]
    ended = CliRunner().invoke(app, [*arguments, "--shape", shape, "--out", str(tmp_path / "out"), "--draws", "3"])
    assert ended.exit_code == 0, ended.output
    assert "not inspected" in ended.output
    assert "r1-client0.safetensors" in ended.output
    assert "client7" in ended.output


def test_coarse_weights_are_said(tmp_path: Path) -> None:
    before, after = trained(small(), record().inputs, record().labels)
    coarse = [{n: v.half() for n, v in state.items()} for state in (before, after)]
    assert isinstance(made := captured(*states(tmp_path, *coarse), small()), Capture)
    assert any("rounding" in note for note in made.notes)


def test_runs_in_folders_of_their_own_keep_their_weights(tmp_path: Path) -> None:
    for run, seed in (("run-1", 1), ("run-2", 2)):
        model = small()
        with torch.no_grad():
            for p in model.parameters():
                p.add_(0.01 * seed)
        before, after = trained(model, record().inputs, record().labels)
        (tmp_path / run).mkdir()
        save_file(before, tmp_path / run / "r1.safetensors", metadata_of("state", round=1))
        save_file(after, tmp_path / run / "r1-client7.safetensors", metadata_of("state", round=1, client=7))
    first, second = folder_of(tmp_path, small())
    assert first.before.path == tmp_path / "run-1" / "r1.safetensors"
    assert second.before.path == tmp_path / "run-2" / "r1.safetensors"


def test_numbered_arrays_are_named_by_their_place(tmp_path: Path) -> None:
    model = small()
    before, after = trained(model, record().inputs, record().labels)
    for name, state in (("r1", before), ("r1-client7", after)):
        save_file({str(i): value for i, value in enumerate(state.values())}, tmp_path / f"{name}.safetensors")
    (capture,) = folder_of(tmp_path, small())
    for name, value in capture.gradient.items():
        exact = (before[name].double() - after[name].double()) / capture.size
        assert torch.allclose(value.double(), exact, atol=1e-6)


def test_a_sign_is_decided_by_evidence_and_not_by_guessed_labels() -> None:
    """Guessed labels of a batch may be wrong under either sign: then nearly all of the update must be explained."""
    half, differs = [0.55, 0.29], [True, False]
    assert decided(half, differs, labels_known=True) == 0
    assert decided(half, differs) is None
    assert decided([0.81, 0.996], [True, True]) == 1
    assert decided([0.990, 0.991], [True, True], labels_known=True) is None
