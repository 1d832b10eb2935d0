"""Tables and figures of the papers."""

from __future__ import annotations

from scipy import stats

from evidence import Context, Measurement, check
from leakgauge.metrics import mean_interval
from leakgauge.papers.bayes import TABLE_2, Cell, CellResult, figure_4, table_2_cell


@check("bayes_figure_4", rows="bayes-figure-4", cost="minutes")
def bayes_figure_4(context: Context) -> Measurement:
    """Mean distance to the record after 200 Adam steps, four pairs of likelihood and prior, 100 records."""
    ends = figure_4(100)
    means = {pair: mean_interval(end) for pair, end in ends.items()}
    true, *others = ends
    p = {o: float(stats.ttest_rel(ends[true], ends[o], alternative="less").pvalue) for o in others}
    wrong = [p[o] for o in others if o.startswith("gaussian likelihood")]
    closest = min(means, key=lambda pair: means[pair].mean) == true
    again = []
    for seed in range(1, 6):
        other = {pair: round(float(end.mean()), 3) for pair, end in figure_4(100, seed=seed).items()}
        again.append({"seed": seed, **other})
    return Measurement(
        value={pair: found.mean for pair, found in means.items()},
        interval={pair: (found.low, found.high) for pair, found in means.items()},
        passed=closest and max(wrong) < 0.01,
        detail=f"one-sided paired t-test of the true pair against the others: {p}; other seeds in the table",
        table=again,
    )


def _cell(cell: Cell, context: Context) -> CellResult:
    return table_2_cell(cell, say=context.say)


def _shown(result: CellResult) -> str:
    return f"tuned on 8 other images ({result.settings} settings, {result.tuning_psnr:.2f} dB there): {result.tuned!r}"


@check("table_2_gaussian", rows="bayes-table-2", cost="long")
def table_2_gaussian(context: Context) -> Measurement:
    """Gaussian noise 0.1, L2 attack: mean PSNR of 20 MNIST test images, the paper's unclipped convention."""
    result = _cell(Cell("gaussian", "l2"), context)
    found, paper = mean_interval(result.psnr), TABLE_2["gaussian", "l2"]
    return Measurement(
        value=found.mean,
        interval=(found.low, found.high),
        passed=abs(found.mean - paper) <= 1.5,
        detail=f"dB; the paper has {paper}. {_shown(result)}",
    )


@check("table_2_mask_granted", rows="bayes-table-2", cost="long")
def table_2_mask_granted(context: Context) -> Measurement:
    """Random pruning and Gaussian noise: the Bayes adversary that knows the mask, and L2, which does not."""
    granted, plain = (_cell(c, context) for c in (Cell("prune_gaussian", "bayes", True), Cell("prune_gaussian", "l2")))
    values = {"mask granted": mean_interval(granted.psnr), "l2": mean_interval(plain.psnr)}
    gain = mean_interval(granted.psnr - plain.psnr)
    paper = TABLE_2["prune_gaussian", "bayes"]
    return Measurement(
        value={**{k: v.mean for k, v in values.items()}, "gain": gain.mean},
        interval={**{k: (v.low, v.high) for k, v in values.items()}, "gain": (gain.low, gain.high)},
        passed=abs(values["mask granted"].mean - paper) <= 1.5 and gain.mean >= 3,
        detail=f"dB; the paper has {paper} and {TABLE_2['prune_gaussian', 'l2']}. {_shown(granted)}; {_shown(plain)}",
    )


@check("table_2_mask_not_granted", rows="bayes-table-2", cost="long")
def table_2_mask_not_granted(context: Context) -> Measurement:
    """Random pruning and Gaussian noise: the mask summed out entry by entry (the paper has no such cell)."""
    result = table_2_cell(
        Cell("prune_gaussian", "bayes"), refine=False, say=context.say
    )  # the dearest cell: tuned coarsely
    found = mean_interval(result.psnr)
    return Measurement(
        value=found.mean, interval=(found.low, found.high), passed=True, detail=f"dB, measured only. {_shown(result)}"
    )
