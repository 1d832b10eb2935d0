"""Hidden learning rates that repeat between the rounds of a client."""

from __future__ import annotations

import torch
from torch import nn

import leakgauge as lg
from evidence import Measurement, Number, at_least, at_most, check
from leakgauge.adversary.rates import repeated_rates
from leakgauge.adversary.repeats import LEVEL
from leakgauge.client import LABELS
from leakgauge.observation import Observation, Round
from leakgauge.types import Domain, Records

DOMAIN = Domain("image", (1, 8, 8), 4)
ROUNDS, MOVES, ERROR = 5, 0.05, 0.02
TRIALS, CLIENTS = 200, 40


@check("repeated_rates", rows="repeated-rates", cost="minutes")
def rates() -> Measurement:
    """Five rounds under ``lrp()``, from a generator that is seeded anew or not: is it said that the rates repeat?"""
    again = sum(_is_said(client, same=True) for client in range(CLIENTS))
    fresh = sum(_is_said(client, same=False) for client in range(TRIALS))
    return Measurement(
        {
            "repeated rates said, share of clients": Number(again / CLIENTS, at_least(0.95)),
            # of 200 clients 3 or more by chance: once in a thousand such checks
            "fresh rates said to repeat, of 200 clients": Number(fresh, at_most(2)),
            "stated level": Number(LEVEL),
        },
        detail="one local step; the weights move by noise of 0.05 between rounds; the guess is off by 0.02 "
        "per pixel (34 dB)",
    )


def _is_said(client: int, *, same: bool) -> bool:
    """Whether the rates of one client are said to repeat, by a guess near its record."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(client)
        network = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.Tanh(), nn.Flatten(), nn.Linear(256, 4))
    task = lg.Task(network, DOMAIN).protect("lrp()")
    chance = torch.Generator().manual_seed(client)
    x, y = torch.rand(1, 1, 8, 8, generator=chance), torch.tensor([client % 4])
    params, rounds = dict(task.params), []
    for number in range(ROUNDS):
        drawn = torch.Generator().manual_seed(client if same else 1000 + ROUNDS * client + number)
        update = task.update(Records(x, y, DOMAIN), params, {"lrp.scale": 2 * torch.rand(1, generator=drawn)})
        rounds.append(Round(update, params, {LABELS: y}))
        params = {n: p + MOVES * torch.randn(p.shape, generator=chance) for n, p in params.items()}
    guess = x + ERROR * torch.randn(x.shape, generator=chance)
    return bool(repeated_rates(task, Observation(tuple(rounds), 1), guess, y)[0])
