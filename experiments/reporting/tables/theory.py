"""Proposition 1 in numbers, and the pitfall of ECE."""

from collections.abc import Sequence

from experiments.reporting.names import METRIC_TITLES
from experiments.reporting.proposition import (
    EPSILON,
    PITFALL_LABELS,
    SAMPLES,
    ece_pitfall,
    make_population,
    measure_excess,
)
from experiments.reporting.summaries import Measured
from experiments.reporting.tables.markdown import Table, number


def proposition(_: Sequence[Measured]) -> Table:
    population = make_population()
    rows: list[tuple[str, ...]] = []
    for excess in measure_excess(population):
        means = (excess.mean, excess.mean_bound, excess.printed_mean_bound)
        chances = (excess.probability, excess.probability_bound, excess.beaten_by_temperature)
        rows.append((f"{excess.n:,}", *(f"{each:.2e}" for each in means), *(number(each, 3) for each in chances)))
    header = (
        "n", "mean excess", "its bound", "the paper's bound", f"P(excess ≥ {EPSILON:g})", "its bound", "P(temperature wins)",
    )  # fmt: skip
    temperature = population.best_temperature_loss - float(population.loss(population.best))
    note = (
        f"Log-loss, three members of norm at most 1, λ = 1/√n, {SAMPLES:,} hold-outs of each size. Bounds: "
        f"(λ/2)|β*|² + 2ρ²/(λn), that divided by {EPSILON:g} (it says something only below 1), and the paper's with λ|β*|². "
        f"P(temperature wins): the best temperature at n = ∞, whose excess is {temperature:.4f}, has a smaller loss than "
        "the weights learned."
    )
    return Table("proposition", "Proposition 1 on a known population", header, tuple(rows), note)


def pitfall(_: Sequence[Measured]) -> Table:
    predictors = ece_pitfall()
    metrics = ("ece", "accuracy", "nll", "brier")
    rows = tuple(
        (each.name, ", ".join(f"{p:g}" for p in each.positive), *(number(each.scores[metric], 3) for metric in metrics))
        for each in predictors
    )
    header = ("predictor", "P(label 1)", *(METRIC_TITLES[metric] for metric in metrics))
    note = f"Labels {', '.join(map(str, PITFALL_LABELS))}; ten bins. ECE prefers f₁, which knows nothing."
    return Table("pitfall", "The pitfall of ECE", header, rows, note, text_columns=2)
