"""What each member contributes."""

from typing import TYPE_CHECKING

from lates.model import CalibratedModel
from lates.plot.frame import HEAD_LOOK, INK, LABEL_SIZE, PROBE_LOOK, clear_frame, figure_of, open_axes, percent
from lates.plot.numbers import prepare_contributions
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
    bars = prepare_contributions(calibrated)
    (panel,) = open_axes(axes, 1, 6.4, 1.0 + 0.32 * len(bars))
    clear_frame(panel, "contribution: share of the sum of weights", "")
    places = range(len(bars))
    drawn = panel.barh(places, [bar.share for bar in bars], height=0.62)
    for bar, patch in zip(bars, drawn, strict=True):
        patch.set(
            facecolor=(HEAD_LOOK if bar.is_head else PROBE_LOOK).colour,
            hatch="///" if bar.is_head else None,
            edgecolor="white",
        )
    panel.bar_label(drawn, [f"{100 * bar.share:.0f} %" for bar in bars], padding=4, color=INK, fontsize=LABEL_SIZE)
    panel.set_yticks(places, [bar.name for bar in bars], color=INK)
    panel.grid(visible=False, axis="y")
    panel.invert_yaxis()
    panel.margins(x=0.1)
    panel.xaxis.set_major_formatter(percent)
    return figure_of(panel)
