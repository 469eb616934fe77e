"""How gains depend on severity and corruption. Every dot is a mean over architectures."""

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.data.corruptions import LIKE_JITTER, NAMES, SEVERITIES, UNLIKE_JITTER
from experiments.reporting.figures import style
from experiments.reporting.names import in_words
from experiments.reporting.significance import architecture_gains, t_test
from experiments.reporting.summaries import Measured, by_architecture, drawn_datasets, sets_of

REFERENCE = "temperature"


def draw_severity(measured: Sequence[Measured], training: str) -> Figure:
    """Gains over temperature scaling by severity; those on clean images, far smaller, have a figure of their own. Bars: 95 % t
    intervals over architectures."""
    severities = next((each.severities for each in measured if each.training == training), SEVERITIES)
    sets = [sets_of(NAMES, (severity,)) for severity in severities]
    methods = style.present(measured, training, left_out=[REFERENCE])
    offsets = style.dodge(methods, 0.75)

    def draw(axes: Axes, dataset: str, metric: str) -> bool:
        architectures = by_architecture(measured, dataset, training)
        drawn = False
        for method in methods:
            gains = [architecture_gains(architectures, method, REFERENCE, metric, each) for each in sets]
            if not all(map(len, gains)):
                continue
            drawn, x = True, np.arange(len(sets)) + offsets[method]
            means = [each.mean() for each in gains]
            axes.scatter(x, means, s=18, zorder=3, **style.look(method))
            bands = [t_test(each)[0] for each in gains]
            if not math.isnan(bands[0].low):
                low, high = [band.low for band in bands], [band.high for band in bands]
                axes.vlines(x, low, high, color=style.COLOURS[method], alpha=0.5, linewidth=1)
        if drawn:
            axes.axhline(0, color=style.COLOURS[REFERENCE], linewidth=1.2)
            for edge in range(1, len(sets)):
                axes.axvline(edge - 0.5, color=style.FAINT, linewidth=0.8, zorder=0)
            axes.set_xlim(-0.5, len(sets) - 0.5)
            axes.set_xticks(range(len(sets)), [*map(str, severities)])
        return drawn

    figure = style.draw_panels(drawn_datasets(measured, training), draw, below="severity", width=4.8, height=2.4)
    title = "Gain over temperature scaling (blue line) by severity, up is better; bars: 95 % t intervals over architectures"
    return style.finished(figure, title, training, methods)


def draw_corruptions(measured: Sequence[Measured], training: str) -> Figure:
    """Gain for each corruption, those similar to the views below the others."""
    order = (*LIKE_JITTER[::-1], *UNLIKE_JITTER[::-1])
    height = np.asarray([place + (place >= len(LIKE_JITTER)) for place in range(len(order))], dtype=float)
    methods = style.present(measured, training, left_out=[REFERENCE])
    offsets = style.dodge(methods, 0.88)
    columns = [(dataset, metric) for dataset in drawn_datasets(measured, training) for metric in ("nll", "ece")]
    figure, panels = style.grid_of_panels(1, len(columns), width=max(2.6, 11 / len(columns)), height=15)
    unnamed = True  # until the first panel that is drawn names the corruptions for all
    for axes, (dataset, metric) in zip(panels[0], columns, strict=True):
        axes.set_title(f"{in_words(dataset)}\ngain in {in_words(metric)}")
        architectures = by_architecture(measured, dataset, training)
        drawn = False
        for method in methods:
            gains = [architecture_gains(architectures, method, REFERENCE, metric, sets_of((name,))) for name in order]
            if all(map(len, gains)):
                drawn = True
                axes.scatter([each.mean() for each in gains], height - offsets[method], s=9, zorder=3, **style.look(method))
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
    title = "Gain over temperature scaling (blue line), by corruption; the lower seven are similar to the views"
    return style.finished(figure, title, training, methods, columns=3)
