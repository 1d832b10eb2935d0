"""The core of Defend, whatever the framework: protect an update by any update-stage part."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from leakgauge import guards
from leakgauge.errors import DomainError, ObservationError
from leakgauge.integrations.exchange import Arrays, Exchange

if TYPE_CHECKING:
    from torch import Generator

    from leakgauge.defenses import Protection

STATE_WORDS, STATE_FROM = 624, 24
"""torch's generator state: 24 bytes of counters, then 624 words of 8 bytes, of which the lower 4 are used."""


@dataclass(frozen=True)
class Defending:
    """A protection of the weight change ``after − before``; what is sent is ``before + released``.

    ``protection`` is an expression of update-stage parts: ``clip(norm=1.0) | gaussian(std=0.1)``. Numbers in it are in
    the units of the weight change, which holds the learning rate. The noise comes from a generator of its own, with
    every word of its state from the operating system, whatever the app seeds; it is not a cryptographic one. Entries
    that are not trained (counters, running statistics) go back as they came, unless ``buffers = "send"``: they would
    leave unprotected.
    """

    protection: str
    buffers: Literal["withhold", "send"] = "withhold"
    parts: Protection = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        from leakgauge.defenses import protection
        from leakgauge.defenses.update import Soteria

        guards.choice(self.buffers, "buffers", "Defend", ("withhold", "send"))
        parts = protection(self.protection)
        early = (*parts.input, *parts.model, *parts.training)
        if early or parts.update.per_example or any(isinstance(part, Soteria) for part in parts.chain.parts):
            raise DomainError(
                f"{self.protection} needs the client's records or its training, and here is the update alone",
                where="Defend",
                remedy="name parts that act on the update: clip(norm=1.0) | gaussian(std=0.1)",
            )
        object.__setattr__(self, "parts", parts)

    def released(self, both: Exchange) -> Arrays:
        """The weights that are sent, names, shapes and types as before."""
        import torch

        trained = [name for name in both.after if name not in both.buffers]
        if not trained:
            raise ObservationError("no trained entries", where="Defend")
        change = {n: torch.from_numpy(np.asarray(both.after[n] - both.before[n])) for n in trained}
        observed = self.parts.update.release(change, None, generator=private_generator()).observed
        sent = {n: _like(both.before[n] + observed[n].detach().numpy(), both.before[n]) for n in trained}
        rest = both.before if self.buffers == "withhold" else both.after
        return {name: sent.get(name, rest[name]) for name in both.after}


def _like(value: np.ndarray[Any, Any], reference: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    if not np.isfinite(value).all():
        raise ObservationError("the protected update is not finite", where="Defend")
    return np.asarray(value, dtype=reference.dtype).reshape(reference.shape)


def private_generator() -> Generator:
    """A generator whose whole state comes from the operating system.

    ``manual_seed`` uses 32 bits of a seed: all of them can be tried against entries whose true change is known (a dead
    unit's is zero), which gives the noise away.
    """
    import torch

    generator = torch.Generator().manual_seed(0)
    state = generator.get_state()
    words = np.zeros(STATE_WORDS, dtype="<u8")
    words[:] = np.frombuffer(secrets.token_bytes(4 * STATE_WORDS), dtype="<u4")
    until = STATE_FROM + 8 * STATE_WORDS
    if state.numel() < until:
        raise ObservationError("torch keeps its generator's state in another form", where="Defend")
    state[STATE_FROM:until] = torch.from_numpy(words.view(np.uint8))
    generator.set_state(state)
    return generator
