"""Claims are examined by arithmetic and by reading: nothing of a folder runs, and every finding has its number."""

from __future__ import annotations

import json
import math
import re
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from leakgauge.bounds import gaussian_epsilon, gaussian_mu
from leakgauge.claims import Asked, Claims, Finding, examine_expression, examine_folder, examine_object
from leakgauge.cli.app import app
from leakgauge.errors import DataError, ExpressionError
from tests.claims.apps import FAULTY, SERVER, SOUND, write_app, write_job

FLIP = "LocalDpMod(clipping_norm=1.0, sensitivity=1e-4, epsilon=10.0, delta=1e-5)"
RIGHT = "LocalDpMod(clipping_norm=1.0, sensitivity=2.0, epsilon=0.9, delta=1e-5)"

MOD = "LocalDpMod(clipping_norm={}, sensitivity=1.0, epsilon=1.0, delta=1e-5)\n"


def by_rule(claims: Claims, rule: str, setting: int = 0) -> Finding:
    (finding,) = [f for f in claims.settings[setting].findings if f.rule == rule]
    return finding


def broken(claims: Claims) -> set[str]:
    return {finding.rule for finding in claims.of("broken")}


# --- one setting


def test_noise_for_a_sensitivity_that_is_not_the_clipping_norm_is_called_out_with_the_real_mu() -> None:
    claims = examine_expression(FLIP)
    finding = by_rule(claims, "sensitivity")
    std = 1e-4 * math.sqrt(2 * math.log(1.25 / 1e-5)) / 10
    assert finding.level == "broken"
    assert finding.numbers["std"] == pytest.approx(std)
    assert finding.numbers["mu"] == pytest.approx(1 / std)
    assert finding.numbers["epsilon"] == pytest.approx(gaussian_epsilon(1 / std, 1e-5))
    assert "μ = 2.064e+04" in finding.what
    assert not claims.hold


def test_the_classical_formula_beyond_its_epsilon_has_the_exact_delta_as_its_number() -> None:
    finding = by_rule(examine_expression("LocalDpMod(1.0, 1.0, 10.0, 1e-5)"), "formula")
    assert finding.level == "broken"
    assert finding.numbers["delta"] == pytest.approx(2.3e-5, rel=0.02)  # the reference's figure
    remedied = float(finding.remedy.partition("epsilon=")[2].partition(",")[0])
    assert by_rule(examine_expression(f"LocalDpMod(1.0, 1.0, {remedied * 0.999}, 1e-5)"), "formula").level == "broken"
    # what the remedy states gives the wanted ε: it is the target that is 10 then, not the stated one
    real = gaussian_epsilon(remedied / math.sqrt(2 * math.log(1.25 / 1e-5)), 1e-5)
    assert real == pytest.approx(10.0, rel=1e-3)


def test_epsilon_above_one_that_the_exact_formula_confirms_passes() -> None:
    assert by_rule(examine_expression("LocalDpMod(1.0, 1.0, 2.0, 1e-5)"), "formula").level == "holds"


def test_a_correct_setting_passes() -> None:
    claims = examine_expression(RIGHT, Asked(rounds=1))
    assert claims.hold
    assert by_rule(claims, "sensitivity").level == "holds"
    assert by_rule(claims, "composition").level == "holds"


def test_noise_for_one_clipping_norm_is_no_local_privacy_between_two_updates() -> None:
    finding = by_rule(examine_expression("LocalDpMod(1.0, 1.0, 0.9, 1e-5)"), "neighbours")
    std = math.sqrt(2 * math.log(1.25 / 1e-5)) / 0.9
    assert finding.level == "caution"
    assert finding.numbers["epsilon"] == pytest.approx(gaussian_epsilon(2 / std, 1e-5))


def test_rounds_compose_and_a_stated_budget_decides() -> None:
    text = "LocalDpMod(1.0, 1.0, 0.9, 1e-5)"
    std = math.sqrt(2 * math.log(1.25 / 1e-5)) / 0.9
    total = gaussian_epsilon(math.sqrt(100) / std, 1e-5)
    finding = by_rule(examine_expression(text, Asked(rounds=100)), "composition")
    assert finding.level == "broken"
    assert finding.numbers["epsilon"] == pytest.approx(total)
    assert by_rule(examine_expression(text, Asked(rounds=100, epsilon=1.01 * total)), "composition").level == "holds"
    assert by_rule(examine_expression(text, Asked(rounds=100, epsilon=0.99 * total)), "composition").level == "broken"


def test_central_noise_is_worth_its_multiplier() -> None:
    text = "DifferentialPrivacyServerSideFixedClipping(noise_multiplier=1.0, num_sampled_clients=10, clipping_norm=1.0)"
    finding = by_rule(examine_expression(text, Asked(epsilon=8.0, rounds=3)), "composition")
    assert finding.level == "broken"
    assert finding.numbers["epsilon"] == pytest.approx(gaussian_epsilon(math.sqrt(3), 1e-5))
    assert "noise" in broken(examine_expression(text.replace("=1.0, num", "=0.0, num")))


def test_the_sparse_vector_techniques_real_epsilon() -> None:
    finding = by_rule(examine_expression("SVTPrivacy()", Asked(parameters=500)), "release")
    assert finding.level == "broken"
    assert finding.numbers["epsilon of 500 parameters"] == pytest.approx(5.1)  # 0.1 to choose, 50 values at 0.1
    large = by_rule(examine_expression("SVTPrivacy()", Asked(parameters=7_033_229)), "release")
    assert large.numbers["epsilon of 7033229 parameters"] == pytest.approx(0.1 + 703_323 * 0.1)
    stated = examine_expression("SVTPrivacy(epsilon=1.0, epsilon_release=2.0)", Asked(rounds=1))
    assert by_rule(stated, "release").level == "holds"
    assert "release" in broken(examine_expression("SVTPrivacy(epsilon=1.0, epsilon_release=2.0)", Asked(epsilon=2.0)))


def test_own_protections_have_their_bound() -> None:
    text, epsilon = "clip(norm=1.0) | gaussian(std=3.0)", gaussian_epsilon(math.sqrt(4) / 3.0, 1e-5)
    assert examine_expression(text, Asked(epsilon=1.01 * epsilon, rounds=4)).hold
    assert not examine_expression(text, Asked(epsilon=0.99 * epsilon, rounds=4)).hold
    assert not examine_expression("gaussian(std=3.0)", Asked(epsilon=100.0)).hold  # nothing clips: no ε is proven


@pytest.mark.parametrize(
    "text", ["LocalDpModd(1, 1, 1, 1e-5)", "LocalDpMod(clipping_norm=1.0)", "tv()", "((", "np.x(1)"]
)
def test_expressions_that_are_no_setting_are_refused(text: str) -> None:
    with pytest.raises(ExpressionError):
        examine_expression(text)


def test_an_object_is_read_by_its_attributes() -> None:
    class LocalDpMod:
        clipping_norm, sensitivity, epsilon, delta = 1.0, 1e-4, 10.0, 1e-5

    assert "sensitivity" in broken(examine_object(LocalDpMod()))
    with pytest.raises(ExpressionError, match="no privacy setting"):
        examine_object(object())


def test_what_an_engine_does_not_say_is_not_examined() -> None:
    class PrivacyEngine:
        """The attributes of Opacus's engine before its first step."""

        secure_mode = True
        accountant = SimpleNamespace(history=[])

    claims = examine_object(PrivacyEngine())
    finding = by_rule(claims, "values")
    assert all(name in finding.what for name in ("noise_multiplier", "max_grad_norm", "poisson_sampling"))
    assert claims.unexamined


# --- folders


def test_a_folder_is_read_and_not_run(tmp_path: Path) -> None:
    claims = examine_folder(write_app(tmp_path, FAULTY, rounds=3))  # running it would raise SystemExit
    assert claims.settings[0].setting == repr_of(FLIP)
    assert claims.settings[0].where == "app/client.py:10"
    assert {"sensitivity", "formula", "composition"} <= broken(claims)
    assert by_rule(claims, "composition").numbers["rounds"] == 3
    places = {finding.rule: finding.where for finding in claims.settings[0].findings}
    assert places["scalars"] == "app/client.py:9"
    assert places["generator"] == "app/client.py:7"
    assert places["evaluation"] == "app/client.py:10"


def repr_of(text: str) -> str:
    (one,) = examine_expression(text).settings
    return one.setting


def test_a_sound_app_passes(tmp_path: Path) -> None:
    claims = examine_folder(write_app(tmp_path, SOUND))
    assert claims.hold
    assert not [f for f in claims.settings[0].findings if f.rule == "evaluation"]


def test_client_side_clipping_without_a_client_that_clips(tmp_path: Path) -> None:
    server = SERVER.format(wrapper="DifferentialPrivacyClientSideFixedClipping", arguments="clip, 10")
    claims = examine_folder(write_app(tmp_path, SOUND, server=server))
    assert claims.settings[1].setting.endswith("num_sampled_clients=10, clipping_norm=1.0)")  # clip is in pyproject
    assert by_rule(claims, "clipping", 1).level == "broken"


def test_values_that_are_no_constants_are_said_to_be_unread(tmp_path: Path) -> None:
    client = SOUND.replace("sensitivity=2.0", "sensitivity=context.sensitivity()")
    finding = by_rule(examine_folder(write_app(tmp_path, client)), "values")
    assert finding.level == "caution"
    assert "sensitivity" in finding.what


def test_a_new_engine_in_every_round_forgets_the_others(tmp_path: Path) -> None:
    client = """
from opacus import PrivacyEngine
from flwr.clientapp import ClientApp
app = ClientApp()

@app.train()
def fit(message, context):
    engine = PrivacyEngine()
    engine.make_private_with_epsilon(
        module=model, optimizer=o, data_loader=d, target_epsilon=2.0, target_delta=1e-5, epochs=1, max_grad_norm=1.0)
"""
    finding = by_rule(examine_folder(write_app(tmp_path, client, rounds=10)), "composition")
    assert finding.level == "broken"
    assert finding.numbers["epsilon"] == pytest.approx(gaussian_epsilon(math.sqrt(10) * gaussian_mu(2.0, 1e-5), 1e-5))


def test_a_job_is_read_off_its_files(tmp_path: Path) -> None:
    filters: list[tuple[str, dict[str, object]]] = [
        ("nvflare.app_common.filters.svt_privacy.SVTPrivacy", {"epsilon": 0.5}),
        ("somebody.else.SVTFilter", {}),
    ]
    claims = examine_folder(write_job(tmp_path, filters, rounds=4), Asked(parameters=500))
    (one,) = claims.settings
    assert one.setting == "SVTPrivacy(epsilon=0.5)"
    assert by_rule(claims, "release").numbers["epsilon of 500 parameters"] == pytest.approx(4 * 5.5)


def test_files_that_cannot_be_read_are_noted_and_the_rest_examined(tmp_path: Path) -> None:
    folder = write_app(tmp_path, FAULTY)
    (folder / "app" / "torn.py").write_text("def (")
    (folder / "config_fed_client.json").write_text("{")
    (folder / "config_fed_server.conf").write_text("a { }")
    claims = examine_folder(folder)
    assert len(claims.settings) == 1
    assert {note.partition(" ")[0] for note in claims.notes} == {
        "app/torn.py", "config_fed_client.json", "config_fed_server.conf"
    }  # fmt: skip
    with pytest.raises(DataError, match="no such"):
        examine_folder(tmp_path / "nowhere")


@pytest.mark.parametrize("wrong", ["epsilon=0.0", "delta=2.0", 'epsilon="much"', "clipping_norm=-1.0"])
def test_values_without_a_meaning_break_a_claim(wrong: str, tmp_path: Path) -> None:
    name, _, _ = wrong.partition("=")
    client = re.sub(rf"{name}=[^,)]+", wrong, SOUND)
    assert client != SOUND
    claims = examine_folder(write_app(tmp_path, client))
    assert not claims.hold
    assert [f.rule for f in claims.of("broken")] == ["values"]
    assert claims.of("broken")[0].where.startswith("app/client.py:")


def test_a_filter_of_a_job_without_a_meaning_breaks_its_claim(tmp_path: Path) -> None:
    filters: list[tuple[str, dict[str, object]]] = [
        ("leakgauge.integrations.nvflare.Defend", {}),
        ("nvflare.app_common.filters.svt_privacy.SVTPrivacy", {"epsilon": -1.0}),
    ]
    claims = examine_folder(write_job(tmp_path, filters, rounds=1))
    assert not claims.hold
    assert {one.setting.rpartition(".")[2] for one in claims.settings} >= {"Defend", "SVTPrivacy"}


@pytest.mark.parametrize(
    "built", ["partial(LocalDpMod, 1.0, 1e-4, 10.0, 1e-5)", "[make(1.0, 1e-4, 10.0, 1e-5) for make in (LocalDpMod,)]"]
)
def test_a_setting_that_is_built_elsewhere_is_said(built: str, tmp_path: Path) -> None:
    client = f"from functools import partial\nfrom flwr.clientapp.mod import LocalDpMod\nmods = {built}\n"
    claims = examine_folder(write_app(tmp_path, client))
    (one,) = claims.settings
    assert (one.setting, one.findings[0].level, one.findings[0].where) == ("LocalDpMod", "caution", "app/client.py:3")
    assert claims.unexamined == 1


@pytest.mark.parametrize(
    "before", ["def mod(small=0.9):\n    small = 1e-4\n", "def mod(small):\n", "for small in (1e-4, 9.0):\n"]
)
def test_a_name_that_is_hidden_or_changed_is_no_constant(before: str, tmp_path: Path) -> None:
    text = (
        "from flwr.clientapp.mod import LocalDpMod\nsmall = 2.0\n" + before + "    LocalDpMod(1.0, small, 0.9, 1e-5)\n"
    )
    (one,) = examine_folder(write_app(tmp_path, text)).settings
    assert one.setting == "LocalDpMod(1.0, None, 0.9, 1e-05)" or "sensitivity=None" in one.setting
    assert [f.rule for f in one.findings if f.level == "caution"][-1] == "values"


def test_numbers_in_quotes_are_numbers_where_the_app_converts_them(tmp_path: Path) -> None:
    client = SOUND.replace("sensitivity=2.0", 'sensitivity=float("2.0")')
    assert examine_folder(write_app(tmp_path, client)).hold


def test_evaluations_weigh_metrics_alone(tmp_path: Path) -> None:
    server = SERVER.format(wrapper="DifferentialPrivacyServerSideFixedClipping", arguments="1.0, 10")
    replies = """

@app.train()
def fit(message, context):
    return MetricRecord({"num-examples": 1})


@app.evaluate()
def test(message, context):
    return MetricRecord({"num-examples": len(message)})
"""
    head = "from flwr.app import MetricRecord\nfrom flwr.clientapp import ClientApp\napp = ClientApp()\n"
    equal = examine_folder(write_app(tmp_path / "equal", head + replies, server=server))
    assert by_rule(equal, "weights").level == "holds"
    unequal = examine_folder(write_app(tmp_path / "unequal", head + replies.replace("1}", "len(data)}"), server=server))
    assert by_rule(unequal, "weights").level in ("broken", "not probed")


def test_the_command_does_not_praise_what_it_could_not_read(tmp_path: Path) -> None:
    folder = write_app(tmp_path, SOUND.replace("sensitivity=2.0", "sensitivity=context.sensitivity()"))
    result = CliRunner().invoke(app, ["claims", str(folder)])
    assert result.exit_code == 0
    assert "could not be examined" in result.output
    assert "the claims hold" not in result.output


def test_a_class_of_the_apps_own_is_not_taken_for_flowers(tmp_path: Path) -> None:
    claims = examine_folder(write_app(tmp_path, "class LocalDpMod: ...\nLocalDpMod(1, 2, 3, 4)\n"))
    assert not claims.settings
    assert "no claim to examine" in claims.notes[-1]


# --- a claim that nothing answers, and what a reader of programs may miss


@pytest.mark.parametrize(
    "text",
    [
        "PercentilePrivacy(10, 0.01)",
        "SecAggPlusWorkflow(3, 2)",
        "fixedclipping_mod()",
        "make_private_with_epsilon(target_epsilon=50.0, target_delta=1e-5, epochs=1, max_grad_norm=1.0)",
    ],
)
def test_an_epsilon_that_no_setting_gives_does_not_hold(text: str) -> None:
    assert not examine_expression(text, Asked(epsilon=1.0, delta=1e-5)).hold
    assert "claim" not in broken(examine_expression(text))


def test_an_engine_that_is_planned_for_the_claim_passes() -> None:
    text = "make_private_with_epsilon(target_epsilon=1.0, target_delta=1e-5, epochs=1, max_grad_norm=1.0)"
    assert examine_expression(text, Asked(epsilon=1.0, delta=1e-5)).hold
    smaller = by_rule(examine_expression(text, Asked(epsilon=1.0, delta=1e-7)), "claim")
    assert smaller.level == "broken"  # at a smaller δ it is a larger ε
    unread = by_rule(examine_expression("make_private(noise_multiplier=0.1, max_grad_norm=1.0)", Asked(1.0)), "values")
    assert "sampling rate" in unread.what


def test_an_epsilon_claimed_of_an_app_without_any_noise_does_not_hold(tmp_path: Path) -> None:
    folder = write_app(tmp_path, "x = 1\n")
    assert examine_folder(folder).hold
    assert not examine_folder(folder, Asked(epsilon=4.0)).hold


def test_epsilon_that_grows_with_the_model_is_that_of_the_model() -> None:
    text = "clip(norm=1.0) | laplace(scale=1.0)"  # the L1 norm of p entries is up to √p times their L2 norm
    assert by_rule(examine_expression(text, Asked(parameters=10_000)), "bound").numbers["epsilon"] == pytest.approx(100)
    assert not examine_expression(text, Asked(epsilon=99.0, parameters=10_000)).hold
    assert examine_expression(text, Asked(epsilon=101.0, parameters=10_000)).hold
    unknown = by_rule(examine_expression(text, Asked(epsilon=101.0)), "bound")
    assert (unknown.level, "--parameters" in unknown.remedy) == ("broken", True)
    assert not examine_expression("SVTPrivacy()", Asked(epsilon=50.0)).hold  # 10.1 for 1,000 parameters, more for more


MODS = "from flwr.clientapp import ClientApp\nfrom flwr.clientapp.mod import LocalDpMod\n"
SVT = "from nvflare.app_common.filters import SVTPrivacy\n"
OPACUS = "from opacus import PrivacyEngine\ne = PrivacyEngine()\n"
CENTRAL = "from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping as D\n"
EITHER = "try:\n    from small import S\nexcept ImportError:\n    S = 2.0\n"
EVALUATES = "\n\n@app.evaluate()\ndef test(message, context): ...\n"


@pytest.mark.parametrize(
    "client",
    [
        f"{MODS}private = {RIGHT}\nmods = [private]\napp = ClientApp(mods=mods)",
        f"{MODS}mods = []\nmods.append({RIGHT})\napp = ClientApp(mods=mods)",
        f"{MODS}mods = []\nmods += [{RIGHT}]\napp = ClientApp(None, mods)",
        f"{MODS}mods: list = [{RIGHT}]\napp = ClientApp(mods=mods)",
        f"{MODS}def mods():\n    return [{RIGHT}]\napp = ClientApp(mods=mods())",
        f"{MODS}from app.mods import mods\napp = ClientApp(mods=mods)",
    ],
    ids=["names", "append", "add", "annotated", "function", "module"],
)
def test_mods_reach_an_app_by_any_name(client: str, tmp_path: Path) -> None:
    folder = write_app(tmp_path, client + EVALUATES)
    if "app.mods" in client:
        (folder / "app" / "mods.py").write_text(f"{MODS}mods = [{RIGHT}]\n")
    (one,) = examine_folder(folder).settings
    assert "evaluation" in [finding.rule for finding in one.findings]


def test_a_mod_of_the_function_that_builds_clients_is_not_the_apps(tmp_path: Path) -> None:
    client = f"{MODS}def client_fn(context):\n    private = {RIGHT}\napp = ClientApp(client_fn)"
    (one,) = examine_folder(write_app(tmp_path, client + EVALUATES)).settings
    assert "evaluation" not in [finding.rule for finding in one.findings]


@pytest.mark.parametrize(
    "client",
    [
        "from flwr.clientapp.mod import *\nx = LocalDpMod(1.0, 1e-4, 10.0, 1e-5)\n",
        "import flwr as fl\nx = fl.client.mod.LocalDpMod(1.0, 1e-4, 10.0, 1e-5)\n",
        "from flwr.client.mod import LocalDpMod\nPrivate = LocalDpMod\nx = Private(1.0, 1e-4, 10.0, 1e-5)\n",
    ],
    ids=["star", "package", "second name"],
)
def test_a_setting_is_found_under_any_name(client: str, tmp_path: Path) -> None:
    claims = examine_folder(write_app(tmp_path, client))
    assert len(claims.settings) == 1
    assert "sensitivity" in broken(claims)


@pytest.mark.parametrize(
    ("client", "unread"),
    [
        (f"{SVT}SVTPrivacy(**how)\n", "fraction, epsilon, noise_var"),
        (f"{OPACUS}e.make_private(noise_multiplier=1.0, max_grad_norm=1.0, **how)\n", "poisson_sampling"),
        (f"{CENTRAL}D(*some, 5.0, 0.1, 10)\n", "noise_multiplier"),
        (f"{MODS}{EITHER}LocalDpMod(1.0, S, 0.9, 1e-5)\n", "sensitivity"),
    ],
    ids=["keywords", "options", "stars", "imported or assigned"],
)
def test_arguments_that_a_call_hides_are_said_to_be_unread(client: str, unread: str, tmp_path: Path) -> None:
    finding = by_rule(examine_folder(write_app(tmp_path, client)), "values")
    assert finding.level == "caution"
    assert unread in finding.what


def test_a_constant_of_two_files_by_one_name_is_unread(tmp_path: Path) -> None:
    folder = write_app(tmp_path, f"{MODS}from config import S\nLocalDpMod(1.0, S, 0.9, 1e-5)\n")
    for name, value in (("a", "2.0"), ("b", "1e-4")):
        (folder / name).mkdir()
        (folder / name / "config.py").write_text(f"S = {value}\n")
    assert "sensitivity" in by_rule(examine_folder(folder), "values").what


@pytest.mark.parametrize(
    ("server", "rounds"),
    [
        ("strategy.start(grid=grid, initial_arrays=arrays)\n", 3),  # Flower's own default
        ("strategy.start(grid, arrays, 50)\n", 50),
        ("import flwr as fl\nfl.server.ServerConfig(50)\n", 50),
    ],
)
def test_rounds_are_read_by_their_place(server: str, rounds: int, tmp_path: Path) -> None:
    claims = examine_folder(write_app(tmp_path, SOUND, server=server, rounds=1))
    assert by_rule(claims, "composition").numbers["rounds"] == rounds


def test_rounds_that_cannot_be_read_are_said(tmp_path: Path) -> None:
    folder = write_app(tmp_path, SOUND, server="strategy.start(grid=grid, num_rounds=many())\n", rounds=1)
    finding = by_rule(examine_folder(folder), "values")
    assert "number of rounds" in finding.what
    assert finding.where == "app/server.py:1"
    assert not [f for f in examine_folder(folder, Asked(rounds=1)).settings[0].findings if f.rule == "values"]


def test_an_engine_that_a_helper_builds_may_be_one_of_every_round(tmp_path: Path) -> None:
    client = """
from opacus import PrivacyEngine

def private(model):
    return PrivacyEngine().make_private_with_epsilon(
        module=model, target_epsilon=1.0, target_delta=1e-5, epochs=1, max_grad_norm=1.0)
"""
    finding = by_rule(examine_folder(write_app(tmp_path, client, rounds=30)), "composition")
    assert finding.level == "caution"
    assert finding.numbers["rounds"] == 30


def test_keras_seeds_numpy_as_well(tmp_path: Path) -> None:
    claims = examine_folder(write_app(tmp_path, "import keras\nkeras.utils.set_random_seed(1)\n" + SOUND))
    assert by_rule(claims, "generator").where == "app/client.py:2"


# --- the command


def test_the_command_exits_with_3_where_a_claim_does_not_hold() -> None:
    result = CliRunner().invoke(app, ["claims", FLIP])
    assert result.exit_code == 3
    assert "BROKEN      sensitivity" in result.output
    assert "not installed, not probed" in result.output or "probed: flwr" in result.output
    result = CliRunner().invoke(app, ["claims", RIGHT, "--json"])
    assert result.exit_code == 0
    assert json.loads(result.output)["hold"] is True


def test_the_command_imports_nothing_unless_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.py").write_text("raise SystemExit(9)")
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["claims", "mine:mod"])
    assert result.exit_code == 2
    assert "--own-code" in result.output


@pytest.mark.parametrize(
    "text",
    [
        "a0 = 1.0\n" + "".join(f"a{i + 1} = [{', '.join([f'a{i}'] * 9)}]\n" for i in range(19)) + MOD.format("a19"),
        f"x{'.a' * 900}.ClientApp({MOD.format('1.0')})\n" * 30,
        MOD.format("1.0") * 3000 + "app = ClientApp(mods=[])\n",
    ],
    ids=["lists of lists", "long names", "many settings"],
)
def test_a_program_does_not_keep_the_reader_busy(text: str, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(f"from flwr.clientapp.mod import LocalDpMod\n{text}")
    begun = time.process_time()
    examine_folder(tmp_path)
    assert time.process_time() - begun < 5


def test_a_configuration_of_tables_in_tables(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(f"[tool.flwr.app.config]\n{'a.' * 3000}b = 1\n")
    assert any("pyproject.toml is not read" in note for note in examine_folder(tmp_path).notes)


def test_values_that_no_rule_can_compute_with_are_refused(tmp_path: Path) -> None:
    filters = [("nvflare.app_common.filters.percentile_privacy.PercentilePrivacy", {"gamma": "identity()"})]
    (setting,) = examine_folder(write_job(tmp_path, filters)).settings
    assert [finding.level for finding in setting.findings] == ["broken"]
    assert examine_expression(FLIP.replace("10.0", "9" * 19)).settings


@pytest.mark.parametrize(("subject", "says"), [("", "nothing"), (" ", "nothing"), ("no.json", "no such file")])
def test_a_subject_that_is_not_there_is_not_taken_for_the_folder_one_stands_in(subject: str, says: str) -> None:
    result = CliRunner().invoke(app, ["claims", subject])
    assert result.exit_code == 2
    assert says in result.output


@pytest.mark.parametrize("wrong", [("--delta", "0"), ("--delta", "1.5"), ("--epsilon", "nan")])
def test_a_claim_that_means_nothing_is_refused(wrong: tuple[str, str]) -> None:
    """δ = 0 used to be read as none, and no ε is above NaN: both passed."""
    result = CliRunner().invoke(app, ["claims", "clip(norm=1.0) | gaussian(std=5.0)", *wrong])
    assert result.exit_code == 2
    assert wrong[0][2:] in result.output
