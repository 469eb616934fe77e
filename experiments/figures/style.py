"""How figures look: one colour per method, light, with labels beside what they name. No global state is touched."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from experiments.summaries import DATASET_TITLES, LARGER_IS_BETTER, METRIC_TITLES, method_title

INK, MUTED, FAINT = "#222222", "#6f6f6f", "#e3e3e3"
COLOURS: Mapping[str, str] = {
    "network": "#9a9a9a",
    "temperature": "#2f6db3",
    "temperature_jittered_holdout": "#8db7de",
    "lates_none_1": "#f0a818",
    "lates_shift_1": "#b8620b",
    "lates_jitter_1": "#5e2a05",
}
"""Temperature blue and LATES amber as in the paper; views darken the amber, so that grey print keeps the order."""
MARKERS: Mapping[str, str] = {
    "temperature": "o",
    "temperature_jittered_holdout": "v",
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
_SETTINGS = {
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


def grid_of_panels(
    rows: int, columns: int, *, width: float = 2.15, height: float = 1.75, share_x: bool = False
) -> tuple[Figure, np.ndarray]:
    """A figure and its axes [rows, columns]."""
    figure = Figure(figsize=(width * columns + 0.5, height * rows + 0.75), layout="constrained")
    figure.get_layout_engine().set(w_pad=0.06, h_pad=0.07)  # pyright: ignore[reportOptionalMemberAccess]
    return figure, figure.subplots(rows, columns, squeeze=False, sharex=share_x)


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


def legend_of(figure: Figure, methods: Sequence[str], title: str) -> None:
    """Title and key in one line above all panels."""
    figure.suptitle(title, x=0.01, ha="left", fontsize=11, fontweight="bold")
    handles = [
        Line2D([], [], color=COLOURS[method], marker=MARKERS.get(method, "o"), label=method_title(method))
        for method in methods
    ]
    if handles:
        figure.legend(handles=handles, loc="outside lower left", ncols=len(handles), handlelength=1.6)


def save(figure: Figure, out: Path, name: str) -> None:
    """`name.png` and `name.svg`, the same bytes for the same numbers."""
    figure.savefig(out / f"{name}.png", dpi=170, metadata={"Software": None})
    figure.savefig(out / f"{name}.svg", metadata={"Date": None})
