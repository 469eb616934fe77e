"""What each member contributes."""

from typing import TYPE_CHECKING

from lates.model import CalibratedModel
from lates.network import HEAD
from lates.plot import style
from lates.stack import Stack

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


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
