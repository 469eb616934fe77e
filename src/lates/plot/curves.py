"""Risk against coverage, and log-loss against budget."""

from typing import TYPE_CHECKING

from lates.metrics import Array, aurc, describe_rows, risk_coverage_of_rows
from lates.model import CalibratedModel
from lates.plot import style
from lates.stack import Stack

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


def budget(calibrated: CalibratedModel | Stack, *, axes: "Axes | None" = None) -> "Figure":
    """What would more parameters give? The hold-out's log-loss, cross-validated, by the parameters that the probes add.

    calibrated  what `calibrate` returned, or its `fit`; its budget must have been binding
    axes        to draw into; by default those of a new figure

    The first point is temperature scaling, which adds none; the filled one is this fit; the others are larger plans that the
    search passed on its way.

    >>> lates.plot.budget(calibrated)
    """
    fit = calibrated.fit if isinstance(calibrated, CalibratedModel) else calibrated
    added, losses = fit.budgets, fit.budget_nll
    if not added:
        raise ValueError(
            "This fit has no budget curve: its budget was not binding, so nothing else was tried, or it is of an ensemble, "
            "which keeps none. Calibrate one network with a smaller budget, such as budget=0.01."
        )
    (panel,) = style.open_axes(axes, 1, 6.4, 4.0)
    style.clear_frame(
        panel, "parameters added, as a share of the network's", "log-loss on the hold-out (lower is better)"
    )
    panel.plot(
        added,
        losses,
        color=style.PROBE_LOOK.colour,
        linewidth=1.5,
        marker="o",
        markersize=7,
        markerfacecolor="white",
        zorder=2,
    )
    panel.plot(
        added[1],
        losses[1],
        color=style.PROBE_LOOK.colour,
        marker=style.PROBE_LOOK.marker,
        markersize=9,
        linestyle="",
        zorder=3,
    )
    for place, text in enumerate(("temperature scaling", f"this fit: {style.percent(round(added[1], 4))}")):
        note, point = f"{text}, {losses[place]:.4f}", (added[place], losses[place])
        panel.annotate(note, point, (10, 8), textcoords="offset points", **style.NOTE)
    panel.axhline(losses[0], color=style.SOFT, linewidth=1, linestyle=(0, (4, 3)), zorder=1)
    panel.margins(x=0.04, y=0.12)
    panel.xaxis.set_major_formatter(style.percent)
    return style.figure_of(panel)
