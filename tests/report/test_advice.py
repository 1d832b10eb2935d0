"""Advice: only what the audit measured or proved, with its number."""

from __future__ import annotations

from pathlib import Path

from leakgauge.report import read
from leakgauge.report.advice import advice
from tests.report.samples import BOUND, defense, make


def said(folder: Path, **defenses: str) -> str:
    return "\n".join(advice(read(make(folder, defenses)).result))


def test_leaks_are_named_with_their_count(tmp_path: Path) -> None:
    text = said(tmp_path / "run", none="recognisable", noisy="recognisable")
    assert "Do not send undefended updates: 3 of 5 records" in text
    assert "Do not rely on noisy" in text
    assert "None of the settings audited hid the records" in text


def test_silence_is_offered_as_no_proof(tmp_path: Path) -> None:
    text = said(tmp_path / "run", none="recognisable", noisy="no evidence")
    assert "found nothing through noisy" in text
    assert "no proof of safety" in text
    assert "leakgauge doctor" in text  # the set-up was not checked


def test_a_proof_names_the_noise_it_needs(tmp_path: Path) -> None:
    enough = {"expression": "clip(norm=1.0) | gaussian(std=0.93)", "ceiling": 0.5}
    made = {**defense("bounded", "recognisable"), "bound": {**BOUND, "ceiling": 1.0, "enough": enough}}
    folder = make(tmp_path / "run", checkpoints=[{"step": 0, "accuracy": None, "defenses": [made]}])
    text = "\n".join(advice(read(folder).result))
    assert "with clip(norm=1.0) | gaussian(std=0.93), nobody recognises a record with a probability above 50 %" in text


def test_an_attack_that_does_not_model_the_defense_is_called_out(tmp_path: Path) -> None:
    adversaries = [{"name": "generic", "mean": 0.1}, {"name": "adaptive", "mean": 0.7}]
    made = {**defense("pruned", "recognisable"), "adversaries": adversaries}
    folder = make(tmp_path / "run", checkpoints=[{"step": 0, "accuracy": None, "defenses": [made]}])
    assert "Do not judge pruned by generic alone" in "\n".join(advice(read(folder).result))
