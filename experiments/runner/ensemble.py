"""The expensive reference: an ensemble of the seeds of one architecture.

    python -m experiments ensemble strong --data DIR

Its prediction is the mean of the networks' probabilities, each at the temperature of its own hold-out. Every seed holds out
other images, so none is new to all networks, and the ensemble has no temperature of its own. Run it once a recipe's networks
are trained; it takes a forward pass of each of them through every test set. What has results already is left as it is.
"""

import argparse
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path

import torch
from torch import Tensor

from experiments.data.datasets import ImageSet
from experiments.evaluation.environment import describe_environment, multiply_in_float32
from experiments.evaluation.measuring import measure_sets
from experiments.evaluation.prepared import read_logits
from experiments.evaluation.rivals import temperature
from experiments.evaluation.rivals.augmentation import log_mean_probabilities
from experiments.recipes import RECIPES, Cell, Recipe, ensemble_cell
from experiments.runner.cache import DataCache
from experiments.runner.cells import Folders
from experiments.runner.results import CellResults, results_path, write_results
from experiments.training.checkpoints import RunFolder
from experiments.training.networks import place

Predict = Callable[[ImageSet], Tensor]
"""images -> log-probabilities [n, classes]"""


def run_ensembles(recipe: Recipe, folders: Folders, device: torch.device) -> list[Path]:
    """Measure the ensemble of every data set and network of which at least two seeds are trained."""
    multiply_in_float32()
    cache = DataCache(recipe, folders.data, device)
    written: list[Path] = []
    trained = [cell for cell in recipe.cells() if RunFolder(folders.runs / cell.training).trained]
    for dataset, network in product(recipe.datasets, recipe.networks):
        cells = [cell for cell in trained if (cell.dataset, cell.network) == (dataset, network)]
        target = ensemble_cell(recipe.name, dataset, network)
        if len(cells) < 2 or results_path(folders.results, target).exists():
            continue
        members = [_scaled_network(cell, folders.runs, cache) for cell in cells]
        scores, blocks = measure_sets(
            lambda images, members=members: {"ensemble": mean_of(members, images)}, cache.corrupted(dataset)
        )
        facts = {**describe_environment(device), "seeds": [cell.seed for cell in cells]}
        written.append(write_results(folders.results, CellResults(target, scores, facts, blocks)))
    return written


def mean_of(members: Sequence[Predict], images: ImageSet) -> Tensor:
    return log_mean_probabilities(torch.stack([predict(images) for predict in members])).float()


def _scaled_network(cell: Cell, runs: Path, cache: DataCache) -> Predict:
    """A trained network at the temperature of its own hold-out."""
    train, holdout, _ = cache.divide(cell)
    network = cell.build_network(len(train.classes))
    RunFolder(runs / cell.training).load_finished(network)
    place(network, cache.device).eval()
    holdout = cache.fitting_part(cell.dataset, holdout)
    scaling = temperature.fit(read_logits(network, holdout), holdout.labels)
    return lambda images: scaling.log_probabilities(read_logits(network, images))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m experiments ensemble", description=__doc__)
    parser.add_argument("recipe", choices=RECIPES)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--results", type=Path, default=Path("results"))
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    chosen = parser.parse_args(arguments)
    folders = Folders(chosen.data, chosen.runs, chosen.results)
    written = run_ensembles(RECIPES[chosen.recipe], folders, torch.device(chosen.device))
    print("\n".join(map(str, written)) or "No ensemble to measure: it needs two trained seeds of a network, or is done.")
