"""Proposition 1 against its bounds, and the pitfall of ECE."""

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from experiments.figures.style import COLOURS, INK, MUTED, grid_of_panels, headline
from experiments.proposition import EPSILON, PITFALL_LABELS, ece_pitfall, make_population, measure_excess

FOUND, BOUND = COLOURS["lates_shift_1"], INK
BESIDE: dict[str, Any] = {"textcoords": "offset points", "fontsize": 8}


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
    left.annotate("the paper's bound", (n[4], excesses[4].printed_mean_bound), (2, 8), color=MUTED, **BESIDE)
    left.annotate("our bound", (n[2], excesses[2].mean_bound), (-4, -14), color=BOUND, ha="right", **BESIDE)
    left.annotate("found", (n[4], excesses[4].mean), (4, 6), color=FOUND, **BESIDE)
    right.plot(n, np.minimum([each.probability_bound for each in excesses], 1), color=BOUND, linestyle=(0, (4, 2)))
    right.plot(n, [each.probability for each in excesses], color=FOUND, marker="s")
    right.plot(n, [each.beaten_by_temperature for each in excesses], color=COLOURS["temperature"], marker="o")
    right.annotate("bound (1 where it says nothing)", (n[0], 1), (0, 5), color=BOUND, **BESIDE)
    right.annotate(f"excess ≥ {EPSILON:g}", (n[2], excesses[2].probability), (7, 2), color=FOUND, **BESIDE)
    beaten = (n[2], excesses[2].beaten_by_temperature)
    right.annotate("temperature wins", beaten, (-8, -5), color=COLOURS["temperature"], ha="right", **BESIDE)
    right.set_ylim(-0.03, 1.12)
    right.set_xlim(left=n[0] / 3)
    right.set_title("Probability")
    for axes in (left, right):
        axes.set_xscale("log")
        axes.set_xlabel("hold-out size n")
    headline(figure, "Proposition 1 on a known population")
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
        axes.set_ylim(-0.12, 1.12)
        axes.set_xlim(-0.4, 3.9)
        axes.annotate("label", (3, 1), (7, -3), color=INK, **BESIDE)
        axes.annotate("P", (3, predictor.positive[-1]), (7, 3), color=FOUND, **BESIDE)
        axes.set_xticks([])
        scores = predictor.scores
        axes.set_title(f"{predictor.name}: ECE {scores['ece']:.1f}, accuracy {scores['accuracy']:.0%}")
        axes.set_xlabel(f"NLL {scores['nll']:.2f}   Brier {scores['brier']:.2f}", color=INK)
    panels[0, 0].set_ylabel("P(label 1)")
    headline(figure, "ECE prefers the predictor that knows nothing")
    return figure
