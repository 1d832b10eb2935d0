"""Was the claimed noise really added? A test of captured updates that no training can excuse.

What is sent is ``u + z`` with an unknown u and noise ``z ~ N(0, s²)``, so ``‖u + z‖²/s²`` is noncentral χ², which lies
above the central one for every u. An update that is too short for χ² refutes the claim, and bounds the noise that
can have been added from above; a long one refutes nothing. The difference of two updates that are both long enough must
hold noise of ``√2 s`` unless the noise repeats.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import combinations
from pathlib import Path

import torch
from scipy import stats
from torch import Tensor

from leakgauge.claims.findings import Finding
from leakgauge.claims.gaussian import short
from leakgauge.claims.rules.base import Case
from leakgauge.claims.rules.flower import needed_std
from leakgauge.claims.rules.own import client_std
from leakgauge.claims.settings import Defend, LocalDpMod
from leakgauge.inspect.captures import exchanges
from leakgauge.storage.states import FileError, State

RISK = 1e-6
"""The probability with which a claim that holds is called broken, over all tests of a folder."""

NAMED = 3


def noise_findings(case: Case, folder: Path) -> Iterator[Finding]:
    """What captured updates say about the noise that a client's claim needs."""
    setting = case.placed.setting
    if isinstance(setting, LocalDpMod):
        std = needed_std(setting)
    elif isinstance(setting, Defend):
        std = client_std(setting)
    else:
        return
    if std is None:
        yield Finding("noise", "caution", f"the claim names no Gaussian noise to look for in {folder}")
        return
    yield from findings_in(folder, std)


def findings_in(folder: Path, std: float) -> Iterator[Finding]:
    """Tests of every update in a folder against noise of one standard deviation; files that are torn are named."""
    unread: list[FileError] = []
    updates = dict(_updates(folder, unread))
    if not updates:
        raise (unread or [_nothing(folder)])[0]
    yield from (Finding("noise", "not probed", str(fault)) for fault in unread)
    tests = sum(len(update) + 1 for update in updates.values()) + math.comb(len(updates), 2)
    lacking = {name: list(_lacking(name, update, std, RISK / tests)) for name, update in updates.items()}
    findings = [finding for some in lacking.values() for finding in some]
    # what holds too little noise differs by too little, and says nothing of repeats
    noisy = {name: update for name, update in updates.items() if largest_std(_flat(update), RISK / tests) >= std}
    findings += _repeated(noisy, std, RISK / tests)
    if not findings:
        what = f"{len(updates)} captured updates do not refute noise of standard deviation {short(std)}"
        findings = [Finding("noise", "holds", what, "", {"updates": float(len(updates)), "std": std})]
    yield from findings


def _nothing(folder: Path) -> FileError:
    return FileError("holds no client's update", where=str(folder), remedy="name them r<round>-client<number>")


def _updates(folder: Path, unread: list[FileError]) -> Iterator[tuple[str, dict[str, Tensor]]]:
    for start, sent in exchanges(folder, unusable=unread.append):
        try:
            yield str(sent.path.relative_to(folder)), _change(start, sent)
        except FileError as fault:
            unread.append(fault)


def _change(start: State, sent: State) -> dict[str, Tensor]:
    """What a client added to the weights, entry by entry."""
    if sent.kind in ("gradient", "change"):
        return {name: value.double() for name, value in sent.tensors.items()}
    missing = sorted(set(sent.tensors) ^ set(start.tensors))
    if missing:
        raise FileError(f"{missing[0]!r} is in one of the two files only", where=str(sent.path), remedy="capture again")
    return {
        name: value.double() - start.tensors[name].double()
        if value.is_floating_point()
        else value - start.tensors[name]
        for name, value in sent.tensors.items()
    }


def _lacking(name: str, update: Mapping[str, Tensor], std: float, risk: float) -> Iterator[Finding]:
    most = largest_std(_flat(update), risk)
    if most < std:
        yield Finding(
            "noise",
            "broken",
            f"{name} holds noise of standard deviation {short(most)} at most, the claim needs {short(std)}",
            "look at what the app adds",
            {"most": most, "needed": std},
        )
        return
    bare = [entry for entry, value in update.items() if _bare(value, std, risk)]
    if bare:
        yield Finding(
            "noise",
            "broken",
            f"{name}: {len(bare)} of {len(update)} entries left without the claimed noise: {', '.join(bare[:NAMED])}"
            + (" …" if len(bare) > NAMED else ""),
            "protect every entry, or leave it out of what is sent",
            {"entries": float(len(bare))},
        )


def largest_std(values: Tensor, risk: float) -> float:
    """The largest standard deviation of noise that these values can hold, but for this risk of a wrong word."""
    if not values.numel():
        return math.inf
    quantile = float(stats.chi2.ppf(risk, values.numel()))
    return float(values.norm()) / math.sqrt(quantile) if quantile > 0 else math.inf


def _bare(value: Tensor, std: float, risk: float) -> bool:
    """Whether an entry holds less noise than claimed; counters that moved hold none. An entry that did not move says
    nothing of the client, and is not called bare unless it should have been noised."""
    if not value.is_floating_point():
        return bool(value.any())
    return largest_std(value.flatten(), risk) < std


def _flat(update: Mapping[str, Tensor]) -> Tensor:
    return torch.cat([v.flatten() for v in update.values() if v.is_floating_point()] or [torch.zeros(0)])


def _repeated(updates: Mapping[str, Mapping[str, Tensor]], std: float, risk: float) -> Iterator[Finding]:
    """The nearest of all pairs whose noise repeats: of two clients, or of two rounds of one."""
    needed = math.sqrt(2) * std
    pairs = [
        (most, f"{first} and {second}")
        for (first, one), (second, other) in combinations(updates.items(), 2)
        if (most := _difference(one, other, risk)) < needed
    ]
    if pairs:
        most, names = min(pairs)
        further = f" ({len(pairs)} such pairs)" if len(pairs) > 1 else ""
        yield Finding(
            "repeated noise",
            "broken",
            f"{names} differ by noise of standard deviation {short(most)} at most, two draws of the claimed noise by "
            f"{short(needed)}: the noise repeats{further}",
            "draw it from a generator of its own",
            {"most": most, "needed": needed, "pairs": float(len(pairs))},
        )


def _difference(one: Mapping[str, Tensor], other: Mapping[str, Tensor], risk: float) -> float:
    """The largest noise that two updates can differ by."""
    shared = [n for n, v in one.items() if n in other and v.is_floating_point() and other[n].shape == v.shape]
    return largest_std(torch.cat([(one[n] - other[n]).flatten() for n in shared] or [torch.zeros(0)]), risk)
