"""Risk against coverage, and log-loss against budget."""

from typing import TYPE_CHECKING

from lates.metrics import Array
from lates.model import CalibratedModel
from lates.plot.frame import INK, LABEL_SIZE, PROBE_LOOK, SOFT, clear_frame, figure_of, looks_of, open_axes, percent
from lates.plot.numbers import Methods, prepare_budget, prepare_risk_coverage
from lates.stack import Stack

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def risk_coverage(logits: Methods, labels: Array, *, axes: "Axes | None" = None) -> "Figure":
    """Can it tell when it is wrong? The error rate if only the most confident inputs are answered. Lower is better.

    logits  [n, classes]; or method -> logits, one curve each
    labels  [n]
    axes    to draw into; by default those of a new figure

    >>> lates.plot.risk_coverage({"before": model(x), "after": calibrated(x)}, labels)
    """
    curves = prepare_risk_coverage(logits, labels)
    (panel,) = open_axes(axes, 1, 6.4, 4.0)
    clear_frame(panel, "inputs answered, most confident first", "error rate (lower is better)")
    for curve, look in zip(curves, looks_of(len(curves)), strict=True):
        coverages, risks = zip(*curve.points, strict=True)
        label = f"{curve.name}, AURC {100 * curve.area:.2f} %".removeprefix(", ")
        panel.plot(
            coverages,
            risks,
            color=look.colour,
            linestyle=look.line,
            linewidth=2,
            marker=look.marker,
            markevery=0.1,
            label=label,
        )
    panel.legend(loc="upper left", frameon=False, fontsize=LABEL_SIZE, labelcolor=INK, handlelength=3.5)
    panel.set(xlim=(0, 1.01), ylim=(0, None))
    panel.xaxis.set_major_formatter(percent)
    panel.yaxis.set_major_formatter(percent)
    return figure_of(panel)


def budget(calibrated: CalibratedModel | Stack, *, axes: "Axes | None" = None) -> "Figure":
    """What would more parameters give? The hold-out's log-loss, cross-validated, by the parameters that the probes add.

    calibrated  what `calibrate` returned, or its `fit`; its budget must have been binding
    axes        to draw into; by default those of a new figure

    The first point is temperature scaling, which adds none; the filled one is this fit; the others are larger plans that the
    search passed on its way.

    >>> lates.plot.budget(calibrated)
    """
    points = prepare_budget(calibrated)
    (panel,) = open_axes(axes, 1, 6.4, 4.0)
    clear_frame(panel, "parameters added, as a share of the network's", "log-loss on the hold-out (lower is better)")
    added, losses = [point.added for point in points], [point.nll for point in points]
    panel.plot(
        added,
        losses,
        color=PROBE_LOOK.colour,
        linewidth=1.5,
        marker="o",
        markersize=7,
        markerfacecolor="white",
        zorder=2,
    )
    panel.plot(
        added[1], losses[1], color=PROBE_LOOK.colour, marker=PROBE_LOOK.marker, markersize=9, linestyle="", zorder=3
    )
    for point, text in zip(points, ("temperature scaling", f"this fit: {percent(round(added[1], 4))}"), strict=False):
        panel.annotate(
            f"{text}, {point.nll:.4f}",
            (point.added, point.nll),
            (10, 8),
            textcoords="offset points",
            color=INK,
            fontsize=LABEL_SIZE,
        )
    panel.axhline(losses[0], color=SOFT, linewidth=1, linestyle=(0, (4, 3)), zorder=1)
    panel.margins(x=0.04, y=0.12)
    panel.xaxis.set_major_formatter(percent)
    return figure_of(panel)
