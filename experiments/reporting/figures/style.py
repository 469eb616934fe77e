"""How figures look: one colour per method, light, with labels beside what they name. No global state is touched."""

import io
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from PIL import Image

from experiments.reporting.names import in_words
from experiments.reporting.summaries import PAPER_TRAINING, STRONG_TRAINING, Measured

INK, MUTED, FAINT = "#222222", "#6f6f6f", "#e3e3e3"
COLOURS: Mapping[str, str] = {
    "temperature": "#2f6db3",
    "vector_scaling": "#8db7de",
    "sms": "#123f73",
    "parameterised": "#8db7de",
    "temperature_jittered_holdout": "#63b8ad",
    "temperature_robust_holdout": "#23776c",
    "head_refitted_shift": "#c3a7e0",
    "head_refitted_jitter": "#9468bd",
    "head_refitted_robust": "#55307f",
    "best_layer": "#b04a8f",
    "lates_none_1": "#f2bf4b",
    "lates_shift_1": "#df8a10",
    "lates_jitter_1": "#a4520a",
    "lates_last": "#e2730c",
    "lates_capped_rescaled": "#b3170b",
    "lates_robust_holdout": "#f4a582",
}
"""Logit methods blue, on changed hold-outs green, the last layer refitted violet, LATES amber; views darken a colour, so that
grey print keeps the order."""
MARKERS: Mapping[str, str] = dict(zip(COLOURS, "8XPhv<*d^DsD^o*>", strict=True))
SHOWN: Mapping[str, Sequence[str]] = {
    STRONG_TRAINING: (
        "temperature", "sms", "parameterised", "temperature_robust_holdout", "head_refitted_robust", "best_layer", "lates_last",
        "lates_capped_rescaled", "lates_robust_holdout",
    ),
    PAPER_TRAINING: (
        "temperature", "vector_scaling", "sms", "temperature_jittered_holdout", "head_refitted_shift", "head_refitted_jitter",
        "lates_none_1", "lates_shift_1", "lates_jitter_1",
    ),
}  # fmt: skip
"""Which methods pictures show, by how the networks were trained."""
PANELS = ("nll", "ece", "accuracy")
"""The metrics that figures show."""
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


def grid_of_panels(rows: int, columns: int, *, width: float = 3.4, height: float = 2.2) -> tuple[Figure, np.ndarray]:
    """A figure and its axes [rows, columns]."""
    layout = ConstrainedLayoutEngine(w_pad=0.06, h_pad=0.07, rect=(0.008, 0, 0.992, 1))
    figure = Figure(figsize=(width * columns + 0.5, height * rows + 0.75), layout=layout)
    return figure, figure.subplots(rows, columns, squeeze=False)


def draw_panels(datasets: Sequence[str], draw: Callable[[Axes, str, str], bool], *, below: str = "", **size: float) -> Figure:
    """A row for each metric, a column for each data set, drawn by `draw`, which says whether there was anything to draw."""
    figure, panels = grid_of_panels(len(PANELS), len(datasets), **size)
    for line, metric in zip(panels, PANELS, strict=True):
        for axes, dataset in zip(line, datasets, strict=True):
            axes.set_title(f"{in_words(dataset)}: gain in {in_words(metric)}")
            if not draw(axes, dataset, metric):
                show_not_run(axes)
    for axes in panels[-1]:
        axes.set_xlabel(below)
    return figure


def present(measured: Sequence[Measured], training: str, left_out: Sequence[str] = ()) -> list[str]:
    """The methods shown of such networks that were run on some of them."""
    run = {name for each in measured if each.training == training for name in each.methods}
    return [name for name in SHOWN[training] if name in run and name not in left_out]


def look(method: str) -> dict[str, Any]:
    return {"color": COLOURS[method], "marker": MARKERS[method]}


def dodge(methods: Sequence[str], width: float = 0.8) -> dict[str, float]:
    """Offsets, so that no two methods are hidden under one another."""
    step = width / max(len(methods), 1)
    return {method: (place - (len(methods) - 1) / 2) * step for place, method in enumerate(methods)}


def show_not_run(axes: Axes) -> None:
    """An empty panel says so."""
    axes.text(0.5, 0.5, "not run", transform=axes.transAxes, ha="center", va="center", color=MUTED, style="italic")
    axes.set_xticks([])
    axes.set_yticks([])
    axes.grid(False)


def finished(
    figure: Figure, title: str, training: str, methods: Sequence[str], columns: int = 4, *, bars: bool = False
) -> Figure:
    """With the title, which also says how the networks were trained, and the methods' legend below: of markers, or of bars."""
    whole = f"{title}\nNetworks trained by the {in_words(training)}"
    figure.suptitle(whole, x=0.01, ha="left", fontsize=11, fontweight="bold")
    handles = [
        Patch(label=in_words(method), color=COLOURS[method])
        if bars
        else Line2D([], [], linestyle="none", label=in_words(method), **look(method))
        for method in methods
    ]
    if handles:
        figure.legend(handles=handles, loc="outside lower left", ncols=columns, handlelength=1.2)
    return figure


def save(figure: Figure, out: Path, name: str) -> None:
    """`name.png` and `name.svg`, the same bytes for the same numbers. Laid out once for both: that is what takes time."""
    if (engine := figure.get_layout_engine()) is not None:
        engine.execute(figure)
        figure.set_layout_engine("none")
    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=170, metadata={"Software": None})
    Image.open(buffer).convert("RGB").quantize(128).save(out / f"{name}.png", optimize=True)  # a third of the size
    figure.savefig(out / f"{name}.svg", metadata={"Date": None})
