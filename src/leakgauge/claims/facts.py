"""What surrounds a setting: rounds, seeds, scalar parameters, weights, and what the user asks for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from leakgauge import guards
from leakgauge.claims.settings import Setting

Scope = Literal["alone", "app", "train", "round"]
"""Where a setting stands: alone in an expression, on every message of an app, on train messages, or in the function
that runs once a round."""


@dataclass(frozen=True)
class Placed:
    """A setting and where it stands."""

    setting: Setting
    where: str = ""
    scope: Scope = "alone"
    unread: tuple[str, ...] = ()


@dataclass(frozen=True)
class Facts:
    """What a program says beside its settings; places are ``file:line``. ``read`` is False for a bare expression."""

    read: bool = False
    rounds: int | None = None
    unread_rounds: str = ""
    numpy_seeds: tuple[str, ...] = ()
    torch_seeds: tuple[str, ...] = ()
    scalars: tuple[str, ...] = ()
    evaluates: tuple[str, ...] = ()
    unequal_weights: tuple[str, ...] = ()
    equal_weights: bool = False
    mods: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Asked:
    """What the user claims of the whole run: ε at δ after so many rounds.

    ``parameters`` is the size of the model, ``capture`` a folder of captured updates, in which the noise is looked for.
    """

    epsilon: float | None = None
    delta: float | None = None
    rounds: int | None = None
    parameters: int | None = None
    capture: Path | None = None

    def __post_init__(self) -> None:
        if self.epsilon is not None:
            guards.non_negative(self.epsilon, "epsilon", "claims")
        if self.delta is not None:  # 0 would be pure differential privacy, which no Gaussian noise gives
            guards.inside(self.delta, "delta", "claims", 0.0, 1.0)
