"""`make test-processors`: every setting takes effect, what a machine lacks is left out, a failure is a failure."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.processors import Setting, capability, playable, run, settings

BY_NAME = {setting.name: setting for setting in settings()}
OWN = Setting("own", "DEFAULT")


def test_torch_takes_the_processor_for_what_the_setting_says() -> None:
    own = capability(OWN.environment())
    for name in ("default", "avx2", "avx512"):
        if playable(BY_NAME[name], own):
            assert capability(BY_NAME[name].environment()) == BY_NAME[name].level
    assert capability(BY_NAME["compatible"].environment()) == own


@pytest.mark.parametrize(
    ("own", "names"),
    [
        ("AVX512", ["default", "avx2", "avx512", "compatible"]),
        ("AVX2", ["default", "avx2", "compatible"]),
        ("DEFAULT", ["default", "compatible"]),
        ("SVE256", ["default", "compatible"]),
    ],
)
def test_a_machine_plays_no_more_than_it_can(own: str, names: list[str]) -> None:
    assert [setting.name for setting in settings() if playable(setting, own)] == names


def test_variables_of_one_setting_do_not_reach_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MKL_CBWR", "COMPATIBLE")
    assert "MKL_CBWR" not in BY_NAME["avx2"].environment()
    assert "ATEN_CPU_CAPABILITY" not in BY_NAME["compatible"].environment()


def test_one_line_for_what_passes_and_the_session_for_what_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "test_one.py").write_text("import os\n\ndef test_one():\n    assert 'MKL_CBWR' not in os.environ\n")
    assert run(BY_NAME["default"], [], root=tmp_path)
    line = capsys.readouterr().out
    assert line.startswith("default: passed (1 passed; ")
    assert line.count("\n") == 1
    assert not run(BY_NAME["compatible"], [], root=tmp_path)
    said = capsys.readouterr().out
    assert said.startswith("compatible: FAILED (1 failed; ")
    assert "assert 'MKL_CBWR' not in os.environ" in said
