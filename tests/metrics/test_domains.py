"""Metrics per domain: the laws over the registry, what judges, and the hand values of tables."""

from __future__ import annotations

import math
from dataclasses import asdict, replace

import pytest
import torch
from torch import Tensor

from leakgauge import metrics
from leakgauge.errors import DataError, DomainError, ExpressionError
from leakgauge.expr import REGISTRY
from leakgauge.metrics import Digits, FeatureShare, Meaning, RowError, another_record, readable
from leakgauge.testing import examples, metric_laws
from leakgauge.types import Domain, Feature, Metric

FEATURES = (
    Feature("age", spread=2.0, offset=40.0, unit=10.0),
    Feature("job", ("clerk", "nurse", "pilot")),
    Feature("country", ("one",)),
    Feature("height", spread=0.5),
    Feature("constant", spread=0.0),
)
TABLE = Domain("table", (7,), 2, FEATURES)
IMAGE = Domain("image", (2, 12, 13), 2)
SMALL = Domain("image", (1, 6, 6), 2)
TOKENS = Domain("tokens", (5,), 2)
DOMAINS = {"image": IMAGE, "table": TABLE, "tokens": TOKENS}


def draw(domain: Domain, n: int = 4) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    if domain.kind == "tokens":
        return torch.randint(100, (n, *domain.shape), generator=generator)
    if domain.kind == "image":
        return torch.rand(n, *domain.shape, generator=generator)
    rows = torch.randn(n, 7, generator=generator)
    rows[:, 1:4] = torch.eye(3)[torch.arange(n) % 3]
    rows[:, 4], rows[:, 6] = 1.0, 3.0
    return rows


ELSEWHERE = ("lpips", "ms_ssim", "representation_mse")
"""Those that need weights, larger pictures or a model: test_perceptual.py puts them through the laws."""


@pytest.mark.parametrize("metric", [m for m in examples("metric") if m.name not in ELSEWHERE], ids=repr)
def test_laws(metric: Metric) -> None:
    kinds = [kind for kind in DOMAINS if kind in metric.kinds]  # type: ignore[attr-defined]
    assert kinds
    for kind in kinds:
        metric_laws(metric.on(DOMAINS[kind]), draw(DOMAINS[kind]))
    for kind in DOMAINS.keys() - set(kinds):
        with pytest.raises(DomainError, match=f"these are {kind} records"):
            metric.on(DOMAINS[kind])


@pytest.mark.parametrize("metric", examples("metric"), ids=repr)
def test_meanings_are_plain_values(metric: Metric) -> None:
    meaning = metric.meaning
    assert Meaning(**asdict(meaning)) == meaning
    assert REGISTRY["metric"][meaning.name] is type(metric)
    assert all(value is None or math.isfinite(value) for value in (meaning.worst, meaning.best, meaning.threshold))
    assert meaning.at() == f"{meaning.label} {meaning.threshold:g}" + (f" {meaning.unit}" if meaning.unit else "")


class _Careless(metrics.MetricPart):
    """Breaks one law at a time; the laws must notice."""

    meaning = Meaning("careless", "careless", "a metric with a fault", threshold=0.5, exact=1.0)
    kinds = ("table",)

    def __init__(self, fault: str) -> None:
        self.fault = fault

    def __call__(self, reconstruction: Tensor, original: Tensor) -> Tensor:
        if self.fault != "shape":
            assert_same(reconstruction, original)
        scores = (1 - (reconstruction - original).abs().double().mean(1)).clamp(min=0)
        scores = scores.nan_to_num(nan=0.0) if self.fault != "nan" else scores
        if self.fault == "neighbours":
            scores = scores - scores.mean() + scores.mean().round() if len(scores) > 1 else scores
        if self.fault == "best":
            scores = scores * 0.9
        return scores

    def pairwise(self, reconstructions: Tensor, originals: Tensor) -> Tensor:
        pairs = super().pairwise(reconstructions, originals)
        return pairs.T if self.fault == "pairwise" else pairs


def assert_same(reconstruction: Tensor, original: Tensor) -> None:
    if reconstruction.shape != original.shape:
        raise DomainError("shapes differ")


@pytest.mark.parametrize("fault", ["none", "nan", "neighbours", "best", "pairwise", "shape"])
def test_the_laws_notice_faults(fault: str) -> None:
    rows = torch.tensor([[0.0, 0.5], [0.3, 0.1], [0.9, 0.9], [0.2, 0.7]])
    if fault == "none":
        metric_laws(_Careless(fault), rows)
        return
    with pytest.raises((AssertionError, RuntimeError)):
        metric_laws(_Careless(fault), rows)


# --- which metric judges


def test_the_domain_chooses_its_judge() -> None:
    for domain, judge, exactness, limit in (
        (IMAGE, "ssim", "psnr", 60.0),
        (SMALL, "psnr", "psnr", 60.0),
        (TABLE, "feature_share", "digits", 3.0),
        (TOKENS, "token_share", "token_share", 1.0),
    ):
        own = metrics.of(domain)
        assert own.judge.meaning.name == judge
        assert own.threshold == own.judge.meaning.threshold
        assert (own.exactness.meaning.name, own.exact) == (exactness, limit)
        assert own.exactness in own.all
        assert own[judge] is own.judge


def test_a_spec_names_the_judge() -> None:
    assert metrics.of(IMAGE, {"psnr": 25.0}).judge.meaning.name == "psnr"
    assert metrics.of(IMAGE, {"psnr": 25.0, "ssim": 0.4}).threshold == 0.4
    small = metrics.of(SMALL, {"ssim": 0.4, "psnr": 25.0}, exact=80.0)
    assert (small.judge.meaning.name, small.threshold, small.exact) == ("psnr", 25.0, 80.0)
    strict = metrics.of(TABLE, {"feature_share(tolerance=0.05)": 0.9})
    assert isinstance(strict.judge, FeatureShare)
    assert (strict.judge.tolerance, strict.judge.features, strict.threshold) == (0.05, FEATURES, 0.9)
    assert repr(strict.judge) == "feature_share(tolerance=0.05)"


@pytest.mark.parametrize(
    ("domain", "recognisable", "what"),
    [
        (SMALL, {"ssim": 0.5}, r"at least 11 x 11 pixels.*say \{ psnr = 20 \}"),
        (TABLE, {"ssim": 0.5, "psnr": 20.0}, r"these are table records.*say \{ feature_share = 0.75 \}"),
        (IMAGE, {"mse": 0.1}, "mse falls as reconstructions get better"),
        (IMAGE, {"sim": 0.5}, "unknown name 'sim'.*did you mean 'ssim'"),
        (IMAGE, {"identity": 0.5}, "'identity' is not a metric"),
        (Domain("table", (1,), 2, (Feature("a", spread=0.0),)), {}, "no feature of the table varies"),
    ],
)
def test_a_judge_that_does_not_fit(domain: Domain, recognisable: dict[str, float], what: str) -> None:
    with pytest.raises((DomainError, ExpressionError), match=what):
        metrics.of(domain, recognisable)


@pytest.mark.parametrize("domain", [IMAGE, SMALL, TABLE, TOKENS], ids=lambda d: f"{d.kind}{d.shape}")
@pytest.mark.parametrize("size", [1, 2])
def test_cross_is_matching_and_scoring_one_by_one(domain: Domain, size: int) -> None:
    own, records = metrics.of(domain), draw(domain, 8)
    originals = records[:6].unflatten(0, (-1, size))
    tries = records[-4:].unflatten(0, (-1, size))
    table = own.cross(tries, originals)
    for j, batch in enumerate(tries):
        every = batch.expand_as(originals)
        matched = own.match(every, originals).apply(every).flatten(0, 1)
        for name, scores in own.scores(matched, originals.flatten(0, 1)).items():
            torch.testing.assert_close(table[name][j], scores, rtol=1e-9, atol=1e-9)


# --- tables, by hand


def test_features_by_hand() -> None:
    original = torch.tensor([[1.0, 0, 1, 0, 1, 0.2, 7.0]])
    near = torch.tensor([[1.1, 0.2, 0.6, 0.5, -3, 0.24, 0.0]])  # 0.05 and 0.08 spreads away, category right
    far = torch.tensor([[1.5, 0.6, 0.3, 0.1, 1, 0.2, 7.0]])  # 0.25 spreads away, wrong category, height equal
    share, digits = FeatureShare().on(TABLE), Digits().on(TABLE)
    assert share(near, original).item() == 1.0
    assert share(far, original).item() == pytest.approx(1 / 3)
    assert replace(share, tolerance=0.06)(near, original).item() == pytest.approx(2 / 3)
    assert digits(near, original).item() == pytest.approx(-math.log10(0.08), abs=1e-5)
    assert digits(far, original).item() == 0.0
    assert digits(original, original).item() == math.inf
    assert RowError().on(TABLE)(far, original).item() == pytest.approx((0.25**2 + (0.36 + 0.49 + 0.01) / 2) / 3)
    assert metrics.feature_errors(far, original, FEATURES)[0].tolist() == pytest.approx([0.25, math.inf, 0, 0, 0])


def test_a_category_without_a_clear_winner_is_wrong() -> None:
    original = torch.tensor([[0.0, 1, 0, 0, 1, 0, 0]])
    for block in ([0.0, 0.0, 0.0], [1.0, 1.0, 0.0], [math.nan, 0.0, 0.0], [math.inf, 0.0, 0.0]):
        guess = original.clone()
        guess[0, 1:4] = torch.tensor(block)
        assert FeatureShare().on(TABLE)(guess, original).item() == pytest.approx(2 / 3)


def test_rows_are_readable() -> None:
    row = torch.tensor([-0.5, 0.1, 0.2, 0.9, 1, 1.25, 0])
    assert readable(row, FEATURES) == ("35", "pilot", "one", "1.25", "0")
    assert readable(torch.zeros(7), FEATURES)[1] == "?"
    assert readable(torch.tensor([-1.5, 2.0])) == ("−1.5", "2")


def test_another_record_is_the_null_of_a_row() -> None:
    """Two normal numbers lie within t spreads with probability P(|N(0, 2)| ≤ t)."""
    rows = torch.randn(500, 8, generator=torch.Generator().manual_seed(0))
    metric = FeatureShare(tolerance=0.5).on(Domain("table", (8,), 2))
    expected = math.erf(0.5 / 2)
    for scores in (another_record(metric, rows), another_record(metric, rows[:250], rows[250:])):
        assert scores.mean().item() == pytest.approx(expected, abs=0.02)  # pairs of 4,000 numbers: error below 0.005
    with pytest.raises(DomainError, match="one record has no other"):
        another_record(metric, rows[:1])


def test_all_pairs_of_a_large_table_are_made_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = draw(TABLE, 9)
    whole = FeatureShare().on(TABLE).pairwise(rows, rows)
    monkeypatch.setattr("leakgauge.metrics.tables.CHUNK", 130)  # two rows at a time
    assert torch.equal(FeatureShare().on(TABLE).pairwise(rows, rows), whole)


def test_domains_are_values() -> None:
    assert Domain("table", (7,), 2, FEATURES) == TABLE
    assert hash(Domain("table", (7,), 2, FEATURES)) == hash(TABLE)
    assert Domain("table", (7,), 2) != TABLE
    assert repr(TABLE) == "Domain(kind='table', shape=(7,), classes=2)"
    for kind, shape in (("table", (6,)), ("image", (7,))):
        with pytest.raises(DataError, match="features of 7 columns do not describe"):
            Domain(kind, shape, 2, FEATURES)  # type: ignore[arg-type]


# --- words


def test_scores_in_words() -> None:
    ssim, psnr = (metrics.named(name).meaning for name in ("ssim", "psnr"))
    assert [ssim.text(v) for v in (0.534, -0.001, -0.2, None)] == ["0.53", "0.00", "−0.20", "–"]
    assert [psnr.text(v) for v in (21.44, metrics.CAP, math.inf)] == ["21.4 dB", "identical", "identical"]
    assert [ssim.signed(v) for v in (0.2, -0.2, 0.0001)] == ["+0.20", "−0.20", "0.00"]
    assert psnr.at(15.0) == "psnr 15 dB"
    assert metrics.storable(math.inf) == metrics.CAP
    assert metrics.storable(0.12345678) == 0.123457


@pytest.mark.parametrize(
    "recognisable",
    [{"feature_share": 0.5, "feature_share(tolerance=0.1)": 0.5}, {"feature_share()": 0.5, "feature_share": 0.6}],
)
def test_one_metric_judges(recognisable: dict[str, float]) -> None:
    with pytest.raises(DomainError) as raised:
        metrics.of(Domain("table", (4,), 2), recognisable)
    assert raised.value.where == "recognisable"
    assert raised.value.remedy
