"""What the standings are about: fixed clients, defenses and attacks under one budget. All of it has one version."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from leakgauge.client import Recipe
from leakgauge.errors import DomainError, nearest, refuse

VERSION = 1
"""Raise it with every change of this module that changes a score: rows of two versions cannot be compared."""
TRAINED = 300
"""Steps of training of a client that is called trained."""

GENERAL = (
    "identity()",
    "clip(norm=1.0)",
    "gaussian(std=0.001)",
    "gaussian(std=0.01)",
    "laplace(scale=0.01)",
    "clip(norm=1.0) | gaussian(std=0.01)",
    "random_prune(p=0.5) | gaussian(std=0.01)",
    "vmf(kappa=100000.0)",
    "prune(p=0.9)",
    "topk(keep=0.1)",
    "quantise(levels=4)",
    "sign()",
)
"""Defenses that every client can have."""
FEW = (
    "identity()",
    "gaussian(std=0.01)",
    "clip(norm=1.0) | gaussian(std=0.01)",
    "prune(p=0.9)",
    "topk(keep=0.1)",
    "sign()",
)
"""Defenses of clients whose rows cost more: with batches, or a second look at one network."""
BEFORE = ("mixup(k=2)", "instahide(k=2)", "ats()")
"""Defenses that change records."""
LAYERED = ("soteria(layer='linear1')", "precode()")
"""Defenses that need a hidden linear layer."""
STEPS = ("identity()", "gaussian(std=0.001)", "lrp()", "ada_lrp()")
"""Defenses of clients that take several local steps."""


@dataclass(frozen=True)
class Client:
    """One client: network, data, batch, training stage, and the defenses that it is measured with."""

    name: str
    model: str
    data: str = "fashion_mnist_sample"
    batch: int = 1
    trained: bool = False
    local_steps: int = 1
    defenses: tuple[str, ...] = GENERAL

    @property
    def recipe(self) -> Recipe:
        several = self.local_steps > 1
        return Recipe(batch=self.batch, local_steps=self.local_steps, shares="change" if several else "gradient")

    @property
    def about(self) -> str:
        stage = f"after {TRAINED} steps of training" if self.trained else "untrained"
        steps = f", {self.local_steps} local steps" if self.local_steps > 1 else ""
        return f"`{self.model}` on {self.data}, {stage}, batch {self.batch}{steps}"


CLIENTS = (
    Client("lenet", "dlg_lenet", defenses=(*GENERAL, *BEFORE)),
    Client("lenet-batch", "dlg_lenet", batch=4, defenses=FEW),
    Client("lenet-steps", "dlg_lenet", local_steps=3, defenses=STEPS),
    Client("mlp", "mlp(width=200, depth=2)"),
    Client("mlp-batch", "mlp(width=200, depth=2)", batch=4, defenses=FEW),
    Client("cnn", "bayes_cnn", defenses=(*GENERAL, *LAYERED)),
    Client("cnn-trained", "bayes_cnn", trained=True, defenses=FEW),
    Client("cnn-cifar10", "bayes_cnn", "cifar10", defenses=FEW),
)


@dataclass(frozen=True)
class Size:
    """How much is measured: reported updates, evaluations per update of a plain attack, work of ``standard()``."""

    name: Literal["full", "quick"]
    updates: int
    evaluations: int
    work: Literal["quick", "standard"]
    clients: tuple[str, ...]
    defenses: tuple[str, ...] | None = None
    """Only these, where not all."""

    @property
    def attacks(self) -> tuple[str, ...]:
        """Attacks that meet every defense: one that ignores it, one that models it, one that chooses its settings."""
        standard = "standard()" if self.work == "standard" else f"standard(work={self.work!r})"
        return f"inverting_gradients(steps={self.evaluations})", f"adaptive(steps={self.evaluations})", standard

    @property
    def special(self) -> dict[str, tuple[str, ...]]:
        """Attacks that were made for some defenses, each with those."""
        n = self.evaluations
        tv = "1.0*tv(kind='quadratic', periodic=True, reduce='sum')"
        noisy = tuple(one for one in GENERAL if "gaussian" in one or "laplace" in one)
        return {
            f"dlg(steps={n}, restarts=1)": ("identity()",),
            f"idlg(steps={n}, restarts=1)": ("identity()",),
            f"grad_inversion(steps={n // 4}, seeds=4)": ("identity()",),
            "analytic()": ("identity()", "clip(norm=1.0)"),
            "exact_recovery()": ("identity()", "clip(norm=1.0)"),
            f"bayes(prior={tv}, solver=adam(lr=0.1, steps={n}))": noisy,
            f"drop_layer(layer='linear1', steps={n})": ("soteria(layer='linear1')",),
        }


SIZES = {
    "full": Size("full", 10, 1000, "standard", tuple(client.name for client in CLIENTS)),
    "quick": Size("quick", 4, 20, "quick", ("mlp-batch",), ("identity()", "gaussian(std=0.01)", "prune(p=0.9)")),
}


def clients(size: Size, names: Sequence[str] = ()) -> list[Client]:
    """The clients of a size, or those of these names."""
    by_name = {client.name: client for client in CLIENTS}
    unknown = dict.fromkeys(name for name in names if name not in by_name)
    refuse(
        [
            DomainError(f"there is no client {name!r}", where="--client", remedy=nearest(name, by_name))
            for name in unknown
        ]
    )
    return [by_name[name] for name in names or size.clients]


def planned(
    size: Size, some: Sequence[Client], defenses: Sequence[str] = (), attacks: Sequence[str] = ()
) -> list[tuple[Client, str, str]]:
    """The rows to measure, each once, as client, defense, attack: all of a size, or of given defenses or attacks.

    A given defense meets the attacks of every defense, a given attack the defenses of every client.
    """
    listed = []
    for client in some:
        own = tuple(one for one in client.defenses if size.defenses is None or one in size.defenses)
        for defense in defenses or own:
            special = [one for one, made_for in size.special.items() if defense in made_for]
            for attack in attacks or (*size.attacks, *special):
                listed.append((client, defense, attack))
    return list(dict.fromkeys(listed))


__all__ = ["CLIENTS", "SIZES", "TRAINED", "VERSION", "Client", "Size", "clients", "planned"]
