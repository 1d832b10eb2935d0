"""Table 3: the price of recovering one image end to end."""

from __future__ import annotations

from dataclasses import dataclass

from leakgauge import guards
from leakgauge.papers.contract import SCALES, Cell, Size, Table, near
from leakgauge.papers.sources import GRADATTACK

TABLE_3 = {"no defense": 0.25, "pruning": 0.25, 5_000: 934.48, 50_000: 46_579.01, 500_000: 4_215_524.32}
"""GPU hours as printed: without mixing, and under InstaHide by the size of the client's data set.

The paper's years beside the two largest (5.5 and 493.4) do not follow from its hours: 365 days give 5.3 and 481.2.
"""


@dataclass(frozen=True)
class Price:
    """What the attack on one image costs, in hours: inverting, the similarity network, the combinatorial step."""

    inverting: float
    similarity: float = 0.0
    solving: float = 0.0

    @property
    def total(self) -> float:
        return self.inverting + self.similarity + self.solving


@dataclass(frozen=True)
class Costs:
    """The constants of the paper's model, all replaceable by measurements of one's own.

    ``attack`` is t, the hours to invert one batch of ``batch`` encodings; a mixed image needs ``epochs`` (T) epochs of
    all N records, ``examples`` (n) more encodings and ``network`` hours for a network that tells which encodings share
    an image, and a combinatorial step that takes ``solve`` hours for ``solved`` encodings and grows with the square.
    """

    attack: float = 0.25
    batch: int = 128
    epochs: int = 50
    examples: int = 10_000
    network: float = 10.0
    solve: float = 1 / 6
    solved: int = 5_000

    def __post_init__(self) -> None:
        guards.positive(self.attack, "attack", "Costs")
        for name in ("batch", "epochs", "examples", "solved"):
            guards.count(getattr(self, name), name, "Costs")

    def plain(self) -> Price:
        """Without a defense of the inputs, whatever prunes or scales the update: one inversion, ``t``."""
        return Price(self.attack)

    def mixed(self, records: int) -> Price:
        """``(N T / b) t + (n / b) t + 10 + (1/6) (N T / 5000)²``: one image costs the whole data set."""
        encodings = guards.count(records, "records", "Costs.mixed") * self.epochs
        return Price(
            encodings / self.batch * self.attack,
            self.examples / self.batch * self.attack + self.network,
            self.solve * (encodings / self.solved) ** 2,
        )


def measure() -> dict[str, list[float]]:
    costs = Costs()
    mixed = {f"InstaHide, {records:,} records": [costs.mixed(records).total] for records in (5_000, 50_000, 500_000)}
    return {"no defense": [costs.plain().total], "pruning": [costs.plain().total], **mixed}


TABLES = (
    Table(
        "gradattack/table-3",
        "Table 3: GPU hours to recover one image end to end",
        GRADATTACK,
        tuple(
            Cell(name if isinstance(name, str) else f"InstaHide, {name:,} records", near(hours, 0.005), "h", claim=True)
            for name, hours in TABLE_3.items()
        ),
        dict.fromkeys(SCALES, Size({"all": {}})),
        measure,
        "The paper's cost model with its own constants. Its years beside the two largest do not follow from its hours.",
    ),
)
