"""Results on disk -> the numbers that tables print and figures draw. Nothing here computes a metric.

A mean over test sets is the mean over all that were asked for, or missing (NaN) if one of them is: a mean over a part
would pass for the whole. Sums are exact (fsum), so that a table is the same on every machine.
"""

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.data.corruptions import BAR_NAMES, LIKE_JITTER, NAMES, SEVERITIES, UNLIKE_JITTER
from experiments.data.datasets import LARGE
from experiments.evaluation.image_blocks import NATURAL_GROUP, group_of
from experiments.evaluation.measuring import CLEAN
from experiments.recipes import (
    CIFAR_NETWORKS,
    ENSEMBLE,
    OWN_TRAINING,
    PUBLIC,
    RECIPES,
    STRONG,
    STRONG_NETWORKS,
    STRONG_VIT,
    STRONG_WIDE,
)
from experiments.reporting import paper
from experiments.reporting.names import in_words
from experiments.runner.results import CellResults, find_results

MISSING = math.nan
CLEAN_SET = (CLEAN,)
PAPER_TRAINING, STRONG_TRAINING, PUBLIC_TRAINING = "paper", STRONG, PUBLIC
TRAININGS = (STRONG_TRAINING, PUBLIC_TRAINING, PAPER_TRAINING)


def sets_of(corruptions: Sequence[str], severities: Sequence[int] = SEVERITIES) -> tuple[str, ...]:
    """The names of test sets, corruption by corruption."""
    return tuple(f"{corruption}-{severity}" for corruption in corruptions for severity in severities)


CORRUPTED = sets_of(NAMES)


@dataclass(frozen=True)
class Group:
    """Test sets over which a mean is taken: those of corruption types, or `alone`, a set that has no type."""

    title: str
    types: tuple[str, ...]
    alone: str = CLEAN

    @property
    def sets(self) -> tuple[str, ...]:
        return sets_of(self.types) or (self.alone,)

    @property
    def by_type(self) -> list[tuple[str, ...]]:
        return [sets_of((name,)) for name in self.types] or [self.sets]

    @property
    def blocks(self) -> Mapping[str, int]:
        """Groups of image blocks, and how many of the types each holds."""
        return Counter(group_of(sets[0]) for sets in self.by_type)


GROUPS: Mapping[str, Group] = {
    "clean": Group("clean", ()),
    "natural": Group("natural shift", (), NATURAL_GROUP),
    "corrupted": Group("corrupted", NAMES),
    "like": Group("corrupted, similar to views", LIKE_JITTER),
    "unlike": Group("corrupted, dissimilar", UNLIKE_JITTER),
    "bar": Group("corrupted by C-bar", BAR_NAMES),
}


# What was measured


class Measured(CellResults):
    """All that is known of one trained network."""

    @cached_property
    def methods(self) -> Collection[str]:
        return dict.fromkeys(method for method, _ in self.scores)

    @cached_property
    def sets(self) -> Collection[str]:
        return {name for _, name in self.scores}

    @property
    def title(self) -> str:
        return in_words(self.cell.network)

    @property
    def training(self) -> str:
        """How the network was trained."""
        recipe = self.cell.recipe.removesuffix(ENSEMBLE)
        if recipe in (STRONG_VIT, STRONG_WIDE):
            return STRONG_TRAINING
        return recipe if recipe in OWN_TRAINING else PAPER_TRAINING

    @property
    def severities(self) -> tuple[int, ...]:
        """Those that the recipe measures."""
        return tuple(self.facts.get("recipe", {}).get("severities", SEVERITIES))

    def asked(self, sets: Sequence[str]) -> list[str]:
        """Of these test sets those at the severities that the recipe measures."""
        return [name for name in sets if "-" not in name or int(name.rpartition("-")[2]) in self.severities]

    def values(self, method: str, metric: str, sets: Sequence[str]) -> NDArray[np.float64]:
        """[sets], NaN where missing."""
        return np.asarray([self.scores.get((method, name), {}).get(metric, MISSING) for name in sets])

    def mean(self, method: str, metric: str, sets: Sequence[str] = CLEAN_SET) -> float:
        """Over the test sets that were asked for; missing if one of them is."""
        return mean(self.values(method, metric, self.asked(sets)).tolist())

    def fact(self, *path: str) -> float:
        """A number in the JSON file, or missing."""
        value: Any = self.facts
        for key in path:
            value = value.get(key) if isinstance(value, Mapping) else None
        return float(value) if isinstance(value, int | float) else MISSING


def read_measured(results: Path) -> tuple[Measured, ...]:
    """Every finished cell under `results` but those of the recipe smoke, whose numbers mean nothing; ordered by name."""
    return tuple(
        Measured(each.cell, each.scores, each.facts, each.blocks)
        for each in find_results(results)
        if each.cell.recipe.removesuffix(ENSEMBLE) != "smoke"
    )


Architectures = Sequence[Sequence[Measured]]
"""The cells of each architecture."""

# Selections


Part = tuple[float, float]
"""How the standard training split is divided: the shares of training and hold-out."""
PLAIN: Part = (0.9, 0.1)


def trained(
    measured: Iterable[Measured],
    dataset: str,
    network: str,
    part: Part = PLAIN,
    *,
    dropout: float = 0.0,
    training: str = PAPER_TRAINING,
    ensemble: bool = False,
) -> tuple[Measured, ...]:
    """One per seed: recipes share networks (the low-data 90 % is the plain one), and of those that measured it the one with the
    most test sets counts; of the small ViT that of its own recipe. An ensemble counts where it is asked for."""
    wanted = (*((1.0, 0.0) if training == PUBLIC_TRAINING else part), dropout)
    by_seed: dict[int, Measured] = {}
    for each in measured:
        cell = each.cell
        if (cell.dataset, cell.network, each.training) != (dataset, network, training):
            continue
        if cell.recipe.endswith(ENSEMBLE) == ensemble and all(
            map(math.isclose, (cell.train_fraction, cell.holdout_fraction, cell.dropout), wanted)
        ):
            known = by_seed.setdefault(cell.seed, each)
            by_seed[cell.seed] = max(known, each, key=lambda one: (one.cell.recipe == STRONG_VIT, len(one.sets)))
    return tuple(by_seed[seed] for seed in sorted(by_seed))


def with_common_seeds(groups: Collection[Sequence[Measured]]) -> list[tuple[Measured, ...]]:
    """Of every group the cells whose seeds all groups that were run have."""
    seeds = [{each.cell.seed for each in cells} for cells in groups if cells]
    common = set.intersection(*seeds) if seeds else set[int]()
    return [tuple(each for each in cells if each.cell.seed in common) for cells in groups]


def networks_of(dataset: str, training: str = PAPER_TRAINING) -> tuple[str, ...]:
    if training == PUBLIC_TRAINING:
        return tuple(cell.network for cell in RECIPES[PUBLIC].cells() if cell.dataset == dataset)
    if training == STRONG_TRAINING:
        return STRONG_NETWORKS
    return ("resnet50",) if dataset in LARGE else CIFAR_NETWORKS


def places(datasets: Sequence[str]) -> list[tuple[str, str, str]]:
    """Training, data set and network of all that can be run."""
    return [
        (training, dataset, network)
        for training, dataset in product(TRAININGS, datasets)
        for network in networks_of(dataset, training)
    ]


def drawn_datasets(measured: Sequence[Measured], training: str) -> tuple[str, ...]:
    """Those of which a network was run; all that could be if none was."""
    return tuple(name for name in paper.DATASETS if all_trained(measured, name, training)) or paper.DATASETS


def by_architecture(
    measured: Sequence[Measured], dataset: str, training: str = PAPER_TRAINING, *, ensemble: bool = False
) -> list[tuple[Measured, ...]]:
    """The plain networks of a data set, those of one architecture together."""
    options = {"training": training, "ensemble": ensemble}
    return [trained(measured, dataset, network, **options) for network in networks_of(dataset, training)]


def all_trained(measured: Sequence[Measured], dataset: str, training: str = PAPER_TRAINING) -> tuple[Measured, ...]:
    """Every plain network of a data set, all architectures and seeds."""
    return tuple(each for cells in by_architecture(measured, dataset, training) for each in cells)


def methods_run(measured: Sequence[Measured], dataset: str, training: str = PAPER_TRAINING) -> frozenset[str]:
    """Those that were measured on every plain network of a data set; the ensemble, where each architecture has one."""
    plain, ensembles = (by_architecture(measured, dataset, training, ensemble=each) for each in (False, True))
    methods = [frozenset(each.methods) for cells in plain for each in cells]
    complete = list(map(bool, ensembles)) == list(map(bool, plain))
    return frozenset.intersection(*methods) | ({"ensemble"} if complete else frozenset()) if methods else frozenset()


# Numbers


def mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else MISSING


@dataclass(frozen=True)
class Spread:
    """Mean, standard deviation (n − 1; missing for fewer than two) and number of the values that are there."""

    mean: float
    deviation: float
    count: int


def spread(values: Iterable[float]) -> Spread:
    present = [value for value in values if not math.isnan(value)]
    centre = mean(present)
    squares = [(value - centre) ** 2 for value in present]
    deviation = math.sqrt(math.fsum(squares) / (len(present) - 1)) if len(present) > 1 else MISSING
    return Spread(centre, deviation, len(present))


def over_architectures(architectures: Architectures, value: Callable[[Measured], float]) -> float:
    """The mean of anything known of a network, over an architecture's seeds and then over architectures: each counts once,
    however many seeds it has. Missing if a network that was run lacks it: a mean over the others would pass for the whole."""
    return mean([mean([value(cell) for cell in cells]) for cells in architectures if cells])


def mean_over_networks(
    measured: Sequence[Measured],
    dataset: str,
    method: str,
    metric: str,
    sets: Sequence[str] = CLEAN_SET,
    training: str = PAPER_TRAINING,
) -> float:
    architectures = by_architecture(measured, dataset, training, ensemble=method == "ensemble")
    return over_architectures(architectures, lambda each: each.mean(method, metric, sets))
