"""Examine the privacy settings of an expression, a folder, or an object of the user's."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from leakgauge.claims.facts import Asked, Facts, Placed
from leakgauge.claims.findings import Claims, Examined, Finding, refused
from leakgauge.claims.jobs import job_settings
from leakgauge.claims.noise import noise_findings
from leakgauge.claims.rules import findings_of
from leakgauge.claims.rules.base import Case, ordered
from leakgauge.claims.settings import KIND, Defend, Setting
from leakgauge.claims.source import facts_of, read_program, setting_named, settings_of
from leakgauge.errors import DataError, ExpressionError
from leakgauge.expr import read

ANSWERS = {"composition", "bound", "release", "claim", "values", "noise"}
"""Rules that say something of an ε, if only that it cannot be read."""
NOTHING = "no privacy setting that leakgauge knows was found, hence no claim to examine"


def examine_expression(text: str, asked: Asked = Asked()) -> Claims:  # noqa: B008 - a frozen value
    """One setting written as an expression: ``LocalDpMod(clipping_norm=1.0, …)``, or a protection of leakgauge's."""
    import leakgauge.defenses  # noqa: F401 - registers them

    value = read(text, (KIND, "defense"), where="claims", own_code=False).get()
    setting = value if isinstance(value, Setting) else Defend(protection=text)
    return _answered(_claims(text, [Placed(setting)], Facts(), asked), asked)


def examine_folder(folder: Path, asked: Asked = Asked()) -> Claims:  # noqa: B008
    """An app's folder, a job's, or one file of either; nothing of it runs."""
    if not folder.exists():
        raise DataError("no such file or folder", where=str(folder), remedy="give an app's folder, a job or a setting")
    if folder.is_file() and folder.suffix not in (".py", ".json"):
        raise DataError(f"unknown ending {folder.suffix!r}", where=str(folder), remedy="give .py, .json or a folder")
    program, notes = read_program(folder) if folder.suffix != ".json" else (None, [])
    placed, others = settings_of(program) if program is not None else ([], [])
    jobs, wrong, rounds, unread = job_settings(folder) if folder.suffix != ".py" else ([], [], None, [])
    placed, others = [*placed, *jobs], [*others, *wrong]
    facts = facts_of(program, placed) if program is not None else Facts(read=True)
    if facts.rounds is None:
        facts = dataclasses.replace(facts, rounds=rounds)
    notes += [*unread, *([] if placed or others else [NOTHING])]
    claims = _claims(str(folder), placed, facts, asked, notes)
    return _answered(dataclasses.replace(claims, settings=(*claims.settings, *others)), asked)


def examine_object(target: Any, asked: Asked = Asked(), *, name: str = "") -> Claims:  # noqa: B008
    """A live object: a mod or strategy of Flower's, a filter of NVFlare's, an engine of Opacus's."""
    setting = setting_of(target)
    fields = [f for f in dataclasses.fields(setting) if f.default is not None]
    unread = tuple(f.name for f in fields if getattr(setting, f.name) is None)
    return _answered(_claims(name or repr(target), [Placed(setting, unread=unread)], Facts(), asked), asked)


def setting_of(target: Any) -> Setting:
    """The setting that an object has, read off its attributes."""
    kind = type(target).__name__ if not hasattr(target, "__name__") else target.__name__
    if kind == "PrivacyEngine":
        return _engine(target)
    maker = setting_named(kind)
    if maker is None:
        raise ExpressionError(
            f"a {kind} is no privacy setting that leakgauge knows",
            where="claims",
            remedy="see `leakgauge list setting`",
        )
    values = {}
    for field in dataclasses.fields(maker):
        own = "clipping_norm" if field.name == "initial_clipping_norm" else field.name
        if hasattr(target, own):
            values[field.name] = getattr(target, own)
        elif field.default is dataclasses.MISSING:
            values[field.name] = None
    return maker(**values)


def _engine(engine: Any) -> Setting:
    """What an engine of Opacus's has done so far: the noise multiplier of its last steps."""
    history = list(engine.accountant.history)
    maker: Any = setting_named("make_private")
    setting: Setting = maker(
        noise_multiplier=float(history[-1][0]) if history else None,
        max_grad_norm=None,
        poisson_sampling=None,
        secure_mode=bool(engine.secure_mode),
    )
    return setting


def _claims(subject: str, placed: Iterable[Placed], facts: Facts, asked: Asked, notes: Iterable[str] = ()) -> Claims:
    examined = []
    for one in placed:
        case = Case(one, facts, asked)
        try:
            findings = findings_of(case)
        except (TypeError, ValueError, ArithmeticError) as fault:  # texts for numbers, numbers that no float holds
            examined.append(refused(repr(one.setting), one.where, fault))
            continue
        if asked.capture is not None:
            findings = ordered([*noise_findings(case, asked.capture), *findings])
        examined.append(Examined(repr(one.setting), one.where, findings))
    return Claims(subject, tuple(examined), tuple(notes))


def _answered(claims: Claims, asked: Asked) -> Claims:
    """With a finding where the user claims an ε, and nothing was found that could have one."""
    rules = {finding.rule for one in claims.settings for finding in one.findings}
    if asked.epsilon is None or rules & ANSWERS:
        return claims
    what = f"claimed is ε = {asked.epsilon:g}, and nothing that was found gives an ε"
    remedy = "add noise, or give the setting that adds it"
    unanswered = Examined(f"ε = {asked.epsilon:g}", "", (Finding("claim", "broken", what, remedy),))
    return dataclasses.replace(claims, settings=(*claims.settings, unanswered))
