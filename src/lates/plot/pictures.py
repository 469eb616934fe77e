"""The pictures, from the question that is asked first to the one asked last."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from lates import metrics
from lates.metrics import BINS, Array, describe_rows, risk_coverage_of_rows
from lates.model import CalibratedModel
from lates.network import HEAD
from lates.plot import style
from lates.stack import Stack

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
    methods = style.with_looks(logits)
    panels = style.open_axes(axes, len(methods), 0.3 + 3.5 * len(methods), 4.0)
    for (name, values, look), panel in zip(methods, panels, strict=True):
        style.clear_frame(panel, "confidence", "", name)
        _draw_bins(panel, metrics.reliability(values, labels, bins), look)
        error, floor = metrics.ece(values, labels, bins), metrics.ece_floor(values, bins)
        note = f"calibration error {100 * error:.1f} %\nby chance alone {100 * floor:.1f} %"
        panel.text(0.05, 0.96, note, transform=panel.transAxes, va="top", **style.NOTE)
        panel.text(0.97, 0.04, "overconfident", transform=panel.transAxes, ha="right", **style.LABEL)
        for axis in (panel.xaxis, panel.yaxis):
            axis.set_ticks(QUARTERS)
            axis.set_major_formatter(style.percent)
        panel.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03), aspect="equal")
    panels[0].set_ylabel("accuracy")
    return style.figure_of(panels[0])


def _draw_bins(panel: "Axes", diagram: metrics.Reliability, look: style.Look) -> None:
    """The diagonal; of every bin with inputs its band, its gap to the diagonal and its dot."""
    panel.plot([0, 1], [0, 1], **style.REFERENCE)
    filled, ink = diagram.counts > 0, look["color"]
    low, high = diagram.bands[:, filled].numpy()
    left, width = diagram.edges[:-1][filled].numpy(), diagram.edges.diff()[filled].numpy()
    panel.bar(left, high - low, width, low, align="edge", color=ink, alpha=0.22, linewidth=0, zorder=2)
    confidence, accuracy = diagram.confidence[filled].numpy(), diagram.accuracy[filled].numpy()
    panel.vlines(confidence, accuracy, confidence, color=ink, linewidth=1.5, zorder=3)
    sizes = SMALLEST_DOT + (LARGEST_DOT - SMALLEST_DOT) * diagram.shares[filled].numpy()
    panel.scatter(confidence, accuracy, sizes, clip_on=False, color=ink, marker=look["marker"], linewidths=0, zorder=4)


def risk_coverage(logits: style.Methods, labels: Array, *, axes: "Axes | None" = None) -> "Figure":
    """Can it tell when it is wrong? The error rate if only the most confident inputs are answered. Lower is better.

    logits  [n, classes]; or method -> logits, one curve each
    labels  [n]
    axes    to draw into; by default those of a new figure

    >>> lates.plot.risk_coverage({"before": model(x), "after": calibrated(x)}, labels)
    """
    methods = style.with_looks(logits)
    (panel,) = style.open_axes(axes, 1, 6.4, 4.0)
    style.clear_frame(panel, "inputs answered, most confident first", "error rate (lower is better)")
    for name, values, look in methods:
        coverages, risks = zip(*risk_coverage_of_rows(describe_rows(values, labels)), strict=True)
        label = f"{name}, AURC {100 * metrics.aurc(values, labels):.2f} %".removeprefix(", ")
        panel.plot(coverages, risks, **look, linewidth=2, markevery=0.1, label=label)
    panel.legend(loc="upper left", frameon=False, fontsize=style.LABEL_SIZE, labelcolor=style.INK, handlelength=3.5)
    panel.set(xlim=(0, 1.01), ylim=(0, None))
    panel.xaxis.set_major_formatter(style.percent)
    panel.yaxis.set_major_formatter(style.percent)
    return style.figure_of(panel)


def contributions(calibrated: CalibratedModel | Stack, *, axes: "Axes | None" = None) -> "Figure":
    """Which layers vote? Each member's share of the weights, from the first block at the top to the head at the bottom.

    calibrated  what `calibrate` or `fit_stack` returned
    axes        to draw into; by default those of a new figure

    >>> lates.plot.contributions(calibrated)
    """
    shares = calibrated.contributions
    (panel,) = style.open_axes(axes, 1, 6.4, 1.0 + 0.32 * len(shares))
    style.clear_frame(panel, "contribution: share of the sum of weights", "")
    positions = range(len(shares))
    bars = panel.barh(positions, [*shares.values()], height=0.62, edgecolor="white")
    for name, bar in zip(shares, bars, strict=True):
        is_head = name.rsplit("/", 1)[-1] == HEAD
        look = style.HEAD_LOOK if is_head else style.PROBE_LOOK
        bar.set(facecolor=look["color"], hatch="///" if is_head else None)
    labels = [f"{100 * share:.0f} %" for share in shares.values()]
    panel.bar_label(bars, labels, padding=4, color=style.INK, fontsize=style.LABEL_SIZE)
    panel.set_yticks(positions, [*shares], color=style.INK)
    panel.grid(visible=False, axis="y")
    panel.invert_yaxis()
    panel.margins(x=0.1)
    panel.xaxis.set_major_formatter(style.percent)
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
    added, losses, ink = fit.budgets, fit.budget_nll, style.PROBE_LOOK["color"]
    if not added:
        raise ValueError(
            "This fit has no budget curve: its budget was not binding, so nothing else was tried, or it is of an ensemble, "
            "which keeps none. Calibrate one network with a smaller budget, such as budget=0.01."
        )
    (panel,) = style.open_axes(axes, 1, 6.4, 4.0)
    style.clear_frame(panel, "parameters added, as a share of the network's", "log-loss on the hold-out (lower is better)")
    panel.plot(added, losses, color=ink, linewidth=1.5, marker="o", markersize=7, markerfacecolor="white", zorder=2)
    panel.plot(added[1], losses[1], **style.PROBE_LOOK, markersize=9, zorder=3)
    for index, text in enumerate(("temperature scaling", f"this fit: {style.percent(round(added[1], 4))}")):
        note, point = f"{text}, {losses[index]:.4f}", (added[index], losses[index])
        panel.annotate(note, point, (10, 8), textcoords="offset points", **style.NOTE)
    panel.axhline(losses[0], **style.REFERENCE)
    panel.margins(x=0.04, y=0.12)
    panel.xaxis.set_major_formatter(style.percent)
    return style.figure_of(panel)
