"""Tables and figures of the papers."""

from __future__ import annotations

from scipy import stats

from evidence import Context, Measurement, Number, above, at_least, below, check, numbers, within
from leakgauge.metrics import mean_interval
from leakgauge.papers.bayes import TABLE_2, Cell, CellResult, figure_4, table_2_cell


@check("bayes_figure_4", rows="bayes-figure-4", cost="minutes")
def bayes_figure_4(context: Context) -> Measurement:
    """Mean distance to the record after 200 Adam steps, four pairs of likelihood and prior, 100 records."""
    ends = figure_4(100)
    means = {pair: mean_interval(end) for pair, end in ends.items()}
    true, *others = ends
    p = {o: float(stats.ttest_rel(ends[true], ends[o], alternative="less").pvalue) for o in others}
    wrong = [f"p-value against {o}" for o in others if o.startswith("gaussian likelihood")]
    lead = min(means[o].mean for o in others) - means[true].mean
    again = []
    for seed in range(1, 6):
        other = {pair: round(float(end.mean()), 3) for pair, end in figure_4(100, seed=seed).items()}
        again.append({"seed": seed, **other})
    return Measurement(
        numbers({k: m.mean for k, m in means.items()}, {k: (m.low, m.high) for k, m in means.items()})
        | {"the true pair is closer than the next by": Number(lead, above(0))}
        | numbers({f"p-value against {o}": p[o] for o in others}, bars=dict.fromkeys(wrong, below(0.01))),
        detail="one-sided paired t-test of the true pair against the others; other seeds in the table",
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
        {"mean PSNR": Number(found.mean, within(1.5, paper), (found.low, found.high))},
        detail=f"dB; the paper has {paper}. {_shown(result)}",
    )


@check("table_2_mask_granted", rows="bayes-table-2", cost="long")
def table_2_mask_granted(context: Context) -> Measurement:
    """Random pruning and Gaussian noise: the Bayes adversary that knows the mask, and L2, which does not."""
    granted, plain = (_cell(c, context) for c in (Cell("prune_gaussian", "bayes", True), Cell("prune_gaussian", "l2")))
    scores = {"mask granted": granted.psnr, "l2": plain.psnr, "gain": granted.psnr - plain.psnr}
    means = {name: mean_interval(values) for name, values in scores.items()}
    paper = TABLE_2["prune_gaussian", "bayes"]
    return Measurement(
        numbers(
            {name: mean.mean for name, mean in means.items()},
            {name: (mean.low, mean.high) for name, mean in means.items()},
            {"mask granted": within(1.5, paper), "gain": at_least(3)},
        ),
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
        {"mean PSNR": Number(found.mean, interval=(found.low, found.high))},
        detail=f"dB, measured only. {_shown(result)}",
    )
