"""The pictures: each function draws one kind and returns the figure."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from lates import metrics
from lates.metrics import BINS, Array, describe_rows, risk_coverage_of_rows
from lates.model import CalibratedModel
from lates.network import HEAD
from lates.plot import style
from lates.stack import Stack

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

QUARTERS = (0, 0.25, 0.5, 0.75, 1)
LARGEST_DOT, SMALLEST_DOT = 160, 10


def reliability(
    logits: style.Methods, labels: Array, *, bins: int = BINS, axes: "Axes | Iterable[Axes] | None" = None
) -> "Figure":
    """Is the confidence right? Accuracy against confidence, a panel for each method.

    logits  [n, classes]; or method -> logits, the panels from left to right
    labels  [n]
    bins    of equal width
    axes    one for each method, to draw into; by default those of a new figure

    A dot is a bin of inputs with similar confidence, as large as its share of the inputs. On the diagonal it is calibrated,
    below it overconfident. The band is the 95 % interval of the bin's accuracy (Wilson's).

    >>> lates.plot.reliability({"before": model(x), "after": calibrated(x)}, labels)
    """
    methods = style.by_name(logits)
    panels = style.open_axes(axes, len(methods), 0.3 + 3.5 * len(methods), 4.0)
    for (name, values), look, panel in zip(methods.items(), style.looks_of(len(methods)), panels, strict=True):
        style.clear_frame(panel, "confidence", "", str(name))
        error, floor = metrics.ece(values, labels, bins), metrics.ece_floor(values, bins)
        _draw(metrics.reliability(values, labels, bins), error, floor, look, panel)
    panels[0].set_ylabel("accuracy")
    return style.figure_of(panels[0])


def _draw(diagram: metrics.Reliability, error: float, floor: float, look: style.Look, axes: "Axes") -> None:
    axes.plot([0, 1], [0, 1], color=style.SOFT, linewidth=1, linestyle=(0, (4, 3)), zorder=1)
    filled = diagram.counts > 0
    low, high = diagram.bands[:, filled].numpy()
    left, width = diagram.edges[:-1][filled].numpy(), diagram.edges.diff()[filled].numpy()
    axes.bar(left, high - low, width, low, align="edge", color=look.colour, alpha=0.22, linewidth=0, zorder=2)
    confidence, accuracy = diagram.confidence[filled].numpy(), diagram.accuracy[filled].numpy()
    axes.vlines(confidence, accuracy, confidence, color=look.colour, linewidth=1.5, zorder=3)
    sizes = SMALLEST_DOT + (LARGEST_DOT - SMALLEST_DOT) * diagram.shares[filled].numpy()
    axes.scatter(
        confidence, accuracy, sizes, color=look.colour, marker=look.marker, linewidths=0, zorder=4, clip_on=False
    )
    note = f"calibration error {100 * error:.1f} %\nby chance alone {100 * floor:.1f} %"
    axes.text(0.05, 0.96, note, transform=axes.transAxes, va="top", **style.NOTE)
    axes.text(
        0.97, 0.04, "overconfident", transform=axes.transAxes, ha="right", color=style.SOFT, fontsize=style.LABEL_SIZE
    )
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_ticks(QUARTERS)
        axis.set_major_formatter(style.percent)
    axes.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03), aspect="equal")


def risk_coverage(logits: style.Methods, labels: Array, *, axes: "Axes | None" = None) -> "Figure":
    """Can it tell when it is wrong? The error rate if only the most confident inputs are answered. Lower is better.

    logits  [n, classes]; or method -> logits, one curve each
    labels  [n]
    axes    to draw into; by default those of a new figure

    >>> lates.plot.risk_coverage({"before": model(x), "after": calibrated(x)}, labels)
    """
    methods = style.by_name(logits)
    (panel,) = style.open_axes(axes, 1, 6.4, 4.0)
    style.clear_frame(panel, "inputs answered, most confident first", "error rate (lower is better)")
    for (name, values), look in zip(methods.items(), style.looks_of(len(methods)), strict=True):
        coverages, risks = zip(*risk_coverage_of_rows(describe_rows(values, labels)), strict=True)
        label = f"{name}, AURC {100 * metrics.aurc(values, labels):.2f} %".removeprefix(", ")
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
    panel.legend(loc="upper left", frameon=False, fontsize=style.LABEL_SIZE, labelcolor=style.INK, handlelength=3.5)
    panel.set(xlim=(0, 1.01), ylim=(0, None))
    panel.xaxis.set_major_formatter(style.percent)
    panel.yaxis.set_major_formatter(style.percent)
    return style.figure_of(panel)


def contributions(calibrated: CalibratedModel | Stack, *, axes: "Axes | None" = None) -> "Figure":
    """Which layers vote? Each member's share of the weights, from the first block at the top to the head at the bottom.

    calibrated  what `calibrate` or `fit_stack` returned
    axes        to draw into; by default those of a new figure

    >>> lates.plot.contributions(calibrated)
    """
    shares = calibrated.contributions
    (panel,) = style.open_axes(axes, 1, 6.4, 1.0 + 0.32 * len(shares))
    style.clear_frame(panel, "contribution: share of the sum of weights", "")
    places = range(len(shares))
    bars = panel.barh(places, [*shares.values()], height=0.62)
    for name, bar in zip(shares, bars, strict=True):
        is_head = name.rsplit("/", 1)[-1] == HEAD
        bar.set(
            facecolor=(style.HEAD_LOOK if is_head else style.PROBE_LOOK).colour,
            hatch="///" if is_head else None,
            edgecolor="white",
        )
    labels = [f"{100 * share:.0f} %" for share in shares.values()]
    panel.bar_label(bars, labels, padding=4, color=style.INK, fontsize=style.LABEL_SIZE)
    panel.set_yticks(places, [*shares], color=style.INK)
    panel.grid(visible=False, axis="y")
    panel.invert_yaxis()
    panel.margins(x=0.1)
    panel.xaxis.set_major_formatter(style.percent)
    return style.figure_of(panel)
