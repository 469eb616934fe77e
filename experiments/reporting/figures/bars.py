"""In distribution: bars for every network, and what its depth holds."""

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.reporting import paper
from experiments.reporting.figures.style import (
    COLOURS,
    INK,
    MUTED,
    SHORT,
    draw_panels,
    grid_of_panels,
    headline,
    legend_below,
    name_row,
    show_not_run,
)
from experiments.reporting.names import DATASET_TITLES, HEADLINE, LARGER_IS_BETTER, METRIC_TITLES, NETWORK_TITLES
from experiments.reporting.summaries import Measured, drawn_datasets, spread, trained

LATES = HEADLINE[1:]
BAR = 0.8 / len(HEADLINE)
THIN = 0.84 / len(LATES)


def draw_bars(measured: Sequence[Measured]) -> Figure:
    """Five metrics x five networks. Accuracy and AUC are drawn as what they lack to 1: bars start at zero, shorter is
    better everywhere. A dot for each seed."""

    def draw(axes: Axes, dataset: str, metric: str) -> bool:
        networks = paper.networks_of(dataset)
        falls_short = metric in LARGER_IS_BETTER
        axes.set_title(f"1 − {METRIC_TITLES[metric]}" if falls_short else METRIC_TITLES[metric])
        if not any(trained(measured, dataset, network) for network in networks):
            return False
        for place, network in enumerate(networks):
            _group(axes, place, trained(measured, dataset, network), metric, falls_short)
        axes.set_xticks(range(len(networks)), [SHORT.get(network, network) for network in networks])
        axes.set_xlim(-0.6, len(networks) - 0.4)
        return True

    datasets = drawn_datasets(measured)
    figure, panels = draw_panels(datasets, draw, width=2.3)
    for axes, dataset in zip(panels[:, 0], datasets, strict=True):
        name_row(axes, dataset)
    headline(figure, "Clean test set: shorter is better; a dot for each seed", measured)
    legend_below(figure, HEADLINE, "bar")
    return figure


def _group(axes: Axes, place: int, cells: Sequence[Measured], metric: str, falls_short: bool) -> None:
    if not cells:
        axes.text(place, 0, " not run", rotation=90, ha="center", va="bottom", color=MUTED, fontsize=7, style="italic")
    for offset, method in enumerate(HEADLINE if cells else ()):
        values = [each.mean(method, metric) for each in cells]
        values = [1 - value for value in values] if falls_short else values
        x = place + (offset - (len(HEADLINE) - 1) / 2) * BAR
        axes.bar(x, spread(values).mean, width=0.9 * BAR, color=COLOURS[method])
        if len(values) > 1:
            axes.scatter([x] * len(values), values, s=7, color="white", edgecolors=INK, linewidths=0.5, zorder=3)


def draw_depth(measured: Sequence[Measured], dataset: str) -> Figure:
    """The paper's summary for every network that was run: probe accuracy by depth, contributions, relative gain."""
    possible = paper.networks_of(dataset)
    networks = [network for network in possible if trained(measured, dataset, network)] or possible
    figure, panels = grid_of_panels(3, len(networks), width=max(2.15, 9 / len(networks)), height=1.6)
    for column, network in zip(panels.T, networks, strict=True):
        cells = trained(measured, dataset, network)
        column[0].set_title(NETWORK_TITLES.get(network, network), fontweight="bold")
        members = list(cells[0].facts.get("probe_accuracy", {})) if cells else []
        if not members:
            for axes in column:
                show_not_run(axes)
            continue
        depth = np.arange(1, len(members) + 1)
        accuracy = [spread(each.fact("probe_accuracy", member) for each in cells).mean for member in members]
        by_paper = [spread(each.fact("probe_accuracy_paper", member) for each in cells).mean for member in members]
        column[0].plot(depth, by_paper, color=COLOURS["lates_paper"], marker="P", markersize=3)
        column[0].plot(depth, accuracy, color=INK, marker="o", markersize=3)
        column[0].set_ylim(0, 1)
        column[0].annotate(
            "head", (depth[-1], accuracy[-1]), (0, 5), textcoords="offset points", ha="center", fontsize=7
        )
        for offset, method in enumerate(LATES):
            shares = [
                spread(each.fact("methods", method, "contributions", name) for each in cells).mean for name in members
            ]
            column[1].bar(
                depth + (offset - (len(LATES) - 1) / 2) * THIN, shares, width=0.92 * THIN, color=COLOURS[method]
            )
        column[1].set_ylim(0, 1)
        for axes in column[:2]:
            axes.set_xlim(0.3, len(members) + 0.7)
            axes.set_xticks(depth[:: 1 if len(members) <= 9 else 3])
        _relative_gains(column[2], cells)
    for axes, text in zip(
        panels[:, 0], ("accuracy of member", "contribution", "gain over\ntemperature, %"), strict=True
    ):
        axes.set_ylabel(text)
    for axes in panels[1]:
        axes.set_xlabel("member, in depth order")
    headline(
        figure, f"{DATASET_TITLES[dataset]}: what each depth knows (dark: uncut probes, pale: the paper's) and votes"
    )
    legend_below(figure, LATES, "bar", gains=True)
    return figure


def _relative_gains(axes: Axes, cells: Sequence[Measured]) -> None:
    for offset, method in enumerate(LATES):
        gains = [spread(each.relative_gain(method, metric) for each in cells).mean for metric in paper.METRICS]
        heights = [0.0 if math.isnan(gain) else gain for gain in gains]
        places = np.arange(len(gains)) + (offset - (len(LATES) - 1) / 2) * THIN
        axes.bar(places, heights, width=0.92 * THIN, color=COLOURS[method])
    axes.axhline(0, color=MUTED, linewidth=0.8)
    axes.set_xticks(range(len(paper.METRICS)), ["ECE", "NLL", "Brier", "acc.", "AUC"])
