"""What this evidence cannot tell apart: other settings that replay as well."""

from __future__ import annotations

from dataclasses import replace

from leakgauge.doctor.case import Case
from leakgauge.doctor.fit import fit_rate
from leakgauge.doctor.one_step import contexts
from leakgauge.doctor.setup import Setup

Classes = tuple[tuple[str, ...], ...]
"""Groups of settings; each group lists what cannot be separated."""


def alternatives(case: Case, setup: Setup) -> Classes:
    """Groups of settings that replay alike; each group names what this evidence cannot separate."""
    return tuple(
        each
        for each in (
            _reductions(case, setup),
            _momenta(setup),
            _modes(case, setup),
            _steps(case, setup),
            _orders(case, setup),
            _norms(case, setup),
            _signs(setup),
        )
        if each
    )


def _alike(case: Case, setup: Setup) -> Setup | None:
    """The set-up with its learning rate fitted anew, if it replays."""
    if case.replayer.working(setup) is None:
        return None
    fit = fit_rate(case, setup) if setup.holds != "gradient" else case.residual(setup)
    return fit.setup if case.explains(fit) else None


def _reductions(case: Case, setup: Setup) -> tuple[str, ...]:
    if setup.holds == "gradient" or (setup.minibatch or case.replayer.batch) == 1:
        return ()
    other = setup.other_reduction(case.replayer.batch)
    keys = ("reduction", "learning_rate", *(("weight_decay",) if setup.weight_decay else ()))
    return setup.text(*keys), other.text(*keys)


def _momenta(setup: Setup) -> tuple[str, ...]:
    if setup.local_steps > 1 or setup.holds == "gradient":
        return ()
    return f"momentum = {setup.momentum:g}", "any other momentum: a first step has none"


def _modes(case: Case, setup: Setup) -> tuple[str, ...]:
    if not case.replayer.mode_matters:
        return ()
    other = replace(setup, mode="eval" if setup.mode == "train" else "train")
    return (setup.text("mode"), other.text("mode")) if _alike(case, other) else ()


def _steps(case: Case, setup: Setup) -> tuple[str, ...]:
    """Other numbers of steps, with a learning rate of their own."""
    if setup.holds == "gradient":
        return ()
    keys = ("local_steps", "learning_rate", "minibatch")
    tried = [replace(setup, local_steps=n) for n in (setup.local_steps - 1, setup.local_steps + 1) if n > 0]
    if setup.minibatch is not None:
        tried.append(replace(setup, local_steps=1, minibatch=None, order=None))
    if setup.local_steps > 2:
        tried.append(replace(setup, local_steps=1))
    rated = [replace(s, learning_rate=s.learning_rate * setup.local_steps / s.local_steps) for s in tried]
    alike = [other.text(*keys) for other in (_alike(case, s) for s in rated) if other is not None]
    return (setup.text(*keys), *dict.fromkeys(alike)) if alike else ()


def _orders(case: Case, setup: Setup) -> tuple[str, ...]:
    if setup.minibatch is None:
        return ()
    size = case.replayer.batch
    turned = replace(setup, order=(setup.order or tuple(range(size)))[::-1])
    return (setup.text("order"), turned.text("order")) if _alike(case, turned) else ()


def _norms(case: Case, setup: Setup) -> tuple[str, ...]:
    others = [c for c in contexts(case, setup) if c.mode == setup.mode and c.normalise != setup.normalise]
    alike = [c.text("normalise") for c in others if _alike(case, c)]
    return (setup.text("normalise"), *alike) if alike else ()


def _signs(setup: Setup) -> tuple[str, ...]:
    if setup.holds == "weights":
        return ()
    if setup.holds == "gradient":
        turned = "its sign turned" if setup.sign > 0 else "its sign as it should be"
        return f"a gradient, sign = {setup.sign}", f"a change with learning_rate = 1 and {turned}"
    if setup.sign < 0:
        return f"a change with its sign turned, {setup.text('learning_rate')}", "a gradient times a number"
    return ()
