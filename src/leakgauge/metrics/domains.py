"""Which metrics a domain has, and which of them judges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from leakgauge.errors import DomainError, ExpressionError, nearest
from leakgauge.expr import names, parse
from leakgauge.metrics.matching import Matching, assign, match
from leakgauge.metrics.pictures import Mse, Psnr, Ssim
from leakgauge.metrics.tables import Digits, FeatureShare, RowError
from leakgauge.metrics.tokens import TokenShare
from leakgauge.types import Domain, Kind, Metric

SCORES: Mapping[Kind, tuple[Metric, ...]] = {
    "image": (Ssim(), Psnr()),
    "table": (FeatureShare(), Digits()),
    "tokens": (TokenShare(),),
}
"""What is measured of each record, the preferred judge first; the last that can tell says what is exact."""
MATCHING: Mapping[Kind, Metric] = {"image": Mse(), "table": RowError(), "tokens": TokenShare()}


@dataclass(frozen=True)
class DomainMetrics:
    """The metrics of one domain: higher scores are better reconstructions, except by ``matching`` and ``lower``.

    ``judge`` with its ``threshold`` decides what is recognisable, ``exactness`` with ``exact`` what was recovered to
    numerical precision; ``others`` are shown beside; ``matching`` pairs a batch of reconstructions with its records.
    """

    judge: Metric
    threshold: float
    exactness: Metric
    exact: float
    others: tuple[Metric, ...]
    matching: Metric

    @property
    def all(self) -> tuple[Metric, ...]:
        """The judge and the others; ``exactness`` is one of them."""
        return (self.judge, *self.others)

    @property
    def lower(self) -> frozenset[str]:
        """The names of those whose scores fall as reconstructions get better."""
        return frozenset(metric.meaning.name for metric in self.all if metric.meaning.direction == "lower")

    def __getitem__(self, name: str) -> Metric:
        """The metric of a name among ``all``."""
        return {metric.meaning.name: metric for metric in self.all}[name]

    def scores(self, reconstruction: Tensor, original: Tensor) -> dict[str, Tensor]:
        """Name → one score per record, ``[n, *shape]`` → ``[n]``."""
        return {metric.meaning.name: metric(reconstruction, original) for metric in self.all}

    def match(self, reconstruction: Tensor, original: Tensor) -> Matching:
        """The reconstructions of each batch ``[N, B, *shape]``, one to one with its records."""
        return match(reconstruction, original, metric=self.matching)

    def cross(self, reconstructions: Tensor, originals: Tensor) -> dict[str, Tensor]:
        """Name → ``[J, U·B]``: J batches of reconstructions ``[J, B, *shape]`` against U of records ``[U, B, *shape]``.

        Every batch of reconstructions is matched with every batch of records on its own, as :meth:`match` does.
        """
        (tries, size), updates = reconstructions.shape[:2], len(originals)
        ours, theirs = reconstructions.flatten(0, 1), originals.flatten(0, 1)
        chosen = torch.arange(size).expand(tries, updates, size)
        if size > 1:
            # [J, B, U, B] → [J, U, record, reconstruction]
            costs = self.matching.pairwise(ours, theirs).view(tries, size, updates, size).permute(0, 2, 3, 1)
            lower = self.matching.meaning.direction == "lower"
            chosen = torch.stack([torch.stack([assign(one, lower=lower) for one in row]) for row in costs])
        table = {}
        for metric in self.all:
            pairs = metric.pairwise(ours, theirs).view(tries, size, updates, size).permute(0, 2, 3, 1)
            matched = pairs.gather(3, chosen.to(pairs.device).unsqueeze(3))
            table[metric.meaning.name] = matched.reshape(tries, updates * size)
        return table


def named(name: str) -> Metric:
    """The metric of a name (``ssim``) or an expression (``feature_share(tolerance=0.05)``), of no domain yet."""
    metric: Metric = parse(name if "(" in name else f"{name}()", "metric", where="metric")
    if not hasattr(metric, "meaning"):
        raise ExpressionError(f"{name!r} is no metric", where="metric", remedy=nearest(name, names("metric")))
    return metric


def of(
    domain: Domain,
    recognisable: Mapping[str, float] | None = None,
    *,
    exact: float | None = None,
    also: Sequence[str] = (),
    model: nn.Module | None = None,
) -> DomainMetrics:
    """The metrics of a domain.

    ``recognisable`` names the judge with its threshold, as a spec does: ``{"ssim": 0.5}``. Of several the one that the
    domain prefers and that fits judges: ``{"ssim": 0.5, "psnr": 20.0}`` is SSIM for images of at least 11 × 11 pixels,
    else PSNR; a metric that the domain does not measure anyway judges alone. Without it the domain's first that fits
    judges, at its own threshold: SSIM or PSNR for images, the share of features for tables, the share of tokens for
    texts. ``exact`` is in the unit of ``exactness``: dB for images.
    ``also`` names metrics that are shown beside them (``["lpips()"]``); those that look through the client's network
    look through ``model``.
    """
    own = [on for metric in SCORES[domain.kind] if (on := _fitting(metric, domain)) is not None]
    if not own:
        SCORES[domain.kind][-1].on(domain)  # raises what is wrong
    judge, threshold = _judge(domain, own, recognisable or {})
    beside = [*own, *(_through(named(name), model).on(domain) for name in also)]
    others = tuple({m.meaning.name: m for m in beside if m.meaning.name != judge.meaning.name}.values())
    limits = [(metric, metric.meaning.exact) for metric in (judge, *own) if metric.meaning.exact is not None]
    exactness, limit = limits[-1]
    limit = limit if exact is None else exact
    return DomainMetrics(judge, threshold, exactness, limit, others, MATCHING[domain.kind].on(domain))


def _through(metric: Metric, model: nn.Module | None) -> Metric:
    """A metric that looks through the client's network, looking through it."""
    through = getattr(metric, "through", None)
    if through is None or model is None:
        return metric
    bound: Metric = through(model)
    return bound


def _judge(domain: Domain, own: list[Metric], recognisable: Mapping[str, float]) -> tuple[Metric, float]:
    if not recognisable:
        return own[0], own[0].meaning.threshold
    refused: list[str] = []
    candidates: list[tuple[Metric, float]] = []
    for name, threshold in recognisable.items():
        try:
            candidates.append((_judging(named(name)).on(domain), threshold))
        except DomainError as fault:
            refused.append(fault.what)
    if not candidates:
        best = own[0].meaning
        raise DomainError(
            "; ".join(refused), where="recognisable", remedy=f"say {{ {best.name} = {best.threshold:g} }}"
        )
    order = [metric.meaning.name for metric in own]
    judging = [metric.meaning.name for metric, _ in candidates]
    if len(set(judging)) < len(judging) or (len(judging) > 1 and not set(judging) <= set(order)):
        remedy = "name one; others are shown beside it where also names them"
        raise DomainError(f"{' and '.join(judging)} cannot both judge", where="recognisable", remedy=remedy)
    return min(candidates, key=lambda one: order.index(n) if (n := one[0].meaning.name) in order else -1)


def _judging(metric: Metric) -> Metric:
    if metric.meaning.direction == "lower":
        raise DomainError(f"{metric.meaning.name} falls as reconstructions get better, a judge must rise")
    return metric


def _fitting(metric: Metric, domain: Domain) -> Metric | None:
    """The metric on the domain, None where it does not apply to records of this size."""
    try:
        return metric.on(domain)
    except DomainError:
        return None


def another_record(metric: Metric, originals: Tensor, reference: Tensor | None = None) -> Tensor:
    """The mean score of other records in place of reconstructions, ``[n]``: what a row picked at random reaches.

    ``reference [m, *shape]`` are records that hold none of the originals; without them each original is compared with
    the other originals. A score means little before it is well above this.
    """
    if reference is not None:
        return metric.pairwise(reference, originals).mean(0)
    if len(originals) < 2:
        raise DomainError("one record has no other", where="another_record", remedy="give two, or reference records")
    pairs = metric.pairwise(originals, originals)
    others = ~torch.eye(len(originals), dtype=torch.bool, device=pairs.device)
    return pairs.where(others, 0).sum(0) / (len(originals) - 1)
