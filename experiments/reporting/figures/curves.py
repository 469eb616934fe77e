"""Curves: how scores and gains depend on severity, training data, hold-out data and parameters."""

import math
from collections.abc import Callable, Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.data.corruptions import NAMES, SEVERITIES
from experiments.reporting import paper
from experiments.reporting.figures.style import (
    COLOURS,
    MUTED,
    draw_curve,
    draw_panels,
    headline,
    legend_below,
    name_row,
)
from experiments.reporting.names import BUDGETS, DATASET_TITLES, HEADLINE, METRIC_TITLES, NETWORK_TITLES, VIEWS
from experiments.reporting.summaries import (
    CLEAN_SET,
    CORRUPTED,
    HOLDOUT_SIZE,
    LOW_DATA,
    Measured,
    Variation,
    added_over_networks,
    drawn_datasets,
    gain_over_networks,
    mean_over_networks,
    of_each_part,
    sets_of,
    spread,
)

LATES = HEADLINE[1:]
SEVERITY = ("lates_paper", "temperature", "temperature_jittered_holdout", *HEADLINE[2:])
"""In the order in which they are drawn: what coincides with temperature scaling lies below it."""
Curves = Mapping[str, Sequence[float]]


def _draw_curves(axes: Axes, x: Sequence[float], curves: Curves) -> bool:
    """method -> y; False where there is nothing to draw."""
    if all(math.isnan(value) for values in curves.values() for value in values):
        return False
    for method, values in curves.items():
        draw_curve(axes, x, values, method)
    axes.set_xticks(x)
    return True


def draw_severity(measured: Sequence[Measured]) -> Figure:
    """The paper's curves: mean over corruptions and networks, by severity; 0 is the clean test set."""
    sets = [CLEAN_SET, *(sets_of(NAMES, (severity,)) for severity in SEVERITIES)]

    def draw(axes: Axes, dataset: str, metric: str) -> bool:
        curves = {
            method: [mean_over_networks(measured, dataset, method, metric, each) for each in sets]
            for method in SEVERITY
        }
        return _draw_curves(axes, (0, *SEVERITIES), curves)

    datasets = drawn_datasets(measured)
    figure, panels = draw_panels(datasets, draw, below="severity")
    for axes, dataset in zip(panels[:, 0], datasets, strict=True):
        name_row(axes, dataset)
    headline(figure, "Corrupted test sets, by severity", measured)
    legend_below(figure, SEVERITY)
    return figure


def draw_low_data(measured: Sequence[Measured]) -> Figure:
    """Relative gain by the share of the training split."""
    figure = _draw_parts(measured, LOW_DATA, LATES, Measured.relative_gain, "training split used, %", gains=True)
    headline(figure, "Gain over temperature scaling (blue line) with less training data")
    legend_below(figure, LATES, gains=True)
    return figure


def draw_holdout_size(measured: Sequence[Measured]) -> Figure:
    """The five metrics by the size of the hold-out."""
    figure = _draw_parts(measured, HOLDOUT_SIZE, HEADLINE, Measured.mean, "hold-out, % of split")
    headline(figure, "Clean test set, by the size of the hold-out; the network is trained on the rest")
    legend_below(figure, HEADLINE)
    return figure


def _draw_parts(
    measured: Sequence[Measured],
    variation: Variation,
    methods: Sequence[str],
    value: Callable[[Measured, str, str], float],
    below: str,
    gains: bool = False,
) -> Figure:
    """A row for each network that was varied: the mean `value` of (cell, method, metric) by part.

    Where none was, the one to run first shows as missing.
    """
    shares = [
        round(100 * (part.train_fraction if variation is LOW_DATA else part.holdout_fraction))
        for part in variation.parts
    ]
    everything = {
        (dataset, network): of_each_part(measured, dataset, network, variation)
        for dataset in ("cifar100", "cifar10")
        for network in paper.NETWORKS
    }
    varied = {place: by_part for place, by_part in everything.items() if by_part} or {("cifar100", "resnet18"): {}}

    def draw(axes: Axes, place: tuple[str, str], metric: str) -> bool:
        if gains:
            axes.set_title(METRIC_TITLES[metric])
            axes.axhline(0, color=COLOURS["temperature"], linewidth=1.2)
        curves = {
            method: [spread(value(cell, method, metric) for cell in cells).mean for cells in varied[place].values()]
            for method in methods
        }
        return _draw_curves(axes, shares, curves)

    figure, panels = draw_panels([*varied], draw, below=below)
    for axes, (dataset, network) in zip(panels[:, 0], varied, strict=True):
        axes.set_ylabel(f"{DATASET_TITLES[dataset]}, {NETWORK_TITLES[network]}" + ("\ngain, %" if gains else ""))
    return figure


def draw_budget(measured: Sequence[Measured]) -> Figure:
    """Relative gain against the parameters really added, one curve for each kind of views."""
    kinds = {"clean": CLEAN_SET, "corrupted": CORRUPTED}
    rows = [(dataset, label) for dataset in drawn_datasets(measured) for label in kinds]

    def draw(axes: Axes, row: tuple[str, str], metric: str) -> bool:
        dataset, label = row
        axes.set_title(METRIC_TITLES[metric])
        drawn = False
        for views in VIEWS:
            methods = [f"lates_{views}_{budget}" for budget in BUDGETS]
            gains = [gain_over_networks(measured, dataset, each, metric, kinds[label]) for each in methods]
            if not all(map(math.isnan, gains)):
                added = [added_over_networks(measured, dataset, each) for each in methods]
                draw_curve(axes, added, gains, f"lates_{views}_1")
                drawn = True
        if drawn:
            axes.set_xscale("log")
            axes.set_xticks([0.25, 0.5, 1, 2, 5, 10], ["¼", "½", "1", "2", "5", "10"])
            axes.set_xlim(0.2, 12)
            axes.minorticks_off()
            axes.axhline(0, color=COLOURS["temperature"], linewidth=1.2)
            axes.axvline(1, color=MUTED, linewidth=0.7, linestyle=(0, (2, 2)))
        return drawn

    figure, panels = draw_panels(rows, draw, below="parameters added, %", height=1.55)
    for axes, (dataset, label) in zip(panels[:, 0], rows, strict=True):
        axes.set_ylabel(f"{DATASET_TITLES[dataset]}, {label}\ngain, %")
    headline(figure, "Gain over temperature scaling (blue line) against parameters; dashed: the paper's 1 %", measured)
    legend_below(figure, [f"lates_{views}_1" for views in VIEWS])
    return figure
