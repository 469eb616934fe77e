"""Reliability diagrams."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from lates import metrics
from lates.metrics import BINS, Array
from lates.plot import style

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
