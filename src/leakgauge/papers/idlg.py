"""Table 1 of the iDLG paper: how often each attack names the label. A paper in one file."""

from __future__ import annotations

from leakgauge import data, models
from leakgauge.attacks import dlg, idlg
from leakgauge.observation import observe
from leakgauge.papers.contract import Cell, Paper, Size, Table, at_least, difference, near
from leakgauge.task import Task
from leakgauge.types import Threat

IDLG = Paper(
    "Zhao, Mopuri, Bilen, iDLG: Improved Deep Leakage from Gradients, 2020.", "https://arxiv.org/abs/2001.02610"
)
NO_DATA = "leakgauge has no reader of this data set"


def measure(name: str, attack: str, records: int, steps: int, seed: int = 0) -> dict[str, list[float]]:
    """Whether the label of each image was right, in percent; one start each, as the paper has."""
    dataset = data.load(name)
    task = Task(models.build("dlg_lenet", dataset.domain, seed=seed), dataset.domain)
    private = dataset.sample(records, seed=seed, split="test")
    observations = observe(task, private, threat=Threat(labels="inferred"), seed=seed)
    adversary = (dlg if attack == "DLG" else idlg)(steps=steps, restarts=1)
    labels = adversary(task, observations, seed=seed).labels[:, 0]
    return {f"{name}, {attack}": [100.0 * float(a == b) for a, b in zip(labels, private.labels, strict=True)]}


def _work(name: str, records: int, steps: int) -> dict[str, dict[str, object]]:
    how = {"name": name, "records": records, "steps": steps}
    return {f"{name}, {attack}": {"attack": attack, **how} for attack in ("DLG", "iDLG")}


SMOKE = "fashion_mnist_sample"
PERCENT = (0.0, 100.0)
TABLES = (
    Table(
        "idlg/table-1",
        "Table 1: accuracy of the extracted labels, DLG and iDLG",
        IDLG,
        (
            Cell("mnist, DLG", near(89.9, 10), "%", within=PERCENT, share=True),
            Cell("mnist, iDLG", near(100, 0), "%", claim=True, within=PERCENT, share=True),
            Cell(f"{SMOKE}, DLG", None, "%", stand_in=True, within=PERCENT, share=True),
            Cell(f"{SMOKE}, iDLG", near(100, 0), "%", claim=True, stand_in=True, within=PERCENT, share=True),
            Cell("mnist: iDLG above DLG", at_least(0), "%", difference("mnist, iDLG", "mnist, DLG")),
            Cell("CIFAR-100, DLG", near(83.3, 10), "%", missing=NO_DATA),
            Cell("CIFAR-100, iDLG", near(100, 0), "%", missing=NO_DATA),
            Cell("LFW, DLG", near(79.1, 10), "%", missing=NO_DATA),
            Cell("LFW, iDLG", near(100, 0), "%", missing=NO_DATA),
        ),
        {
            "smoke": Size(_work(SMOKE, 6, 10), ("Fashion-MNIST, 6 images", "10 evaluations")),
            "small": Size(_work("mnist", 100, 300), ("100 images instead of 1,000", "300 evaluations")),
            "full": Size(_work("mnist", 1000, 6000)),
        },
        measure,
        "Sigmoid LeNet with weights U(−.5, .5), batch 1. Our DLG has a line search, theirs has none: it diverges less.",
        {"mnist, DLG": "our DLG has a strong-Wolfe line search and diverges less often than the released one"},
    ),
)
