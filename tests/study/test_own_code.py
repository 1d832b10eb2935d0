"""Defenses of the user's own: refused in a sentence where they release no update, never taken for another one."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Generator, Tensor, nn
from typer.testing import CliRunner

import leakgauge as lg
from leakgauge import expr
from leakgauge.audit.plan import plan
from leakgauge.cli import app
from leakgauge.defenses import Release, UpdatePart
from leakgauge.study import SpecError, load, problems
from leakgauge.types import Context, Tree

Change = Callable[[Tree], Mapping[str, Any]]


def own(change: Change, name: str = "Own") -> UpdatePart:
    """A part with ``release`` alone, as a cell of a notebook defines it: again and again under one name."""

    def release(self: UpdatePart, update: Tree, context: Context | None, *, generator: Generator) -> Release:
        return Release(dict(change(update)))

    kind = dataclass(frozen=True)(type(name, (UpdatePart,), {"release": release, "__module__": __name__}))
    return kind()


@dataclass(frozen=True)
class Masked(UpdatePart):
    """Entries times a tensor that the user gives."""

    mask: Tensor
    hidden: Callable[[Tensor], Tensor] | None = field(default=None)

    def release(self, update: Tree, context: Context | None, *, generator: Generator) -> Release:
        return Release({name: u * self.mask[: u.numel()].view(u.shape) for name, u in update.items()})


def study(**defenses: Any) -> lg.Study:
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 3))
    records = torch.rand(60, 1, 8, 8), torch.arange(60) % 3
    return lg.Study(model, records, defenses=defenses, updates=8)


def ids(**defenses: Any) -> set[str]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return {cell.id for cell in plan(study(**defenses)).cells}


def raises(update: Tree) -> dict[str, Tensor]:
    raise KeyError("layer7")


FAULTS: dict[str, tuple[Change, str]] = {
    "raises": (raises, r"Own\(\): its release raises KeyError: 'layer7'; try it"),
    "leaves out": (lambda u: {"1.weight": u["1.weight"]}, r"Own\(\): released no '1.bias'; return every tensor"),
    "adds": (lambda u: {**u, "scale": torch.ones(1)}, r"released 'scale', which the update does not have"),
    "integers": (lambda u: {n: (9 * v).to(torch.int8) for n, v in u.items()}, r"as int8; return floating-point"),
    "not finite": (lambda u: {n: v / 0 for n, v in u.items()}, r"released NaN or infinite values of '1.weight'"),
    "flat": (lambda u: {n: v.flatten() for n, v in u.items()}, r"with shape \(192,\) in the place of \(3, 64\)"),
    "arrays": (lambda u: {n: v.numpy() for n, v in u.items()}, r"released a ndarray as '1.\w+'; return tensors"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_release_that_is_none_is_refused_before_anything_runs(fault: str) -> None:
    change, sentence = FAULTS[fault]
    with pytest.raises(SpecError, match=sentence) as refused:
        study(plain="identity()", mine=own(change))
    assert "defenses.mine" in str(refused.value)


def test_masks_that_differ_in_the_middle_are_different_defenses() -> None:
    sent, withheld = torch.ones(5000), torch.ones(5000)
    withheld[100:4900] = 0  # torch prints both alike
    assert str(sent) == str(withheld)
    assert repr(Masked(sent)) != repr(Masked(withheld))
    assert repr(Masked(sent)) == repr(Masked(sent.clone()))
    assert len(ids(sent=Masked(sent), withheld=Masked(withheld))) == len(ids(a="prune(p=0.1)", b="prune(p=0.2)"))


def test_defenses_that_print_alike_and_act_differently_are_refused() -> None:
    with pytest.raises(SpecError, match=r"defenses.other: prints as bare does, .*Own\(\), and releases something else"):
        study(bare=own(dict), other=own(lambda u: {n: 0 * v for n, v in u.items()}))
    study(bare=own(dict), same=own(dict))


def test_a_setting_that_prints_as_an_address_is_refused() -> None:
    with pytest.raises(SpecError, match="prints as an address"):
        study(mine=Masked(torch.ones(9), lambda u: -u))


def test_cells_of_edited_code_are_not_reused() -> None:
    before, again = (ids(mine=own(dict)) for _ in range(2))
    edited = ids(mine=own(lambda u: {n: 2 * v for n, v in u.items()}))
    undefended = ids(mine="identity()")
    assert before == again
    assert before & edited == undefended & edited
    assert len(before - edited) == len(before - undefended) > 0


def test_cells_depend_on_the_source_of_own_attacks() -> None:
    from leakgauge.study.own_code import source_of

    def attack(*args: Any, **options: Any) -> None: ...

    assert source_of([lg.attacks.adaptive()]) == ""
    assert source_of([attack]) != ""


def test_code_within_a_text_is_never_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "records_of_a_stranger.py").write_text("raise SystemExit('ran')")
    monkeypatch.syspath_prepend(tmp_path)
    spec = tmp_path / "spec.toml"
    defense = "instahide(k=4, public='records_of_a_stranger:records')"
    spec.write_text(f'[task]\nmodel = "mlp()"\n[defenses]\nhidden = "{defense}"\n')
    for command in ("check", "audit"):
        ended = CliRunner().invoke(app, [command, str(spec)], env={"COLUMNS": "200"})
        assert ended.exit_code == 2, ended.output
        assert "'records_of_a_stranger:records' names code, which a defense does not run" in ended.output
    assert "records_of_a_stranger" not in sys.modules


def test_a_part_of_an_installed_package_is_announced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Entry:
        name = "from_a_package"

        def load(self) -> type:
            raise AssertionError("imported without a word")

    monkeypatch.setattr(expr.parts, "entry_points", lambda *, group: [Entry()])
    expr.plugins.cache_clear()
    try:
        spec = tmp_path / "spec.toml"
        spec.write_text('[task]\nmodel = "mlp()"\n[defenses]\nnone = "identity()"\nown = "from_a_package()"\n')
        ended = CliRunner().invoke(app, ["audit", str(spec)])
    finally:
        expr.plugins.cache_clear()
    assert ended.exit_code == 2, ended.output
    assert "would import and run from_a_package; look at that code" in ended.output


def test_grants_of_a_recipe_are_not_refused_before_the_model_is_read(tmp_path: Path) -> None:
    """Dropout and batch norms are known once the user's model is imported; until then nothing is said of them."""
    path = tmp_path / "spec.toml"
    for grant, refused in (("recipe.dropout", False), ("dropout", False), ("prune.threshold", True)):
        path.write_text(f'[task]\nmodel = "some_module:net"\n[threat]\ngrants = ["{grant}"]\n')
        assert any(problem.key == "threat.grants.0" for problem in problems(load(path), path)) == refused
