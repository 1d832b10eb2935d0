"""Table 3, Figures 3 and 4: a generative attack; printed numbers that need a generator and LPIPS."""

from __future__ import annotations

from leakgauge.papers.contract import Cell, Table, near
from leakgauge.papers.sources import LRP

DEFENSES = ("noise 0.1", "clipping 4", "clipping and noise", "pruning 90 %", "Soteria 0.8", "LRP")
PRINTED = {
    "MSE": ("0.2746 0.2335 0.3443 0.2117 0.2079 0.4627", 0.1),
    "PSNR": ("5.7325 6.4000 4.7408 5.7545 6.8540 4.1501", 1.5),
    "LPIPS (VGG)": ("0.6170 0.5808 0.6448 0.6068 0.5748 0.6966", 0.05),
    "LPIPS (AlexNet)": ("0.5215 0.4755 0.5703 0.4895 0.4538 0.6227", 0.05),
    "MSE of representations": ("0.0014 0.0014 0.0114 0.0017 0.0018 0.3181", 0.01),
}
"""Of images in [−1, 1] with peak 1 (see ``conventions``), with the tolerance of each."""
NEEDS = "a trained generator (the paper's is BigGAN on ImageNet) and LPIPS"
TABLES = (
    Table(
        "lrp/table-3",
        "Table 3: six defenses against a generative attack, five metrics",
        LRP,
        tuple(
            Cell(f"{metric}, {defense}", near(float(value), tolerance))
            for metric, (row, tolerance) in PRINTED.items()
            for defense, value in zip(DEFENSES, row.split(), strict=True)
        ),
        waits=NEEDS,
    ),
    Table(
        "lrp/figure-3",
        "Figure 3: pictures of the generative attack under each defense",
        LRP,
        tuple(Cell(f"PSNR, {defense}", None, "dB") for defense in DEFENSES),
        waits=NEEDS,
    ),
    Table(
        "lrp/figure-4",
        "Figure 4: loss and LPIPS between found and true latent",
        LRP,
        (Cell("no defense: both are least at the same place"), Cell("LRP: they are not")),
        waits=NEEDS,
    ),
)
