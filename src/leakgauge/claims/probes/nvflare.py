"""Probes of NVFlare's privacy filters on real DXO and Shareable objects."""

from __future__ import annotations

from typing import Any

import numpy as np

from leakgauge.claims.probes import Numbers, probe

ENTRIES = 20_000
TOLERANCE = 6 / np.sqrt(ENTRIES / 4)
"""Six standard errors of the mean absolute value of Laplace noise, if a quarter of the entries is sent."""


def _filtered(used: Any, data: dict[str, np.ndarray[Any, Any]]) -> dict[str, np.ndarray[Any, Any]]:
    from nvflare.apis.dxo import DXO, DataKind, from_shareable
    from nvflare.apis.fl_context import FLContext

    shareable = DXO(DataKind.WEIGHT_DIFF, {name: value.copy() for name, value in data.items()}).to_shareable()
    return dict(from_shareable(used.process(shareable, FLContext())).data)


@probe("nvflare")
def percentile_raw(percentile: float, gamma: float) -> tuple[bool, Numbers]:
    """Whether PercentilePrivacy with these parameters sends data as they are."""
    from nvflare.app_common.filters.percentile_privacy import PercentilePrivacy

    data = {"w": np.linspace(-5.0, 5.0, 101)}
    sent = _filtered(PercentilePrivacy(percentile=percentile, gamma=gamma), data)["w"]
    share = float(np.mean(sent == data["w"]))
    return share == 1.0, {"share sent raw": share}


@probe("nvflare")
def scalars(name: str) -> tuple[bool, Numbers]:
    """Whether a 0-d parameter passes a filter as it is."""
    from nvflare.app_common.filters.percentile_privacy import PercentilePrivacy
    from nvflare.app_common.filters.svt_privacy import SVTPrivacy

    used = PercentilePrivacy() if name == "PercentilePrivacy" else SVTPrivacy()
    sent = _filtered(used, {"w": np.linspace(-5.0, 5.0, 101), "scale": np.full((), 50.0)})
    return float(sent["scale"]) == 50.0, {"sent": float(sent["scale"])}


@probe("nvflare")
def svt_release(noise_var: float, gamma: float) -> tuple[bool, Numbers]:
    """What one value that SVTPrivacy sends costs: ``2γ`` over the scale of its Laplace noise, as measured."""
    from nvflare.app_common.filters.svt_privacy import SVTPrivacy

    used = SVTPrivacy(fraction=0.5, epsilon=0.1, noise_var=noise_var, gamma=gamma, tau=-1e9, replace=False)
    sent = _filtered(used, {"w": np.zeros(ENTRIES)})["w"]
    noise = sent[sent != 0]
    measured = 2 * gamma / float(np.mean(np.abs(noise)))
    near = abs(measured - noise_var) <= TOLERANCE * noise_var
    return True, {"per value": noise_var if near else measured, "values": float(noise.size)}


@probe("nvflare")
def excluded(names: Any) -> tuple[bool, Numbers]:
    """Whether ExcludeVars with this argument leaves out nothing at all."""
    from nvflare.app_common.filters.exclude_vars import ExcludeVars

    used = list(names) if isinstance(names, tuple) else names
    data = {name: np.ones(2) for name in ("a", "b", *map(str, used if isinstance(used, list) else ()))}
    sent = _filtered(ExcludeVars(exclude_vars=used), data)
    return bool(len(sent) == len(data)) and not isinstance(used, str), {"left out": float(len(data) - len(sent))}
