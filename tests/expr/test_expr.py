"""Expressions: what they read, what they print, and what they refuse."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import leakgauge
from leakgauge import expr
from leakgauge.defenses import Chain, Gaussian, clip, gaussian
from leakgauge.errors import DomainError, ExpressionError, LeakgaugeError, SeveralFaultsError
from leakgauge.expr import REGISTRY, Part, parse, read, register
from leakgauge.priors import norm, tv
from leakgauge.types import Domain


@dataclass(frozen=True, repr=False)
class Mine(Part):
    """A stranger's part, which is in no registry."""

    level: float = 1.0
    names: tuple[str, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)


def fussy(level: float = 1.0) -> Mine:
    raise ValueError("level must be blue")


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[str, Callable[..., Any]]]:
    """A copy of the registry, so that a test may add to it."""
    copied = {kind: dict(made) for kind, made in REGISTRY.items()}
    monkeypatch.setattr(expr.parts, "REGISTRY", copied)
    return copied


def message(text: str, **options: Any) -> str:
    with pytest.raises(ExpressionError) as raised:
        parse(text, **options)
    assert raised.value.remedy, "every error says what to do"
    return str(raised.value)


def test_a_part_a_chain_a_sum() -> None:
    assert parse("gaussian(std=0.1)") == gaussian(std=0.1)
    assert parse(" clip(1.0) | gaussian(std=0.1)\n") == Chain((clip(norm=1.0), gaussian(std=0.1)))
    assert parse("1e-4*tv() + 2*norm()") == 1e-4 * tv() + 2 * norm()


def test_literals_of_every_kind() -> None:
    made = parse(f"{__name__}:Mine(level=-1.5, names=('a', 'b'), options={{'x': None, 'y': [True, 2]}})")
    assert made == Mine(-1.5, ("a", "b"), {"x": None, "y": (True, 2)})


def test_repr_leaves_defaults_out_and_reads_back() -> None:
    made = Mine(names=("a",), options={"x": 1.0})
    assert repr(made) == f"{__name__}:Mine(names=('a',), options={{'x': 1.0}})"
    assert parse(repr(made)) == made
    assert repr(Mine()) == f"{__name__}:Mine()"


def test_a_value_of_another_type_than_its_default_is_shown() -> None:
    assert "level=1" in repr(Mine(level=1))  # 1 == 1.0, but the text must read back as what it is


@pytest.mark.parametrize("sign", [1, -1])
def test_infinity_reads_back(sign: int) -> None:
    made = Mine(level=sign * math.inf)
    assert parse(repr(made)) == made


@given(
    st.floats(allow_nan=False),
    st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)).map(tuple),
)
def test_any_value_reads_back(level: float, names: tuple[str, ...]) -> None:
    made = Mine(level=level, names=names)
    assert parse(repr(made)) == made


def test_a_colon_inside_a_string_names_no_stranger() -> None:
    made = Mine(names=("my layer:foo", "a b:c d:e"))
    assert parse(repr(made)) == made


def test_a_registered_part_prints_its_name_and_a_name_is_taken_once(
    registry: dict[str, dict[str, Callable[..., Any]]],
) -> None:
    class Once(Mine):
        pass

    assert register("defense", "once")(Once) is Once
    assert registry["defense"]["once"] is Once
    assert repr(Once(level=2.0)) == "once(level=2.0)"
    with pytest.raises(ExpressionError, match="the defense 'once' is registered twice; choose another name"):
        register("defense", "once")(Mine)


class Outer:
    @dataclass(frozen=True, repr=False)
    class Inner(Part):
        """A part inside another class."""

        level: float = 1.0


class Quieter(Gaussian):
    """A stranger's subclass of a registered part."""


def test_a_subclass_and_an_inner_class_print_their_own_name() -> None:
    for made in (Quieter(std=0.5), Outer.Inner(level=2.0)):
        assert repr(made).startswith(f"{__name__}:{type(made).__qualname__}(")
        assert parse(repr(made)) == made
        assert type(parse(repr(made))) is type(made)


def test_an_entry_point_is_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    class Entry:
        name = "from_a_package"

        def load(self) -> type[Mine]:
            return Mine

    def entries(*, group: str) -> list[Entry]:
        assert group == "leakgauge.parts"
        return [Entry()]

    monkeypatch.setattr(expr.parts, "entry_points", entries)
    expr.plugins.cache_clear()
    assert parse("from_a_package(level=2.0)") == Mine(2.0)
    expr.plugins.cache_clear()


@pytest.mark.parametrize(
    ("text", "what", "remedy"),
    [
        ("gausian(std=0.1)", "unknown name 'gausian'", "did you mean 'gaussian'?"),
        ("zzz()", "unknown name 'zzz'", "known: "),
        ("gaussian", "'gaussian' is not called", "write gaussian() with its parentheses"),
        ("tv(rate=0.1)", "tv: got an unexpected keyword argument 'rate'", "its signature is tv(kind='anisotropic', "),
        ("gaussian()", "gaussian: missing a required argument: 'std'", "its signature is gaussian(std)"),
        ("gaussian(std=1.0, std=2.0)", "'std' is given twice", "give every argument once"),
        ("learned(file=3)", "learned: expected str", "its signature is learned(file"),
        ("clip(norm=1.0) |", "cannot read 'clip(norm=1.0) |'", "write it like clip(norm=1.0) | gaussian(std=0.1)"),
        ("", "cannot read ''", "write it like"),
        ("tv(\0)", "cannot read", "write it like"),
        ("gaussian(std=0.1) + tv()", "gaussian(std=0.1) + tv() makes no sense", "| chains defenses"),
        ("gaussian(std=0.1) | tv()", "gaussian(std=0.1) | tv() makes no sense", "| chains defenses"),
        ("gaussian(**{'std': 1})", "** is not allowed", "name every argument"),
        ("no_such_module.at_all:Part()", "cannot load 'no_such_module.at_all:Part'", "write package.module:name"),
        (f"{__name__}:Nothing()", f"cannot load '{__name__}:Nothing'", "write package.module:name"),
        (f"{__name__}:Mine", f"'{__name__}:Mine' is not called", "with its parentheses"),
        (f"{__name__}:fussy()", "level must be blue", "its signature is"),
    ],
)
def test_a_malformed_expression_says_what_and_the_remedy(text: str, what: str, remedy: str) -> None:
    said = message(text, where="defenses.noisy")
    assert said.startswith("defenses.noisy: ")
    assert what in said
    assert remedy in said


def test_several_faults_of_one_expression_are_listed_at_once() -> None:
    text = "clipp(norm=1.0) | gaussian(std=-1.0) | prune(p=0.5, q=1) | tv()"
    with pytest.raises(SeveralFaultsError) as raised:
        parse(text)
    (name, number, argument) = (str(problem) for problem in raised.value.problems)
    assert "unknown name 'clipp'" in name
    assert "std must lie in" in number
    assert "unexpected keyword argument 'q'" in argument
    assert all(sentence in str(raised.value) for sentence in (name, number, argument))


def test_an_unknown_argument_hides_no_other_fault() -> None:
    with pytest.raises(SeveralFaultsError) as raised:
        parse("adaptive(steps=-1, restarts=0, foo=1)", "attack")
    unknown, steps, restarts = map(str, raised.value.problems)
    assert "unexpected keyword argument 'foo'" in unknown
    assert "steps must be" in steps
    assert "restarts must be" in restarts
    assert "gaussian: got an unexpected keyword argument 'q', and lacks 'std'" in message("gaussian(q=0.5)")
    assert "unexpected keyword arguments 'a', 'b'" in message("tv(a=1, b=2)")


def test_an_outermost_part_must_be_of_the_kind_that_is_wanted() -> None:
    assert "'tv' is not a defense" in message("gaussian(std=1.0) | tv()", kind="defense")
    assert leakgauge.parse("adversary()", "attack") == leakgauge.parse("adversary()")
    with pytest.raises(SeveralFaultsError) as raised:
        parse("tv(rate=1) | gausian(std=1.0)", "defense")
    assert len(raised.value.problems) == 3


def test_reading_without_the_users_code_imports_nothing_and_still_finds_faults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "never_imported.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    reading = read("never_imported:Part(level=tv(rate=1)) | clip(norm=-1.0)", "defense", own_code=False)
    assert reading.own == ("never_imported:Part",)
    assert reading.value is None
    assert len(reading.faults) == 2
    fine = read("never_imported:Part() | clip(norm=1.0)", "defense", own_code=False)
    assert (fine.value, fine.faults) == (None, ())


def test_the_nearest_name_is_one_of_the_kind_that_is_wanted() -> None:
    assert "tv" not in message("zzz()", kind="defense").partition("known:")[2].split(", ")


def test_a_domain_error_passes_through() -> None:
    with pytest.raises(DomainError, match=r"std must lie in \[0, ∞\), got -1\.0; give a number"):
        parse("gaussian(std=-1.0)")
    with pytest.raises(DomainError, match=r"std must lie in \[0, ∞\), got 'x'; give a number"):
        parse("gaussian(std='x')")


HOSTILE = [
    "__import__('os').system('touch {mark}')",
    "__import__('os')",
    "().__class__.__bases__[0].__subclasses__()",
    "tv().__class__",
    "gaussian.__init__(std=1)",
    "open('{mark}', 'w')",
    "exec('open({mark!r}, \"w\")')",
    "os:system('touch {mark}')",
    "os.path:join('a', 'b')",
    "subprocess:run(('touch', '{mark}'))",
    "builtins:exec('open({mark!r}, \"w\")')",
    "builtins:dict(a=1)",
    "torch:os.system('touch {mark}')",
    "leakgauge.data.archive:subprocess.run(('touch', '{mark}'))",
    "leakgauge.expr.reading:importlib.import_module('antigravity')",
    "torch.hub:load('x', 'y', source='local')",
    "torch:save(1, '{mark}')",
    "numpy:save('{mark}', 1)",
    "lambda: 1",
    "lambda x:x",
    "(lambda: tv())()",
    "[x for x in ()]",
    "{{x: 1 for x in ()}}",
    "(a := 1)",
    "f'{{1}}'",
    "await x",
    "yield",
    "1 if tv() else 2",
    "tv() and norm()",
    "not tv()",
    "tv() @ norm()",
    "10**1000000000",
    "1 << 10000000000",
    "'x'*10000000000",
    "(0,)*10000000000",
    "2*3",
    "-tv()",
    "-'a'",
    "tv()[0]",
    "l2(*())",
    "{{**{{}}}}",
    "{{{{}}: 1}}",
    "{{(1, {{}}): 1}}",
    "b'bytes'",
    "1j",
    "...",
    "import os",
    "tv(); norm()",
    "tv(\n",
    "tv('\ud800')",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_is_refused_and_nothing_is_evaluated(text: str, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    message(text.format(mark=os.fspath(mark)))
    assert not mark.exists()


@pytest.mark.parametrize(
    "text",
    [
        "(" * 100_000,
        "-" * 100_000 + "1",
        "[" * 150 + "]" * 150 + ")",
        " | ".join(["identity()"] * 5_000),
        "+".join(["tv()"] * 5_000),
        "9" * 10_000,
        "identity(" * 80 + ")" * 80,
        "a" * 1_000_000,
    ],
    ids=["parentheses", "minus", "lists", "chain", "sum", "digits", "calls", "name"],
)
def test_huge_text_is_refused_in_one_short_line(text: str) -> None:
    said = message(text)
    assert "\n" not in said
    assert len(said) < 1_500


def test_a_path_without_end_is_read_in_one_pass() -> None:
    begun = time.process_time()
    for text in ("a." * 50_000, "a." * 50_000 + ":b", "a:" + "b." * 50_000, "a:b" * 30_000):
        message(text)
    assert time.process_time() - begun < 5


def test_what_is_no_text_is_refused() -> None:
    with pytest.raises(ExpressionError, match="3 is not a text; write it like"):
        parse(3)  # type: ignore[arg-type]


@given(st.text(max_size=40))
def test_any_text_is_read_or_refused_with_an_error_of_ours(text: str) -> None:
    with suppress(LeakgaugeError):
        parse(text)


@pytest.mark.parametrize(
    "text",
    [
        "adversary(prior='my_package:prior')",
        "adversary(likelihood=5)",
        "adversary(solver=tv())",
        "adversary(prior=None)",
        "best_of(attacks=5, judge=adversary())",
        "best_of(attacks=(analytic(),), judge=1.0)",
        "staged(stages={'a': 1})",
        "adversary(solver=lbfgs(wolfe=(1,)))",
        "instahide(public={'a': 1})",
    ],
)
def test_a_literal_in_the_place_of_a_part_is_a_fault(text: str) -> None:
    import leakgauge.attacks
    import leakgauge.defenses  # noqa: F401 - importing them registers their parts

    assert read(text, own_code=False).faults


def test_a_text_in_the_place_of_a_bound_of_weights_is_a_fault() -> None:
    from leakgauge.models import build

    with pytest.raises(LeakgaugeError, match="uniform is x"):
        build("mlp(uniform='x')", Domain("image", (1, 4, 4), 2))
