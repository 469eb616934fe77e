"""Risk against coverage."""

from typing import TYPE_CHECKING

from lates.metrics import Array, aurc, describe_rows, risk_coverage_of_rows
from lates.plot import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


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
        label = f"{name}, AURC {100 * aurc(values, labels):.2f} %".removeprefix(", ")
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
