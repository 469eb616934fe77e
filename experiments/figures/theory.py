"""Proposition 1 against its bounds, and the pitfall of ECE."""

import numpy as np
from matplotlib.figure import Figure

from experiments.figures.style import COLOURS, INK, MUTED, grid_of_panels, show_not_run
from experiments.proposition import PITFALL_LABELS, ece_pitfall, make_population, measure_excess

__all__ = ["draw_pitfall", "draw_proposition"]

FOUND, BOUND = COLOURS["lates_none_1"], INK


def draw_proposition() -> Figure:
    """Mean excess and probability of a large excess over the hold-out size, each beside its bound."""
    excesses = measure_excess(make_population())
    n = [each.n for each in excesses]
    figure, panels = grid_of_panels(1, 2, width=3.6, height=2.6)
    left, right = panels[0]
    left.plot(n, [each.printed_mean_bound for each in excesses], color=MUTED, linestyle=(0, (1, 1.5)))
    left.plot(n, [each.mean_bound for each in excesses], color=BOUND, linestyle=(0, (4, 2)))
    left.plot(n, [each.mean for each in excesses], color=FOUND, marker="s")
    left.set_yscale("log")
    left.set_title("Mean excess loss")
    left.text(n[2], excesses[2].printed_mean_bound * 1.5, "the paper's bound", color=MUTED)
    left.text(n[2], excesses[2].mean_bound / 2.1, "(λ/2)|β*|² + 2ρ²/(λn)", color=BOUND)
    left.text(n[3], excesses[3].mean / 4.5, "found", color=FOUND, ha="right")
    right.plot(n, np.minimum([each.probability_bound for each in excesses], 1), color=BOUND, linestyle=(0, (4, 2)))
    right.plot(n, [each.probability for each in excesses], color=FOUND, marker="s")
    right.plot(n, [each.beaten_by_temperature for each in excesses], color=COLOURS["temperature"], marker="o")
    right.set_title("Probability")
    for axes in (left, right):
        axes.set_xscale("log")
        axes.set_xlabel("hold-out size n")
    figure.suptitle("Proposition 1 on a known population", x=0.01, ha="left", fontsize=11, fontweight="bold")
    return figure


def draw_pitfall() -> Figure:
    """Four points, two predictors: the one that is always right has the larger ECE."""
    figure, panels = grid_of_panels(1, 2, width=3.0, height=2.0)
    for axes, predictor in zip(panels[0], ece_pitfall(), strict=True):
        places = np.arange(len(PITFALL_LABELS))
        axes.axhline(0.5, color=MUTED, linewidth=0.8)
        for place, label, positive in zip(places, PITFALL_LABELS, predictor.positive, strict=True):
            axes.plot([place, place], [label, positive], color="#cccccc", linewidth=1, zorder=1)
        axes.scatter(places, PITFALL_LABELS, s=42, facecolors="white", edgecolors=INK, zorder=2)
        axes.scatter(places, predictor.positive, s=42, color=FOUND, zorder=3)
        axes.set_ylim(-0.1, 1.1)
        axes.set_xticks([])
        scores = predictor.scores
        axes.set_title(f"{predictor.name}: ECE {scores['ece']:.1f}, accuracy {scores['accuracy']:.0%}")
        axes.set_xlabel(f"NLL {scores['nll']:.2f}   Brier {scores['brier']:.2f}", color=INK)
    panels[0, 0].set_ylabel("P(label 1)")
    figure.suptitle("ECE prefers the predictor that knows nothing", x=0.01, ha="left", fontsize=11, fontweight="bold")
    return figure
