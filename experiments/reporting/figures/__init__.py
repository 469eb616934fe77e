"""`python -m experiments figures`: every figure of the paper and of ours, from `results/` alone, as PNG and SVG.

Numbers come from `summaries` and `significance`; here they are only drawn. Every picture that shows a gain shows rivals too;
of all methods those are drawn that were run. A network that was not run is an empty place that says so.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from experiments.reporting.figures.curves import draw_corruptions, draw_severity
from experiments.reporting.figures.networks import draw_clean, draw_depth
from experiments.reporting.figures.style import figure_style, save
from experiments.reporting.summaries import PAPER_TRAINING, STRONG_TRAINING, Measured, drawn_datasets, read_measured


def draw_figures(measured: Sequence[Measured]) -> dict[str, Figure]:
    """name -> figure; names of those of the paper's recipe begin with it."""
    figures: dict[str, Figure] = {}
    for prefix, training in (("", STRONG_TRAINING), ("paper_", PAPER_TRAINING)):
        for dataset in drawn_datasets(measured, training):
            figures[f"{prefix}depth_{dataset}"] = draw_depth(measured, dataset, training)
        figures[f"{prefix}clean"] = draw_clean(measured, training)
        figures[f"{prefix}severity"] = draw_severity(measured, training)
        figures[f"{prefix}corruptions"] = draw_corruptions(measured, training)
    return figures


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; 0 when done, 1 without results."""
    parser = argparse.ArgumentParser(prog="python -m experiments figures", description="Draw every figure.")
    parser.add_argument("--results", type=Path, default=Path("results"), help="folder of CSV and JSON files")
    parser.add_argument("--out", type=Path, default=Path("results/figures"), help="folder of the PNG and SVG files")
    chosen = parser.parse_args(arguments)
    if not chosen.results.is_dir():
        print(f"{chosen.results} is no folder. Run a recipe first, or give the folder of its results.")
        return 1
    chosen.out.mkdir(parents=True, exist_ok=True)
    with figure_style():
        for name, figure in draw_figures(read_measured(chosen.results)).items():
            save(figure, chosen.out, name)
    print(f"Figures written to {chosen.out}.")
    return 0
