"""How figures look: one colour per method, light, with labels beside what they name. No global state is touched."""

import io
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Literal, TypeVar

import matplotlib as mpl
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from PIL import Image

from experiments.reporting import paper
from experiments.reporting.names import DATASET_TITLES, LARGER_IS_BETTER, METRIC_TITLES, RIVALS, method_title
from experiments.reporting.summaries import Measured, drawn_datasets

INK, MUTED, FAINT = "#222222", "#6f6f6f", "#e3e3e3"
COLOURS: Mapping[str, str] = {
    "network": "#9a9a9a",
    "temperature": "#2f6db3",
    "temperature_jittered_holdout": "#8db7de",
    "lates_paper": "#f6dc9a",
    "lates_none_1": "#f0a818",
    "lates_shift_1": "#b8620b",
    "lates_jitter_1": "#5e2a05",
}
"""Temperature blue and LATES amber as in the paper, whose own method is the palest; views darken the amber, so that grey
print keeps the order."""
MARKERS: Mapping[str, str] = {
    "temperature": "o",
    "temperature_jittered_holdout": "v",
    "lates_paper": "P",
    "lates_none_1": "s",
    "lates_shift_1": "D",
    "lates_jitter_1": "^",
}
SHORT: Mapping[str, str] = {
    "vgg16": "V16",
    "vgg19": "V19",
    "resnet18": "R18",
    "resnet50": "R50",
    "wide_resnet_28_10": "WRN",
}
_SETTINGS: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 8.5,
    "axes.titlesize": 9.5,
    "axes.titlelocation": "left",
    "axes.labelsize": 8.5,
    "axes.labelcolor": MUTED,
    "axes.edgecolor": "#b5b5b5",
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": FAINT,
    "grid.linewidth": 0.7,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelsize": 7.5,
    "ytick.labelsize": 7.5,
    "xtick.major.size": 2.5,
    "ytick.major.size": 0,
    "text.color": INK,
    "axes.titlecolor": INK,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "lines.linewidth": 1.6,
    "lines.markersize": 4.5,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "svg.hashsalt": "lates",
    "svg.fonttype": "path",
}


def figure_style() -> AbstractContextManager[None]:
    """For the duration of a `with`."""
    return mpl.rc_context(_SETTINGS)


def grid_of_panels(rows: int, columns: int, *, width: float = 2.15, height: float = 1.75) -> tuple[Figure, np.ndarray]:
    """A figure and its axes [rows, columns]."""
    layout = ConstrainedLayoutEngine(w_pad=0.06, h_pad=0.07, rect=(0.008, 0, 0.992, 1))
    figure = Figure(figsize=(width * columns + 0.5, height * rows + 0.75), layout=layout)
    return figure, figure.subplots(rows, columns, squeeze=False)


Row = TypeVar("Row")


def draw_panels(
    rows: Sequence[Row], draw: Callable[[Axes, Row, str], bool], *, below: str = "", **size: float
) -> tuple[Figure, np.ndarray]:
    """A panel for each row and metric of the paper, drawn by `draw`, which says whether there was anything to draw."""
    figure, panels = grid_of_panels(len(rows), len(paper.METRICS), **size)
    for line, row in zip(panels, rows, strict=True):
        for axes, metric in zip(line, paper.METRICS, strict=True):
            axes.set_title(metric_title(metric))
            if not draw(axes, row, metric):
                show_not_run(axes)
    for axes in panels[-1]:
        axes.set_xlabel(below)
    return figure, panels


def metric_title(metric: str) -> str:
    return f"{METRIC_TITLES[metric]} {'↑' if metric in LARGER_IS_BETTER else '↓'}"


def name_row(axes: Axes, dataset: str) -> None:
    axes.set_ylabel(DATASET_TITLES[dataset], color=INK, fontsize=9.5, fontweight="bold")


def show_not_run(axes: Axes) -> None:
    """An empty panel says so."""
    axes.text(0.5, 0.5, "not run", transform=axes.transAxes, ha="center", va="center", color=MUTED, style="italic")
    axes.set_xticks([])
    axes.set_yticks([])
    axes.grid(False)


def headline(figure: Figure, text: str, measured: Sequence[Measured] = ()) -> None:
    """In bold, with the data sets of which nothing was run."""
    left_out = [DATASET_TITLES[name] for name in paper.DATASETS if name not in drawn_datasets(measured)]
    note = f" (not run: {', '.join(left_out)})" if measured and left_out else ""
    figure.suptitle(text + note, x=0.01, ha="left", fontsize=11, fontweight="bold")


def draw_curve(axes: Axes, x: Sequence[float], y: Sequence[float], method: str) -> None:
    """In the method's colour and marker; a rival of second rank lies dashed below the others."""
    second = method == "temperature_jittered_holdout"
    axes.plot(
        x, y, color=COLOURS[method], marker=MARKERS[method], markersize=3.5,
        linestyle="--" if second else "-", zorder=1.9 if second else 2,
    )  # fmt: skip


def legend_below(
    figure: Figure, methods: Sequence[str], kind: Literal["curve", "bar", "point"] = "curve", *, gains: bool = False
) -> None:
    """The key in one line, drawn the way the panels draw. Where they show `gains`, it names the rivals that the title does
    not: whose gain is one over something else than exact temperature scaling."""

    def handle(method: str) -> Artist:
        rival = f"; gain over {method_title(RIVALS[method])}" if gains and method in RIVALS else ""
        label = method_title(method) + rival
        if kind == "bar":
            return Patch(color=COLOURS[method], label=label)
        line = "none" if kind == "point" else "--" if method == "temperature_jittered_holdout" else "-"
        return Line2D([], [], color=COLOURS[method], marker=MARKERS[method], linestyle=line, label=label)

    width = 1.0 if kind == "bar" else 1.9
    handles = [handle(method) for method in methods]
    figure.legend(handles=handles, loc="outside lower left", ncols=len(handles), handlelength=width)


def save(figure: Figure, out: Path, name: str) -> None:
    """`name.png` and `name.svg`, the same bytes for the same numbers. Laid out once for both: that is what takes time."""
    if (engine := figure.get_layout_engine()) is not None:
        engine.execute(figure)
        figure.set_layout_engine("none")
    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=170, metadata={"Software": None})
    Image.open(buffer).convert("RGB").quantize(128).save(out / f"{name}.png", optimize=True)  # a third of the size
    figure.savefig(out / f"{name}.svg", metadata={"Date": None})
