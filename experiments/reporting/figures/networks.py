"""In distribution: every network, and what its depth holds."""

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.reporting.figures import style
from experiments.reporting.figures.curves import REFERENCE
from experiments.reporting.names import in_words
from experiments.reporting.significance import network_gains
from experiments.reporting.summaries import CLEAN_SET, Measured, drawn_datasets, networks_of, spread, trained


def draw_clean(measured: Sequence[Measured], training: str) -> Figure:
    """Gains over temperature scaling: a dot for each trained network; where there are several seeds, a line at their mean."""
    methods, datasets = style.present(measured, training, left_out=[REFERENCE]), drawn_datasets(measured, training)
    offsets = style.dodge(methods)
    possible = dict.fromkeys(network for dataset in datasets for network in networks_of(dataset, training))
    run = {each.cell.network for each in measured if each.training == training}
    networks = [network for network in possible if network in run]

    def draw(axes: Axes, dataset: str, metric: str) -> bool:
        for place, network in enumerate(networks):
            cells = trained(measured, dataset, network, training=training)
            if not cells:
                axes.text(place, 0.5, "not run", rotation=90, ha="center", color=style.MUTED, fontsize=7, style="italic",
                          transform=axes.get_xaxis_transform())  # fmt: skip
            for method in methods if cells else ():
                values, x = network_gains(cells, method, REFERENCE, metric, CLEAN_SET), place + offsets[method]
                axes.scatter([x] * len(values), values, s=14, zorder=3, **style.look(method))
                if len(values) > 1:
                    axes.plot([x - 0.04, x + 0.04], [values.mean()] * 2, color=style.INK, linewidth=1, zorder=4)
        axes.axhline(0, color=style.COLOURS[REFERENCE], linewidth=1.2)
        names = [in_words(network).replace(" ", "\n") for network in networks]
        axes.set_xticks(range(len(networks)), names, rotation=30 if len(networks) > 5 else 0)
        axes.set_xlim(-0.6, len(networks) - 0.4)
        return bool(networks)

    figure = style.draw_panels(datasets, draw, width=4.8)
    missing = ", ".join(in_words(network) for network in possible if network not in run)
    title = "Clean test set: gain over temperature scaling (blue line), up is better; a dot for each trained network"
    return style.finished(figure, title + (f"\nNot run: {missing}" if missing and networks else ""), training, methods)


def draw_depth(measured: Sequence[Measured], dataset: str, training: str) -> Figure:
    """For every network that was run: the accuracy of each member, and its share of the weights."""
    possible = networks_of(dataset, training)
    cells_of = {network: trained(measured, dataset, network, training=training) for network in possible}
    networks = [network for network, cells in cells_of.items() if cells] or possible
    columns = math.ceil(len(networks) / math.ceil(len(networks) / 4))  # at most four beside one another
    lines = math.ceil(len(networks) / columns)
    figure, panels = style.grid_of_panels(2 * lines, columns, width=9.6 / columns, height=1.9)
    pairs = [panels[2 * line : 2 * line + 2, place] for line in range(lines) for place in range(columns)]
    for axes in np.ravel(pairs[len(networks) :]):
        axes.remove()
    methods = [method for method in style.present(measured, training) if method.startswith("lates_")]
    for column, network in zip(pairs, networks, strict=False):
        cells = cells_of[network]
        column[0].set_title(in_words(network), fontweight="bold")
        members = _members(cells[0], methods) if cells else []
        if not members:
            for axes in column:
                style.show_not_run(axes)
            continue
        depth = np.arange(1, len(members) + 1)
        for each in cells:
            accuracy = [each.fact("probe_accuracy", member) for member in members]
            column[0].scatter(depth, accuracy, s=12, color=style.INK, alpha=0.7, linewidths=0)
        head = spread(each.fact("probe_accuracy", members[-1]) for each in cells).mean
        column[0].annotate("head", (depth[-1], head), (0, -7), textcoords="offset points", ha="center", va="top",
                           fontsize=7)  # fmt: skip
        column[0].set_ylim(0, 1)
        offsets = style.dodge(methods, 0.84)
        for method in methods:
            shares = [spread(each.fact("methods", method, "contributions", name) for each in cells).mean for name in members]
            column[1].bar(depth + offsets[method], shares, width=0.8 / len(methods), color=style.COLOURS[method])
        column[1].set_ylim(0, 1)
        column[1].set_xlabel("member, in depth order")
        for axes in column:
            axes.set_xlim(0.3, len(members) + 0.7)
            axes.set_xticks(depth[:: 1 if len(members) <= 9 else 3])
    for axes, text in zip(panels[:, 0], ("accuracy of each\nmember alone", "contribution") * lines, strict=True):
        axes.set_ylabel(text)
    title = f"{in_words(dataset)}: accuracy of each member (uncut probes; no dot: not recorded), and its share of the weights"
    return style.finished(figure, title, training, methods, bars=True)


def _members(cell: Measured, methods: Sequence[str]) -> list[str]:
    """In depth order: the default's, which has one more than the paper where the last block of a network is not its head's."""
    votes = [list(cell.facts["methods"][method]["contributions"]) for method in methods if method in cell.methods]
    return max([list(cell.facts.get("probe_accuracy", {})), *votes], key=len)
