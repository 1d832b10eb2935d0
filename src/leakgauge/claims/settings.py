"""Privacy settings of other packages as parts, so that an expression can name one: ``LocalDpMod(epsilon=1.0, …)``.

A setting has the names and the order of arguments of the object that it describes, and computes nothing by itself. A
value that cannot be read off a program without running it is None.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from leakgauge import guards
from leakgauge.expr import Part, register

KIND = "setting"
Value = float | None


@dataclass(frozen=True)
class Setting(Part):
    """What all settings have: the ``package`` that they belong to, and the order of positional arguments there."""

    package: ClassVar[str] = ""
    order: ClassVar[tuple[str, ...]] = ()

    def _positive(self, *names: str) -> None:
        for name in names:
            if getattr(self, name) is not None:
                guards.positive(getattr(self, name), name, self.expression_name)

    def _at_least_zero(self, *names: str) -> None:
        for name in names:
            if getattr(self, name) is not None:
                guards.non_negative(getattr(self, name), name, self.expression_name)


class Flower(Setting):
    """A setting of Flower's."""

    package = "flwr"


class NVFlare(Setting):
    """A setting of NVFlare's."""

    package = "nvflare"


class Opacus(Setting):
    """A setting of Opacus's."""

    package = "opacus"


@register(KIND, "LocalDpMod")
@dataclass(frozen=True)
class LocalDpMod(Flower):
    """Flower's local differential privacy: clip the update, add noise of ``sensitivity √(2 ln(1.25/δ)) / ε``."""

    clipping_norm: Value
    sensitivity: Value
    epsilon: Value
    delta: Value
    order = ("clipping_norm", "sensitivity", "epsilon", "delta")

    def __post_init__(self) -> None:
        self._positive("clipping_norm", "epsilon")
        self._at_least_zero("sensitivity")
        if self.delta is not None:
            guards.inside(self.delta, "delta", "LocalDpMod", 0.0, 1.0)


@dataclass(frozen=True, kw_only=True)
class _Central(Flower):
    noise_multiplier: Value
    num_sampled_clients: Value

    def __post_init__(self) -> None:
        self._at_least_zero("noise_multiplier")
        self._positive("num_sampled_clients")


@dataclass(frozen=True, kw_only=True)
class _Fixed(_Central):
    clipping_norm: Value
    accountant: Any = None
    order = ("strategy", "noise_multiplier", "clipping_norm", "num_sampled_clients")

    def __post_init__(self) -> None:
        super().__post_init__()
        self._positive("clipping_norm")


@dataclass(frozen=True, kw_only=True)
class _Adaptive(_Central):
    initial_clipping_norm: Value = 0.1
    target_clipped_quantile: Value = 0.5
    clip_norm_lr: Value = 0.2
    clipped_count_stddev: Value = None
    order = (
        "strategy",
        "noise_multiplier",
        "num_sampled_clients",
        "initial_clipping_norm",
        "target_clipped_quantile",
        "clip_norm_lr",
        "clipped_count_stddev",
    )


@register(KIND, "DifferentialPrivacyServerSideFixedClipping")
@dataclass(frozen=True, kw_only=True)
class ServerFixed(_Fixed):
    """Flower's central differential privacy: the server clips to a fixed norm and noises the mean."""


@register(KIND, "DifferentialPrivacyClientSideFixedClipping")
@dataclass(frozen=True, kw_only=True)
class ClientFixed(_Fixed):
    """Flower's central differential privacy: clients clip (``fixedclipping_mod``), the server noises the mean."""


@register(KIND, "DifferentialPrivacyServerSideAdaptiveClipping")
@dataclass(frozen=True, kw_only=True)
class ServerAdaptive(_Adaptive):
    """Flower's central differential privacy with a clipping norm that follows a quantile of the updates' norms."""


@register(KIND, "DifferentialPrivacyClientSideAdaptiveClipping")
@dataclass(frozen=True, kw_only=True)
class ClientAdaptive(_Adaptive):
    """The same where clients clip (``adaptiveclipping_mod``)."""


@register(KIND, "fixedclipping_mod")
@dataclass(frozen=True)
class FixedClippingMod(Flower):
    """Flower's client mod that clips to the norm that the server sends."""


@register(KIND, "adaptiveclipping_mod")
@dataclass(frozen=True)
class AdaptiveClippingMod(Flower):
    """Flower's client mod that clips, and says whether it had to."""


@dataclass(frozen=True)
class SecureAggregation(Flower):
    """Masks that cancel in a sum: the server is to see sums only."""


@register(KIND, "secaggplus_mod")
@dataclass(frozen=True)
class SecAggPlusMod(SecureAggregation):
    """Flower's SecAgg+ at the client."""


@register(KIND, "secagg_mod")
@dataclass(frozen=True)
class SecAggMod(SecureAggregation):
    """Flower's SecAgg at the client."""


@register(KIND, "SecAggPlusWorkflow")
@dataclass(frozen=True)
class SecAggPlusWorkflow(SecureAggregation):
    """Flower's SecAgg+ at the server."""

    num_shares: Value = None
    reconstruction_threshold: Value = None
    order = ("num_shares", "reconstruction_threshold")


@register(KIND, "SecAggWorkflow")
@dataclass(frozen=True)
class SecAggWorkflow(SecureAggregation):
    """Flower's SecAgg at the server."""

    reconstruction_threshold: Value = None
    order = ("reconstruction_threshold",)


@register(KIND, "PercentilePrivacy")
@dataclass(frozen=True)
class PercentilePrivacy(NVFlare):
    """NVFlare's filter that sends the largest entries, cut off at ``gamma``."""

    percentile: Value = 10
    gamma: Value = 0.01
    order = ("percentile", "gamma")


@register(KIND, "SVTPrivacy")
@dataclass(frozen=True)
class SVTPrivacy(NVFlare):
    """NVFlare's sparse vector technique: ``epsilon`` pays for choosing entries, ``noise_var`` for each one sent."""

    fraction: Value = 0.1
    epsilon: Value = 0.1
    noise_var: Value = 0.1
    gamma: Value = 1e-5
    tau: Value = 1e-6
    epsilon_release: Value = None
    order = ("fraction", "epsilon", "noise_var", "gamma", "tau")

    def __post_init__(self) -> None:
        self._positive("fraction", "epsilon", "gamma", "epsilon_release")

    def uploads(self, parameters: int) -> int:
        """How many entries of a model are sent."""
        return min(math.ceil(parameters * float(self.fraction or 0.0)), parameters)


@register(KIND, "ExcludeVars")
@dataclass(frozen=True)
class ExcludeVars(NVFlare):
    """NVFlare's filter that leaves variables out, by their names or a regular expression."""

    exclude_vars: Any = None
    order = ("exclude_vars",)


@register(KIND, "make_private")
@dataclass(frozen=True, kw_only=True)
class MakePrivate(Opacus):
    """Opacus's DP-SGD with a given noise multiplier; ``secure_mode`` is the engine's."""

    noise_multiplier: Value
    max_grad_norm: Any
    poisson_sampling: bool | None = True
    secure_mode: bool | None = False

    def __post_init__(self) -> None:
        self._at_least_zero("noise_multiplier")


@register(KIND, "make_private_with_epsilon")
@dataclass(frozen=True, kw_only=True)
class MakePrivateWithEpsilon(Opacus):
    """Opacus's DP-SGD with the noise that a target ε needs."""

    target_epsilon: Value
    target_delta: Value
    epochs: Value
    max_grad_norm: Any
    poisson_sampling: bool | None = True
    secure_mode: bool | None = False

    def __post_init__(self) -> None:
        self._positive("target_epsilon", "epochs")
        if self.target_delta is not None:
            guards.inside(self.target_delta, "target_delta", self.expression_name, 0.0, 1.0)


@register(KIND, "Defend")
@dataclass(frozen=True)
class Defend(Setting):
    """leakgauge's own mod or filter: any update-stage protection, written as an expression."""

    protection: str
    buffers: str = "withhold"
    package = "leakgauge"
    order = ("protection", "buffers")
