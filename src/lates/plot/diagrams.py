"""Reliability diagrams."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from lates.metrics import BINS, Array
from lates.plot.frame import INK, LABEL_SIZE, SOFT, Look, clear_frame, figure_of, looks_of, open_axes, percent
from lates.plot.numbers import Diagram, Methods, prepare_reliability

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

QUARTERS = (0, 0.25, 0.5, 0.75, 1)
LARGEST_DOT, SMALLEST_DOT = 160, 10


def reliability(
    logits: Methods, labels: Array, *, bins: int = BINS, axes: "Axes | Iterable[Axes] | None" = None
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
    diagrams = prepare_reliability(logits, labels, bins)
    panels = open_axes(axes, len(diagrams), 0.3 + 3.5 * len(diagrams), 4.0)
    for diagram, look, panel in zip(diagrams, looks_of(len(diagrams)), panels, strict=True):
        _draw(diagram, look, panel)
    panels[0].set_ylabel("accuracy")
    return figure_of(panels[0])


def _draw(diagram: Diagram, look: Look, axes: "Axes") -> None:
    clear_frame(axes, "confidence", "", diagram.name)
    axes.plot([0, 1], [0, 1], color=SOFT, linewidth=1, linestyle=(0, (4, 3)), zorder=1)
    own = diagram.bins
    filled = own.counts > 0
    low, high = own.bands[:, filled].numpy()
    left, width = own.edges[:-1][filled].numpy(), own.edges.diff()[filled].numpy()
    axes.bar(left, high - low, width, low, align="edge", color=look.colour, alpha=0.22, linewidth=0, zorder=2)
    confidence, accuracy = own.confidence[filled].numpy(), own.accuracy[filled].numpy()
    axes.vlines(confidence, accuracy, confidence, color=look.colour, linewidth=1.5, zorder=3)
    sizes = SMALLEST_DOT + (LARGEST_DOT - SMALLEST_DOT) * own.shares[filled].numpy()
    axes.scatter(
        confidence, accuracy, sizes, color=look.colour, marker=look.marker, linewidths=0, zorder=4, clip_on=False
    )
    note = f"calibration error {100 * diagram.ece:.1f} %\nby chance alone {100 * diagram.floor:.1f} %"
    axes.text(0.05, 0.96, note, transform=axes.transAxes, va="top", color=INK, fontsize=LABEL_SIZE)
    axes.text(0.97, 0.04, "overconfident", transform=axes.transAxes, ha="right", color=SOFT, fontsize=LABEL_SIZE)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_ticks(QUARTERS)
        axis.set_major_formatter(percent)
    axes.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03), aspect="equal")
