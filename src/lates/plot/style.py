"""What all pictures share: the methods by name, the figure, the look of each method, the frame around the marks.

Only a new figure imports matplotlib, so that `lates.plot` can be named where it is not installed.
"""

from collections.abc import Iterable, Mapping
from itertools import cycle
from typing import TYPE_CHECKING, Any, cast

from lates.metrics import Array
from lates.runtime import OptionalImport

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Methods = Array | Mapping[str, Array]
"""Logits [n, classes], or method -> logits"""
Look = dict[str, Any]
"""Of a method, as matplotlib's options: hue and brightness, and, for print in grey, marker and line"""

INK, SOFT, GRID = "#1d2126", "#5d646d", "#e4e1da"
LABEL_SIZE, TITLE_SIZE = 10, 12
LABEL: Look = {"color": SOFT, "fontsize": LABEL_SIZE}
NOTE = {"color": INK, "fontsize": LABEL_SIZE, "bbox": {"color": "white", "alpha": 0.75, "pad": 1}}
"""A text that marks may run into"""
REFERENCE = {"color": SOFT, "linewidth": 1, "linestyle": (0, (4, 3)), "zorder": 1}
"""A dashed line behind the marks"""


LOOKS: tuple[Look, ...] = (
    {"color": "#6f7680", "marker": "o", "linestyle": ":"},
    {"color": "#e08a00", "marker": "^", "linestyle": "--"},
    {"color": "#0b5394", "marker": "s", "linestyle": "-"},
    {"color": "#009e73", "marker": "D", "linestyle": "-."},
    {"color": "#b3508c", "marker": "v", "linestyle": (0, (5, 1, 1, 1, 1, 1))},
)
HEAD_LOOK, PROBE_LOOK = LOOKS[0], LOOKS[2]


def with_looks(logits: Methods) -> list[tuple[str, Array, Look]]:
    """Each method's name, logits and look. A single one has no name and the strongest look; several begin with the pale one,
    as "before" and "after" would."""
    methods = logits if isinstance(logits, Mapping) else {"": logits}
    if not methods:
        raise ValueError("No method came; expected logits [n, classes], or method -> logits with at least one.")
    looks = [LOOKS[0], LOOKS[2]][-len(methods) :] if len(methods) <= 2 else cycle(LOOKS)
    return [(str(name), values, look) for (name, values), look in zip(methods.items(), looks, strict=False)]


def open_axes(given: "Axes | Iterable[Axes] | None", panels: int, width: float, height: float) -> "list[Axes]":
    """The axes given, as many as panels, or those of a new figure in one row; sizes in inches."""
    if given is None:
        with OptionalImport("plot", "lates.plot"):
            from lates.plot.notebook import NotebookFigure
        figure = NotebookFigure(figsize=(width, height), dpi=150)
        figure.set_layout_engine("constrained", wspace=0.06)
        return list(figure.subplots(1, panels, squeeze=False, sharey=True)[0])
    axes = list(given) if isinstance(given, Iterable) else [given]
    if len(axes) != panels:
        raise ValueError(f"{len(axes)} axes came for {panels} panels; expected one for each.")
    return axes


def figure_of(axes: "Axes") -> "Figure":
    """The whole figure, also where the axes are in a part of it."""
    return cast("Figure", axes.figure.figure)


def clear_frame(axes: "Axes", x: str, y: str, title: str = "") -> None:
    """Labels, no box, a pale grid behind the marks."""
    axes.set_xlabel(x, **LABEL)
    axes.set_ylabel(y, **LABEL)
    if title:
        axes.set_title(title, color=INK, fontsize=TITLE_SIZE, fontweight="bold", loc="left")
    axes.tick_params(colors=SOFT, labelsize=LABEL_SIZE, length=0, pad=6)
    axes.spines[:].set_visible(False)
    axes.grid(color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)


def percent(value: float, _: object = None) -> str:
    return f"{100 * value:.6g} %"
