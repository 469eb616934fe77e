"""Out of distribution: the scatter of all test sets, gains by corruption."""

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.data.corruptions import LIKE_JITTER, UNLIKE_JITTER
from experiments.reporting.figures.style import (
    COLOURS,
    FAINT,
    MARKERS,
    MUTED,
    draw_panels,
    grid_of_panels,
    headline,
    legend_below,
    show_not_run,
)
from experiments.reporting.names import DATASET_TITLES, HEADLINE, METRIC_TITLES, method_title
from experiments.reporting.summaries import (
    CORRUPTED,
    Measured,
    all_trained,
    drawn_datasets,
    gain_over_networks,
    improvement,
    sets_of,
)


def draw_scatter(measured: Sequence[Measured], method: str = "lates_none_1") -> Figure:
    """Every (network, corrupted set) is one point; its colour is the winner's."""
    rival = "temperature"

    def draw(axes: Axes, dataset: str, metric: str) -> bool:
        pairs = [
            np.stack([each.values(name, metric, CORRUPTED) for name in (rival, method)], axis=1)
            for each in all_trained(measured, dataset)
        ]
        points = np.concatenate([np.empty((0, 2)), *pairs])
        points = points[np.isfinite(points).all(axis=1)]
        if not len(points):
            return False
        gains = np.asarray([improvement(metric, theirs, ours) for theirs, ours in points])
        better = gains > 0
        colours = ((gains < 0, COLOURS[rival]), (gains == 0, MUTED), (better, COLOURS[method]))
        for (won, colour), marker in zip(colours, (MARKERS[rival], "o", MARKERS[method]), strict=True):
            style = {"color": colour, "marker": marker}
            axes.scatter(*points[won].T, s=5, alpha=0.35, linewidths=0, rasterized=True, **style)
        ends = (points.min(), points.max())
        axes.plot(ends, ends, color=MUTED, linewidth=0.8)
        axes.set_aspect("equal", adjustable="datalim")
        share = f"LATES better\n{100 * better.mean():.0f} % of {len(points)}"
        above = improvement(metric, 0.0, 1.0) > 0
        corner = (0.97, 0.05, "right", "bottom") if above else (0.03, 0.97, "left", "top")
        axes.text(*corner[:2], share, transform=axes.transAxes, ha=corner[2], va=corner[3], fontsize=7, color=MUTED)
        return True

    datasets = drawn_datasets(measured)
    figure, panels = draw_panels(datasets, draw, below="temperature", height=2.0)
    for axes, dataset in zip(panels[:, 0], datasets, strict=True):
        axes.set_ylabel(f"{DATASET_TITLES[dataset]}\n{method_title(method)}")
    headline(figure, "All corrupted test sets of all networks, in the winner's colour", measured)
    legend_below(figure, (rival, method), "point")
    return figure


def draw_corruptions(measured: Sequence[Measured]) -> Figure:
    """Relative gain for each corruption, those that resemble the jitter below the others."""
    order = (*LIKE_JITTER[::-1], *UNLIKE_JITTER[::-1])
    height = np.asarray([place + (place >= len(LIKE_JITTER)) for place in range(len(order))], dtype=float)
    datasets = drawn_datasets(measured)
    metrics = ("ece", "nll", "accuracy")
    columns = [(dataset, metric) for dataset in datasets for metric in metrics]
    figure, panels = grid_of_panels(1, len(columns), width=max(2.0, 11 / len(columns)), height=4.6)
    unnamed = True  # until the first panel that is drawn names the corruptions for all
    for axes, (dataset, metric) in zip(panels[0], columns, strict=True):
        axes.set_title(f"{DATASET_TITLES[dataset]}\n{METRIC_TITLES[metric]}")
        gains = {
            method: [gain_over_networks(measured, dataset, method, metric, sets_of((c,))) for c in order]
            for method in HEADLINE[1:]
        }
        if all(math.isnan(value) for values in gains.values() for value in values):
            show_not_run(axes)
            continue
        axes.axvline(0, color=COLOURS["temperature"], linewidth=1.2)
        for method, values in gains.items():
            axes.scatter(values, height, s=16, color=COLOURS[method], marker=MARKERS[method], zorder=3)
        axes.grid(axis="x", color=FAINT)
        axes.set_xlabel("gain, %")
        axes.set_yticks(height, [name.replace("_", " ") if unnamed else "" for name in order])
        axes.set_ylim(-0.8, height[-1] + 0.8)
        unnamed = False
    title = "Gain over temperature scaling (blue line), by corruption; the lower seven resemble the jitter"
    headline(figure, title, measured)
    legend_below(figure, HEADLINE[1:], "point", gains=True)
    return figure
