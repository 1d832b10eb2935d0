"""A tiny run folder, made by hand: no attack, no torch, every verdict if wanted."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

SIDE, N = 12, 5
SENTENCES = {
    "exact": "the most exposed record was recovered at 75 dB",
    "recognisable": "3 of 5 records reach ssim 0.5, and the null is beaten (p = 0.031)",
    "detectable": "the null is beaten (p = 0.031), but no record reaches ssim 0.5",
    "no evidence": "not above the null (p = 0.41), although the same adversaries beat theirs without a defense",
    "too weak": "the adversaries do not beat their null without a defense either (p = 0.5)",
    "incomplete": "a planned cell failed; see faults",
    "invalid": "the set-up does not replay",
}
BOUND = {
    "ceiling": 0.02,
    "why": "Gaussian mechanism",
    "assumptions": ["a prior guess of 1 %"],
    "corridor": {
        "success": 0.0,
        "low": 0.0,
        "high": 0.6,
        "risk": 1.0,
        "state": "tight",
        "sentence": "the attack reached 0 of 5 records, and the ceiling is 0.02: tight",
    },
}
ALONE = {"adaptive": {"p": 0.03125, "recognised": 3, "works": True}}
LEVELS = {"exact": 0.8, "recognisable": 0.45, "detectable": 0.15}
ALL = {word.replace(" ", "-"): word for word in SENTENCES}


def originals() -> Any:
    """Five records that nobody could take for a reconstruction: each a distinct ramp."""
    ramp = np.linspace(0, 1, SIDE * SIDE, dtype=np.float32).reshape(1, SIDE, SIDE)
    return np.stack([np.roll(ramp, 7 * i, -1) for i in range(N)])


def make(folder: Path, defenses: Mapping[str, str] | None = None, steps: Sequence[int] = (0,), **changes: Any) -> Path:
    """A run folder with one defense per name → verdict."""
    (folder / "cells").mkdir(parents=True)
    defenses = defenses or {"none": "recognisable", "noisy": "no evidence"}
    save_file({"inputs": originals(), "labels": np.arange(N)}, folder / "records.safetensors")
    noise = np.random.Generator(np.random.PCG64(0)).random((N, 1, SIDE, SIDE), dtype=np.float32)
    for name, share in (("aa", 0.1), ("bb", 1.0)):
        save_file({"inputs": (1 - share) * originals() + share * noise}, folder / "cells" / f"{name}.safetensors")
    checkpoints = [
        {
            "step": step,
            "accuracy": None if len(steps) == 1 else round(0.1 + 0.3 * i, 2),
            "defenses": [defense(n, w, 0.7**i) for n, w in defenses.items()],
        }
        for i, step in enumerate(steps)
    ]
    result = {**frame(list(defenses)), "checkpoints": checkpoints, **changes}
    (folder / "result.json").write_text(json.dumps(result))
    (folder / "manifest.json").write_text(json.dumps({"reported": "5eed", "reference": "0ddba11"}))
    return folder


def frame(names: Sequence[str]) -> dict[str, Any]:
    """Everything of a result but its checkpoints."""
    return {
        "schema": 1,
        "spec": {
            "task": {"model": "bayes_cnn", "data": "fashion_mnist_sample", "records": N, "weights": None},
            "defenses": {name: expression(name) for name in names},
            "seed": 0,
        },
        "environment": {"leakgauge": "0.1.0", "torch": "2.6.0"},
        "scope": "Reconstruction of records from updates was tested; membership and property inference are not tested.",
        "metric": "ssim",
        "thresholds": {"metric": "ssim", "recognisable": 0.5, "exact": 60.0, "significance": 0.05},
        "replay": {"status": "not checked", "sentence": "The set-up was not checked against your client."},
        "preflight": [],
        "ledger": [{"number": "every score", "assumes": "labels known"}],
        "faults": {},
    }


def expression(name: str) -> str:
    return "identity()" if name == "none" else "clip(norm=1.0) | gaussian(std=0.1)"


STAGES = {"mixup": "input", "instahide": "input", "ats": "input", "precode": "model", "lrp": "training"}
MIXING = {"mixup": "solvable", "instahide": "secret"}


def parts(text: str) -> dict[str, Any]:
    """What an audit says of the parts of an expression."""
    names = [(part.strip(), part.strip().partition("(")[0]) for part in text.split("|")]
    each = [
        {"expression": part, "stage": STAGES.get(name, "update"), "mixing": MIXING.get(name)}
        for part, name in names
        if name != "identity"
    ]
    return {"expression": text, "bare": not each, "parts": each}


def defense(name: str, word: str, strength: float = 1.0) -> dict[str, Any]:
    """One defense whose scores suit its verdict."""
    done = word not in ("incomplete", "invalid")
    gain = LEVELS.get(word, 0.01) * strength
    scores = [0.05 + gain + 0.04 * (2 - i) for i in range(N)]
    rows = [
        {
            "record": i,
            "label": i % 3,
            "score": s,
            "psnr": 75.0 if word == "exact" else 10 + 20 * s,
            "null": 0.02 * i,
            "exposure": 1 / 11,
            "adversary": "adaptive",
            "cell": "aa",
            "row": i,
            "null_cell": "bb",
            "null_row": i,
        }
        for i, s in enumerate(scores)
    ]
    excess = {"mean": gain, "low": gain - 0.04, "high": gain + 0.05, "p": 0.03125, "n": N}
    attack = {
        "verdict": word,
        "why": SENTENCES[word],
        "p": 0.03125 if word in LEVELS else 0.41,
        "excess": excess,
        "rate": {"rate": min(1.0, 2 * gain), "threshold": 0.08, "false_positives": 0.05},
    }
    return {
        "name": name,
        **parts(expression(name)),
        "attack": attack if done else {**attack, "p": None, "excess": None, "rate": None},
        "control": {"mean": 0.5, "low": 0.4, "high": 0.6, "p": 0.03125, "n": N, "recognised": 3, "adversaries": ALONE}
        if done
        else None,
        "bound": BOUND
        if name == "bounded"
        else {"ceiling": None, "why": "no proof is known: no noise", "corridor": None},
        "adversaries": [{"name": "adaptive", "expression": "adaptive()", "scores": {}}],
        "records": rows if done else [],
        "faults": [] if word != "incomplete" else ["a planned cell failed"],
    }
