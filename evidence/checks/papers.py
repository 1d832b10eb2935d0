"""Tables and figures of the papers: calls of ``leakgauge.papers``, where they are measured once."""

from __future__ import annotations

from dataclasses import replace

from scipy import stats

from evidence import Context, Measurement, Number, above, at_least, at_most, below, check, exactly, within
from evidence.reproduced import beside, numbers_of, reproduced
from leakgauge.metrics import mean_interval
from leakgauge.papers.bayes.figure_4 import PAIRS
from leakgauge.papers.bayes.figure_4 import TABLES as FIGURE_4
from leakgauge.papers.bayes.table_2 import NAMES
from leakgauge.papers.bayes.table_2 import TABLES as TABLE_2
from leakgauge.papers.catalogue import tables
from leakgauge.papers.judging import Outcome
from leakgauge.papers.running import run


@check("bayes_figure_4", rows="bayes-figure-4", cost="minutes")
def bayes_figure_4(context: Context) -> Measurement:
    """Mean distance to the record after 200 Adam steps, four pairs of likelihood and prior, 100 records."""
    outcome = reproduced(FIGURE_4, "bayes/figure-4", context)
    ends = {pair: outcome.samples[pair][:100] for pair in PAIRS}
    means = {pair: mean_interval(end) for pair, end in ends.items()}
    true, *others = PAIRS
    p = {o: float(stats.ttest_rel(ends[true], ends[o], alternative="less").pvalue) for o in others}
    wrong = [o for o in others if o.startswith("gaussian likelihood")]
    lead = min(means[o].mean for o in others) - means[true].mean
    return Measurement(
        {pair: Number(m.mean, interval=(m.low, m.high)) for pair, m in means.items()}
        | {"the true pair is closer than the next by": Number(lead, above(0))}
        | {f"p-value against {o}": Number(p[o], below(0.01) if o in wrong else None) for o in others},
        detail="one-sided paired t-test of the true pair against the others, the first seed; both seeds in the table",
        table=beside(outcome),
    )


def _cells(context: Context, *units: str) -> Outcome:
    return reproduced(TABLE_2, "bayes/table-2", context, only=units)


def _notes(outcome: Outcome, *units: str) -> str:
    return "15 settings tuned on 10 other images: " + "; ".join(f"{u}: {outcome.notes[u]}" for u in units)


@check("table_2_gaussian", rows="bayes-table-2", cost="long")
def table_2_gaussian(context: Context) -> Measurement:
    """Gaussian noise 0.1, L2 attack: mean PSNR of 20 MNIST test images, the paper's unclipped convention."""
    outcome = _cells(context, "gaussian, l2")
    (number,) = numbers_of(outcome, ["gaussian, l2"]).values()
    return Measurement(
        {"mean PSNR": replace(number, bar=within(1.5, 19.95))},
        detail=f"dB; the paper has 19.95. {_notes(outcome, 'gaussian, l2')}",
    )


@check("table_2_mask_granted", rows="bayes-table-2", cost="long")
def table_2_mask_granted(context: Context) -> Measurement:
    """Random pruning and Gaussian noise: the Bayes adversary that knows the mask, and L2, which does not."""
    units = "prune + gaussian, bayes", "prune + gaussian, l2"
    outcome = _cells(context, *units)
    figures = numbers_of(outcome, (*units, "prune + gaussian: bayes above l2"))
    granted, plain, gain = (figures[name] for name in (*units, "prune + gaussian: bayes above l2"))
    return Measurement(
        {
            "mask granted": replace(granted, bar=within(1.5, 18.40)),
            "l2": plain,
            "gain": replace(gain, bar=at_least(3)),
        },
        detail=f"dB; the paper has 18.40 and 14.44. {_notes(outcome, *units)}",
    )


@check("table_2_mask_not_granted", rows="bayes-table-2", cost="long")
def table_2_mask_not_granted(context: Context) -> Measurement:
    """Random pruning and Gaussian noise: the mask summed out entry by entry (the paper has no such cell)."""
    unit = "prune + gaussian, bayes, mask hidden"
    outcome = _cells(context, unit)
    return Measurement(
        {"mean PSNR": numbers_of(outcome, [unit])[unit]}, detail=f"dB, measured only. {_notes(outcome, unit)}"
    )


@check("table_2_whole", rows="papers-table-2", cost="long")
def table_2_whole(context: Context) -> Measurement:
    """All sixteen cells of Table 2, MNIST, step 0, and what the paper concludes from them."""
    outcome = reproduced(TABLE_2, "bayes/table-2", context)
    cells = [row for row in outcome.rows if row.name in NAMES]
    near_by = sum(row.verdict in ("reproduced", "holds when reduced") for row in cells)
    bars = {row.name: at_least(3) for row in outcome.rows if " above " in row.name}
    bars |= {"gaussian: bayes less l2": within(1, 0), "laplace: bayes less l1": within(1, 0)}
    figures = numbers_of(outcome, tuple(bars))
    return Measurement(
        {
            "cells measured": Number(sum(row.value is not None for row in cells), exactly(16)),
            "within 1.5 dB of the paper": Number(near_by, at_least(12)),
            **{name: replace(number, bar=bars[name]) for name, number in figures.items()},
        },
        detail="dB, 20 MNIST test images, 15 settings of each cell tuned on 10 training images",
        table=beside(outcome),
    )


@check("papers_smoke", rows="papers-smoke", cost="minutes")
def papers_smoke(context: Context) -> Measurement:
    """Every reproduction at its smallest scale: does it show what its paper claims?"""
    table = []
    for name, one in tables().items():
        if "smoke" in one.sizes:
            outcome = run(one, "smoke", context.scratch / name.partition("/")[0])
            table.append({"table": name, "holds": str(outcome.holds), "seconds": f"{outcome.seconds:.1f}"})
            context.say(str(table[-1]))
    return Measurement(
        {
            "tables, figures and theorems": Number(len(tables()), at_least(30)),
            "that have no smoke run": Number(len(tables()) - len(table), exactly(0)),
            "whose smoke run does not show its claim": Number(sum(row["holds"] != "True" for row in table), exactly(0)),
            "longest, in processor seconds": Number(max(float(row["seconds"]) for row in table), at_most(30)),
        },
        detail="a claim is an ordering, a gap or an exact value",
        table=table,
    )
