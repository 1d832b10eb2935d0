"""Parts that say nothing of themselves, and public bijections of what is sent."""

from __future__ import annotations

import warnings
from typing import Any

import leakgauge as lg
from evidence import Context, Measurement, Number, at_least, check, exactly
from leakgauge.audit import audit
from leakgauge.errors import AssumptionWarning
from leakgauge.testing import BIJECTIONS, worth_of_bijection
from leakgauge.testing.invariance import SLACK


def _verdict(model: str, part: Any) -> dict[str, Any]:
    """The word of one audit at the default settings but fewer steps."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AssumptionWarning)
        study = lg.Study(
            model=model,
            records=lg.data.load("fashion_mnist_sample"),
            defenses={"own": part},
            adversaries={"adaptive": "adaptive(steps=150)"},
            leave_out=["generic"],
            updates=8,
            seed=3,
        )
        result = audit(study)
    defense = result.checkpoints[0].defenses[0]
    return {"model": model, "part": repr(part), "verdict": defense.verdict, "why": defense.attack.why}


@check("unmodelled_parts", rows="unmodelled-parts", cost="minutes", uses=("tests/adversary/own_parts.py",))
def unmodelled_parts(context: Context) -> Measurement:
    """Five defenses written with ``release`` alone, and two that call numpy inside, each in an audit of its own."""
    from tests.adversary import own_parts as own

    leaking = [
        ("cnn_13700", own.Negated()),
        ("mlp(width=64, depth=1)", own.Negated()),
        ("cnn_13700", own.Shuffled()),
        ("mlp(width=64, depth=1)", own.Shuffled()),
        ("cnn_13700", own.BiasNoise()),
        ("cnn_13700", own.Rotated()),
        ("cnn_13700", own.Dropping()),
    ]
    table = []
    for model, part in [*leaking, ("cnn_13700", own.NumpyRounded()), ("cnn_13700", own.NumpySorted())]:
        table.append(_verdict(model, part))
        context.say(f"{table[-1]['part']} on {model}: {table[-1]['verdict']}")
    found = sum(row["verdict"] in ("exact", "recognisable") for row in table[: len(leaking)])
    silent = sum(row["verdict"] == "no evidence" for row in table[len(leaking) :])
    return Measurement(
        {
            "parts and networks attacked": Number(found, exactly(len(leaking))),
            "numpy parts called no evidence": Number(silent, exactly(0)),
        },
        detail="bundled images, 8 records, adaptive(steps=150), default verdict; the word of each is in the table",
        table=table,
    )


@check("invariance", rows="order-and-invariance", cost="minutes", uses=("tests/testing/test_invariance.py",))
def invariance(context: Context) -> Measurement:
    """Every registered defense and listed chain, with and without a public bijection after it."""
    from tests.testing.test_invariance import PAIRS, chosen

    table, broken = [], 0
    confidence = 1 - 0.05 / len(PAIRS)
    for number, (text, name) in enumerate(PAIRS):
        change = worth_of_bijection(text, BIJECTIONS[name], confidence=confidence, **chosen(text, name))
        violated = max(change.low, -change.high) > SLACK
        broken += violated
        if violated or abs(change.mean) > SLACK:
            row = {"defense": text, "bijection": name, "change": round(change.mean, 2)}
            table.append({**row, "interval": f"[{change.low:.2f}, {change.high:.2f}]"})
        if number % 20 == 0:
            context.say(f"{number + 1} of {len(PAIRS)}: {broken} violated")
    return Measurement(
        {
            "generated pairs": Number(len(PAIRS), at_least(200)),
            "scores changed beyond the interval": Number(broken, exactly(0)),
            "mean scores changed by more than half a dB": Number(len(table)),
        },
        detail=f"{', '.join(BIJECTIONS)}; images and a table, labels known and inferred; intervals at "
        f"{confidence:.3%}, since there are many",
        table=table,
    )
