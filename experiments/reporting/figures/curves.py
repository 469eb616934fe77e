"""How scores and gains depend on severity, corruption, training data, hold-out data and parameters.

Lines and bands are means over architectures; a single network is a dot.
"""

import math
from collections.abc import Sequence
from itertools import product

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.data.corruptions import LIKE_JITTER, NAMES, SEVERITIES, UNLIKE_JITTER
from experiments.evaluation.methods import BUDGETS
from experiments.evaluation.prepared import VIEWS
from experiments.reporting import paper
from experiments.reporting.figures import style
from experiments.reporting.names import CIFAR, DATASET_TITLES, METRIC_TITLES, NETWORK_TITLES
from experiments.reporting.significance import architecture_gains, t_test
from experiments.reporting.summaries import (
    CLEAN_SET,
    CORRUPTED,
    HOLDOUT_SIZE,
    LOW_DATA,
    Measured,
    Variation,
    added_over_networks,
    by_architecture,
    drawn_datasets,
    of_each_part,
    sets_of,
)

REFERENCE = "temperature"


def draw_severity(measured: Sequence[Measured]) -> Figure:
    """Gains over temperature scaling by severity; 0 is the clean test set. Bands: 95 % t intervals over architectures."""
    sets = [CLEAN_SET, *(sets_of(NAMES, (severity,)) for severity in SEVERITIES)]
    methods = style.present(measured, left_out=[REFERENCE])
    offsets = style.dodge(methods, 0.5)

    def draw(axes: Axes, dataset: str, metric: str) -> bool:
        architectures = by_architecture(measured, dataset)
        axes.set_title(f"gain in {METRIC_TITLES[metric]}")
        drawn = False
        for method in methods:
            gains = [architecture_gains(architectures, method, REFERENCE, metric, each) for each in sets]
            if not all(map(len, gains)) or not any(each.any() for each in gains):  # not run; or no prediction changes
                continue
            drawn, x = True, np.arange(len(sets)) + offsets[method]
            means = [each.mean() for each in gains]
            line = "-" if min(map(len, gains)) > 1 else "none"
            axes.plot(x, means, markersize=3.5, linestyle=line, **style.look(method))
            bands = [t_test(each)[0] for each in gains]
            if not math.isnan(bands[0].low):
                low, high = [band.low for band in bands], [band.high for band in bands]
                axes.fill_between(x, low, high, color=style.COLOURS[method], alpha=0.12, linewidth=0)
        if drawn:
            axes.axhline(0, color=style.COLOURS[REFERENCE], linewidth=1.2)
            axes.set_xticks(range(len(sets)), ["clean", *map(str, SEVERITIES)])
        return drawn

    datasets = drawn_datasets(measured)
    figure, panels = style.draw_panels(datasets, draw, below="severity", height=2.7, width=3.8)
    for axes, dataset in zip(panels[:, 0], datasets, strict=True):
        style.name_row(axes, dataset)
    title = "Gain over temperature scaling (blue line) by severity, up is better; bands: 95 % t intervals over architectures"
    style.headline(figure, title)
    style.legend_below(figure, methods)
    return figure


def draw_low_data(measured: Sequence[Measured]) -> Figure:
    title = "Clean test set, by the share of the training split; a dot is one trained network"
    return _draw_parts(measured, LOW_DATA, title, "training split used, %")


def draw_holdout_size(measured: Sequence[Measured]) -> Figure:
    title = "Clean test set, by the size of the hold-out; the network is trained on the rest; a dot is one network"
    return _draw_parts(measured, HOLDOUT_SIZE, title, "hold-out, % of the split")


def _draw_parts(measured: Sequence[Measured], variation: Variation, title: str, below: str) -> Figure:
    """A row for each network that was varied. Where none was, the one to run first shows as missing."""
    shares = [
        round(100 * (part.train_fraction if variation is LOW_DATA else part.holdout_fraction))
        for part in variation.parts
    ]
    everything = {
        (dataset, network): of_each_part(measured, dataset, network, variation)
        for dataset, network in product(CIFAR, paper.NETWORKS)
    }
    varied = {place: by_part for place, by_part in everything.items() if by_part} or {("cifar100", "resnet18"): {}}
    methods = style.present(measured, left_out=["temperature_jittered_holdout", "head_refitted_jitter"])
    offsets = style.dodge(methods, 0.6)

    def draw(axes: Axes, place: tuple[str, str], metric: str) -> bool:
        for number, cells in enumerate(varied[place].values()):
            for method in methods:
                values = [each.mean(method, metric) for each in cells]
                axes.scatter([number + offsets[method]] * len(values), values, s=16, zorder=3, **style.look(method))
        axes.set_xticks(range(len(shares)), [str(share) for share in shares])
        return bool(varied[place])

    figure, panels = style.draw_panels([*varied], draw, below=below)
    for axes, (dataset, network) in zip(panels[:, 0], varied, strict=True):
        axes.set_ylabel(f"{DATASET_TITLES[dataset]}, {NETWORK_TITLES[network]}")
    style.headline(figure, title)
    style.legend_below(figure, methods)
    return figure


def draw_budget(measured: Sequence[Measured]) -> Figure:
    """Gain against the parameters really added, a curve for each kind of views; rivals that add none at the left."""
    kinds = {"clean": CLEAN_SET, "corrupted": CORRUPTED}
    rows = [(dataset, label) for dataset in drawn_datasets(measured) for label in kinds]
    rivals = [method for method in style.present(measured, left_out=[REFERENCE]) if not method.startswith("lates_")]
    stacks = [f"lates_{views}_1" for views in VIEWS if f"lates_{views}_1" in style.present(measured)]
    offsets = style.dodge(rivals, 0.5)

    def draw(axes: Axes, row: tuple[str, str], metric: str) -> bool:
        dataset, label = row
        axes.set_title(f"gain in {METRIC_TITLES[metric]}")
        architectures = by_architecture(measured, dataset)
        gains = {
            method: architecture_gains(architectures, method, REFERENCE, metric, kinds[label])
            for method in (*rivals, *(f"{stack[:-1]}{budget}" for stack in stacks for budget in BUDGETS))
        }
        if not any(map(len, gains.values())):
            return False
        for stack in stacks:
            methods = [f"{stack[:-1]}{budget}" for budget in BUDGETS if len(gains[f"{stack[:-1]}{budget}"])]
            added = [math.log2(added_over_networks(measured, dataset, each)) for each in methods]
            axes.plot(added, [gains[each].mean() for each in methods], markersize=3.5, **style.look(stack))
        for rival in rivals:
            if gains[rival].any():  # else not run; or no prediction changes
                axes.scatter([-3 + offsets[rival]], [gains[rival].mean()], s=18, zorder=3, **style.look(rival))
        axes.set_xticks([-3, -2, -1, 0, 1, math.log2(5)], ["none", "¼", "½", "1", "2", "5"])
        axes.axhline(0, color=style.COLOURS[REFERENCE], linewidth=1.2)
        axes.axvline(0, color=style.MUTED, linewidth=0.7, linestyle=(0, (2, 2)))
        return True

    figure, panels = style.draw_panels(rows, draw, below="parameters added, %", height=1.8, width=3.6)
    for axes, (dataset, label) in zip(panels[:, 0], rows, strict=True):
        axes.set_ylabel(f"{DATASET_TITLES[dataset]}\n{label}")
    style.headline(
        figure, "Gain over temperature scaling (blue line) against parameters, mean over architectures; dashed: 1 %"
    )
    style.legend_below(figure, [*rivals, *stacks])
    return figure


def draw_corruptions(measured: Sequence[Measured]) -> Figure:
    """Gain for each corruption, those that resemble the jitter below the others."""
    order = (*LIKE_JITTER[::-1], *UNLIKE_JITTER[::-1])
    height = np.asarray([place + (place >= len(LIKE_JITTER)) for place in range(len(order))], dtype=float)
    methods = style.present(measured, left_out=[REFERENCE, "vector_scaling"])
    offsets = style.dodge(methods, 0.75)
    columns = [(dataset, metric) for dataset in drawn_datasets(measured) for metric in ("nll", "ece")]
    figure, panels = style.grid_of_panels(1, len(columns), width=max(2.6, 11 / len(columns)), height=8.5)
    unnamed = True  # until the first panel that is drawn names the corruptions for all
    for axes, (dataset, metric) in zip(panels[0], columns, strict=True):
        axes.set_title(f"{DATASET_TITLES[dataset]}\ngain in {METRIC_TITLES[metric]}")
        architectures = by_architecture(measured, dataset)
        drawn = False
        for method in methods:
            gains = [architecture_gains(architectures, method, REFERENCE, metric, sets_of((name,))) for name in order]
            if all(map(len, gains)):
                drawn = True
                axes.scatter(
                    [each.mean() for each in gains], height - offsets[method], s=14, zorder=3, **style.look(method)
                )
        if not drawn:
            style.show_not_run(axes)
            continue
        axes.axvline(0, color=style.COLOURS[REFERENCE], linewidth=1.2)
        for edge in height:
            axes.axhline(edge + 0.5, color=style.FAINT, linewidth=0.6)
        axes.grid(False)
        axes.set_yticks(height, [name.replace("_", " ") if unnamed else "" for name in order])
        axes.set_ylim(-0.8, height[-1] + 0.8)
        unnamed = False
    style.headline(
        figure, "Gain over temperature scaling (blue line), by corruption; the lower seven resemble the jitter"
    )
    style.legend_below(figure, methods, columns=3)
    return figure
