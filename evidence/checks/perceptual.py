"""LPIPS against the values of the official package."""

from __future__ import annotations

import torch

from evidence import Measurement, Number, at_least, at_most, check
from evidence.pairs import LPIPS_GOLDEN, pairs
from leakgauge.metrics import lpips


@check("lpips_golden", rows="lpips", cost="fast")
def lpips_golden() -> Measurement:
    """LPIPS with AlexNet and VGG on seven pairs of pictures, in float32 input, beside the official values."""
    rows, gaps = [], dict[str, float]()
    for net, golden in LPIPS_GOLDEN.items():
        ours = [float(lpips(b.float(), a.float(), net=net)) for a, b in pairs()]
        gaps[net] = float((torch.tensor(ours) - torch.tensor(golden)).abs().max())
        rows += [
            {"net": net, "pair": i, "ours": round(o, 6), "official": g}
            for i, (o, g) in enumerate(zip(ours, golden, strict=True))
        ]
    return Measurement(
        {
            **{f"largest difference, {net}": Number(gap, at_most(1e-4)) for net, gap in gaps.items()},
            "pairs": Number(len(pairs()), at_least(5)),
        },
        detail="golden values of lpips 0.1.4, obtained as evidence/pairs.py says",
        table=rows,
    )
