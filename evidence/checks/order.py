"""Doctor on defended clients, and the law of order over generated pairs."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from evidence import Context, Measurement, Number, at_least, check, exactly
from leakgauge.defenses import protection
from leakgauge.metrics import clopper_pearson
from leakgauge.task import Task
from leakgauge.types import Domain, Records, Threat


@check("doctor_defended", rows="doctor-defended", cost="minutes")
def doctor_defended(context: Context) -> Measurement:
    """Plain PyTorch clients with noise, clipping, pruning, and both; then each fault of set-up under noise."""
    from tests.doctor.test_defended import LISTED, both, clipped, diagnosed, noisy, pruned
    from tests.doctor.test_doctor import FAULTS

    table, replayed, seeds = [], 0, 3
    clients = {"noisy": noisy, "clipped": clipped, "pruned": pruned, "both": both}
    for name, how in clients.items():
        for seed in range(seeds):
            diagnosis = diagnosed(how, seed=seed, whole=True)
            right = (diagnosis.status, diagnosis.defense) == ("replays", name)
            replayed += right
            table.append(
                {"client": f"{name}, {seed}", "right": right, "said": f"{diagnosis.status} {diagnosis.defense}"}
            )
            context.say(str(table[-1]))
    named = 0
    for fault, (given, differs, _) in FAULTS.items():
        diagnosis = diagnosed(noisy, listed={"noisy": LISTED["noisy"]}, whole=True, **given)
        right = diagnosis.status == "replays otherwise" and diagnosis.differs == differs
        named += right
        said = diagnosis.sentence if not right else ", ".join(diagnosis.differs)
        table.append({"client": f"noisy, wrong {fault}", "right": right, "said": said})
        context.say(str(table[-1]))
    share = named / len(FAULTS)
    return Measurement(
        {
            "defended clients that do not replay as what they are": Number(len(clients) * seeds - replayed, exactly(0)),
            "share of wrong recipes named under noise": Number(
                share, at_least(0.8), clopper_pearson(named, len(FAULTS))
            ),
        },
        detail=f"four defenses listed, three draws each; {named} of {len(FAULTS)} faults named under noise of a tenth "
        "of the update's length, one at a time",
        table=table,
    )


@check("order", rows="order", cost="minutes")
def order(context: Context) -> Measurement:
    """Pairs of a weaker and a stronger client, generated over defenses, chains and networks: six records each."""
    from leakgauge.attacks.adaptive import Adaptive
    from leakgauge.testing.order import ordered

    table = []
    for network, client in _clients().items():
        for i, (weaker, stronger) in enumerate(_pairs(client)):
            path = context.scratch / f"{network}-{i}.json"
            if not path.exists():
                pair = ordered(client.task, client.records, weaker, stronger, Adaptive(steps=60), client.threat)
                mean = {"weaker": sum(pair.score) / 6, "stronger": sum(pair.above) / 6}
                row = {"network": network, "pair": f"{pair.weaker} / {pair.stronger}", **mean}
                path.write_text(json.dumps({**row, "holds": pair.holds, "alone": pair.holds_alone}))
            table.append(json.loads(path.read_text()))
        context.say(f"{network}: {sum(not row['holds'] for row in table)} of {len(table)} violated")
    return Measurement(
        {
            "pairs": Number(len(table), at_least(200)),
            "violations": Number(sum(not row["holds"] for row in table), exactly(0)),
            "violations without the stronger one's adversary": Number(sum(not row["alone"] for row in table)),
        },
        detail="adaptive(steps=60) on both; a convolution (labels known), a dense network without a last bias (labels "
        "inferred), a table; the paired difference of the score above 0 with 99 % confidence is a violation",
        table=[row for row in table if not row["alone"]],
    )


@dataclass(frozen=True)
class _Client:
    task: Task
    records: Records
    threat: Threat
    last: str
    """The last layer, which some defenses ask for."""


def _clients() -> dict[str, _Client]:
    """Networks, domains and threats."""
    image, table = Domain("image", (1, 6, 6), 4), Domain("table", (8,), 4)
    torch.manual_seed(0)
    convolution = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.Sigmoid(), nn.Flatten(), nn.Linear(144, 4))
    dense = nn.Sequential(nn.Flatten(), nn.Linear(36, 16), nn.Tanh(), nn.Linear(16, 4, bias=False))
    rows = nn.Sequential(nn.Linear(8, 16), nn.ELU(), nn.Linear(16, 4))
    labels = torch.arange(6) % 4
    pictures = Records(torch.rand(6, 1, 6, 6), labels, image)
    return {
        "convolution": _Client(Task(convolution, image), pictures, Threat(), "3"),
        "dense": _Client(Task(dense, image), pictures, Threat(labels="inferred"), "3"),
        "table": _Client(Task(rows, table), Records(torch.randn(6, 8), labels, table), Threat(), "2"),
    }


def _pairs(client: _Client) -> list[tuple[Any, Any]]:
    """The generated pairs; those of a layer that this network has; and those of parts with ``release`` only."""
    from leakgauge.testing.order import pairs
    from leakgauge.testing.red_team.parts import Reflected, Salted
    from tests.doctor.test_defended import Turned

    turned = protection(Turned())
    return [
        *pairs(),
        ("identity()", f"soteria(layer={client.last!r})"),
        ("identity()", turned),
        (turned, Turned(noise=0.1)),
        (turned, turned | protection("gaussian(std=0.1)")),
        (Reflected(), Reflected() | protection("gaussian(std=0.1)").update),
        ("identity()", Salted()),
        (Salted(), Salted(share=0.6)),
    ]
