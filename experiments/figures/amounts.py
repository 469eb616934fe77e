"""How gains depend on amounts: training data, hold-out data, parameters."""

import math
from collections.abc import Callable, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments import paper
from experiments.figures.style import (
    COLOURS,
    MUTED,
    draw_curve,
    grid_of_panels,
    headline,
    legend_below,
    metric_title,
    show_not_run,
)
from experiments.summaries import (
    BUDGETS,
    CLEAN_SET,
    CORRUPTED,
    DATASET_TITLES,
    HEADLINE,
    HOLDOUT_SIZE,
    LOW_DATA,
    METRIC_TITLES,
    NETWORK_TITLES,
    VIEWS,
    Measured,
    Variation,
    drawn_datasets,
    gain_over_networks,
    of_each_part,
    over_networks,
    spread,
)

LATES = HEADLINE[1:]


def draw_low_data(measured: Sequence[Measured]) -> Figure:
    """Relative gain by the share of the training split."""
    shares = [round(100 * part.train_fraction) for part in LOW_DATA.parts]
    figure, panels = _draw_parts(measured, LOW_DATA, shares, LATES, Measured.relative_gain, "\ngain, %")
    for row in panels:
        for axes, metric in zip(row, paper.METRICS, strict=True):
            axes.set_title(METRIC_TITLES[metric])
            axes.axhline(0, color=COLOURS["temperature"], linewidth=1.2)
    for axes in panels[-1]:
        axes.set_xlabel("training split used, %")
    headline(figure, "Gain over temperature scaling (blue line) with less training data")
    legend_below(figure, LATES, gains=True)
    return figure


def draw_holdout_size(measured: Sequence[Measured]) -> Figure:
    """The five metrics by the size of the hold-out."""
    shares = [round(100 * part.holdout_fraction) for part in HOLDOUT_SIZE.parts]
    figure, panels = _draw_parts(measured, HOLDOUT_SIZE, shares, HEADLINE, Measured.mean)
    for row in panels:
        for axes, metric in zip(row, paper.METRICS, strict=True):
            axes.set_title(metric_title(metric))
    for axes in panels[-1]:
        axes.set_xlabel("hold-out, % of split")
    headline(figure, "Clean test set, by the size of the hold-out; the network is trained on the rest")
    legend_below(figure, HEADLINE)
    return figure


def _draw_parts(
    measured: Sequence[Measured],
    variation: Variation,
    shares: Sequence[int],
    methods: Sequence[str],
    value: Callable[[Measured, str, str], float],
    unit: str = "",
) -> tuple[Figure, np.ndarray]:
    """A row for each network that was varied, a panel for each metric: the mean `value` of (cell, method, metric) by part.

    Where none was, the one to run first shows as missing.
    """
    everything = {
        (dataset, network): of_each_part(measured, dataset, network, variation)
        for dataset in ("cifar100", "cifar10")
        for network in paper.NETWORKS
    }
    varied = {place: by_part for place, by_part in everything.items() if by_part} or {("cifar100", "resnet18"): {}}
    figure, panels = grid_of_panels(len(varied), len(paper.METRICS))
    for row, ((dataset, network), by_part) in zip(panels, varied.items(), strict=True):
        row[0].set_ylabel(f"{DATASET_TITLES[dataset]}, {NETWORK_TITLES[network]}{unit}")
        for axes, metric in zip(row, paper.METRICS, strict=True):
            curves = {
                method: [spread(value(cell, method, metric) for cell in cells).mean for cells in by_part.values()]
                for method in methods
            }
            _draw_curves(axes, shares, curves)
    return figure, panels


def draw_budget(measured: Sequence[Measured]) -> Figure:
    """Relative gain against the parameters really added, one curve for each kind of views."""
    rows = [
        (dataset, label, sets)
        for dataset in drawn_datasets(measured)
        for label, sets in (("clean", CLEAN_SET), ("corrupted", CORRUPTED))
    ]
    figure, panels = grid_of_panels(len(rows), len(paper.METRICS), height=1.55)
    for row, (dataset, label, sets) in zip(panels, rows, strict=True):
        row[0].set_ylabel(f"{DATASET_TITLES[dataset]}, {label}\ngain, %")
        for axes, metric in zip(row, paper.METRICS, strict=True):
            axes.set_title(METRIC_TITLES[metric])
            drawn = False
            for views in VIEWS:
                methods = [f"lates_{views}_{budget}" for budget in BUDGETS]
                gains = [gain_over_networks(measured, dataset, each, metric, sets) for each in methods]
                spent = [
                    over_networks(
                        measured, dataset, lambda one, each=each: 100 * one.fact("methods", each, "parameters")
                    )
                    for each in methods
                ]
                if not all(map(math.isnan, gains)):
                    draw_curve(axes, spent, gains, f"lates_{views}_1")
                    drawn = True
            if not drawn:
                show_not_run(axes)
                continue
            axes.set_xscale("log")
            axes.set_xticks([0.25, 0.5, 1, 2, 5, 10], ["¼", "½", "1", "2", "5", "10"])
            axes.set_xlim(0.2, 12)
            axes.minorticks_off()
            axes.axhline(0, color=COLOURS["temperature"], linewidth=1.2)
            axes.axvline(1, color=MUTED, linewidth=0.7, linestyle=(0, (2, 2)))
    for axes in panels[-1]:
        axes.set_xlabel("parameters added, %")
    headline(figure, "Gain over temperature scaling (blue line) against parameters; dashed: the paper's 1 %", measured)
    legend_below(figure, [f"lates_{views}_1" for views in VIEWS])
    return figure


def _draw_curves(axes: Axes, ticks: Sequence[int], curves: dict[str, list[float]]) -> None:
    if all(math.isnan(value) for values in curves.values() for value in values):
        show_not_run(axes)
        return
    for method, values in curves.items():
        draw_curve(axes, ticks, values, method)
    axes.set_xticks(ticks)
