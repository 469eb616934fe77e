"""Results on disk -> the numbers that tables print and figures draw. Nothing here computes a metric.

A mean over test sets is the mean over all that were asked for, or missing (NaN) if one of them is: a mean over a part
would pass for the whole. Sums are exact (fsum), so that a table is the same on every machine.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments import paper
from experiments.corruptions import NAMES, SEVERITIES
from experiments.images import Blocks
from experiments.results import AGAIN, CLEAN, METRICS, Cell, CellResults, find_results

MISSING = math.nan
CLEAN_SET = (CLEAN,)
SMOKE = "smoke"

LARGER_IS_BETTER = frozenset({"accuracy", "auc", "auc_keras", "auc_best_temperature"})

METRIC_TITLES: Mapping[str, str] = {
    "ece": "ECE",
    "ece_floor": "floor",
    "nll": "NLL",
    "brier": "Brier",
    "brier_paper": "Brier (paper's)",
    "accuracy": "accuracy",
    "auc": "AUC",
    "auc_keras": "AUC (Keras)",
    "auc_best_temperature": "AUC at best T",
    "classwise_ece": "classwise ECE",
    "aurc": "AURC",
}
DATASET_TITLES: Mapping[str, str] = {
    "cifar100": "CIFAR-100",
    "cifar10": "CIFAR-10",
    "imagenet": "ImageNet",
    SMOKE: "smoke test",
}
NETWORK_TITLES: Mapping[str, str] = {
    "vgg16": "VGG16",
    "vgg19": "VGG19",
    "resnet18": "ResNet18",
    "resnet50": "ResNet50",
    "wide_resnet_28_10": "WRN-28-10",
}
METHOD_TITLES: Mapping[str, str] = {
    "network": "network as it is",
    "temperature": "temperature",
    "temperature_sgd": "temperature, SGD in beta",
    "temperature_tau_sgd": "temperature, SGD in tau",
    "temperature_brier": "temperature, fitted to Brier",
    "temperature_jittered_holdout": "temperature, jittered hold-out",
    "temperature_both_holdouts": "temperature, hold-out plain and jittered",
    "vector_scaling": "vector scaling",
    "head_refitted_shift": "head refitted on shifted views",
    "head_refitted_jitter": "head refitted on jittered views",
    "head_refitted_both_holdouts": "head refitted on jittered views, hold-out plain and jittered",
    "lates_paper": "LATES, paper mode (SGD)",
    "lates_none_1": "LATES, no views",
    "lates_shift_1": "LATES, shifted views (default)",
    "lates_jitter_1": "LATES, jittered views",
    "lates_jittered_holdout": "LATES, jittered hold-out",
    "lates_both_holdouts": "LATES, hold-out plain and jittered",
    "lates_last_block": "LATES, last block probed too",
    "mcd": "MC dropout",
    "mcd_temperature": "+ temperature",
    "mcd_lates": "+ LATES, no views",
    "mcd_lates_shift": "+ LATES, shifted views (default)",
}
HEADLINE = ("temperature", "lates_paper", "lates_none_1", "lates_shift_1", "lates_jitter_1")
"""What every figure shows. The paper's own method is `lates_paper`; ours are solved exactly, within 1 % of the parameters."""
RIVALS: Mapping[str, str] = {"lates_paper": "temperature_sgd"}
"""Over what a gain is one, where that is not exact temperature scaling: both sides are solved in the same way."""
VIEWS = ("none", "shift", "jitter")
BUDGETS = ("0.5", "1", "2", "5", "all")


def sets_of(corruptions: Sequence[str], severities: Sequence[int] = SEVERITIES) -> tuple[str, ...]:
    """The names of test sets, corruption by corruption."""
    return tuple(f"{corruption}-{severity}" for corruption in corruptions for severity in severities)


CORRUPTED = sets_of(NAMES)


# What was measured


@dataclass(frozen=True, eq=False)
class Measured:
    """All that is known of one trained network: `scores` [methods, sets, metrics] by name, `facts` its JSON file,
    `blocks` its test images."""

    cell: Cell
    methods: Mapping[str, int]
    sets: Mapping[str, int]
    scores: NDArray[np.float64]
    facts: Mapping[str, Any]
    blocks: Blocks

    @property
    def dataset(self) -> str:
        """Where it stands in the tables: the smoke test's tiny networks keep to themselves."""
        return SMOKE if self.cell.recipe == SMOKE else self.cell.dataset

    def values(self, method: str, metric: str, sets: Sequence[str]) -> NDArray[np.float64]:
        """[sets], NaN where missing."""
        if method not in self.methods:
            return np.full(len(sets), MISSING)
        column = np.append(self.scores[self.methods[method], :, METRICS.index(metric)], MISSING)
        return column[[self.sets.get(name, -1) for name in sets]]

    def mean(self, method: str, metric: str, sets: Sequence[str] = CLEAN_SET) -> float:
        """Over test sets; missing if one of them is. Of the smoke test, which runs a few, over those few."""
        asked = [name for name in sets if name in self.sets] if self.dataset == SMOKE else sets
        return mean(self.values(method, metric, asked).tolist())

    def relative_gain(self, method: str, metric: str, sets: Sequence[str] = CLEAN_SET) -> float:
        """By how many percent of its rival's value `method` is better, of the means over `sets`; see `RIVALS`."""
        theirs, ours = self.mean(RIVALS.get(method, "temperature"), metric, sets), self.mean(method, metric, sets)
        return 100 * improvement(metric, theirs, ours) / theirs if theirs else MISSING

    def fact(self, *path: str) -> float:
        """A number in the JSON file, or missing."""
        found: Any = self.facts
        for key in path:
            found = found.get(key) if isinstance(found, Mapping) else None
        return float(found) if isinstance(found, int | float) else MISSING


def read_measured(results: Path) -> tuple[Measured, ...]:
    """Every finished cell under `results`, in the order of names; none if there is no such folder."""
    return tuple(_by_name(found) for found in find_results(results))


def _by_name(found: CellResults) -> Measured:
    methods = {name: place for place, name in enumerate(dict.fromkeys(row.method for row in found.rows))}
    sets = {name: place for place, name in enumerate(dict.fromkeys(row.set for row in found.rows))}
    scores = np.full((len(methods), len(sets), len(METRICS)), MISSING)
    for row in found.rows:
        scores[methods[row.method], sets[row.set]] = [row.metrics[metric] for metric in METRICS]
    return Measured(found.cell, methods, sets, scores, found.facts, found.blocks)


# Selections


@dataclass(frozen=True)
class Part:
    """How the standard training split is divided."""

    train_fraction: float
    holdout_fraction: float


PLAIN = Part(0.9, 0.1)


def trained(
    measured: Iterable[Measured],
    dataset: str,
    network: str,
    part: Part = PLAIN,
    *,
    dropout: float = 0.0,
    recipe: str = "",
) -> tuple[Measured, ...]:
    """One per seed: recipes share networks (the low-data 90 % is the plain one), and of those that measured it this `recipe`
    counts, else the one with the most test sets. A network trained again counts nowhere. Smoke takes any split."""
    by_seed: dict[int, Measured] = {}
    for each in measured:
        cell = each.cell
        same_split = dataset == SMOKE or (
            math.isclose(cell.train_fraction, part.train_fraction)
            and math.isclose(cell.holdout_fraction, part.holdout_fraction)
        )
        same_network = each.dataset == dataset and cell.network == network and math.isclose(cell.dropout, dropout)
        if same_network and same_split and cell.recipe != AGAIN:
            known = by_seed.setdefault(cell.seed, each)
            by_seed[cell.seed] = max(known, each, key=lambda one: (one.cell.recipe == recipe, len(one.sets)))
    return tuple(by_seed[seed] for seed in sorted(by_seed))


def networks_of(measured: Iterable[Measured], dataset: str) -> tuple[str, ...]:
    """The paper's networks for this data set, run or not; the smoke test's are those it ran."""
    if dataset == SMOKE:
        return tuple(sorted({each.cell.network for each in measured if each.dataset == SMOKE}))
    return ("resnet50",) if dataset == "imagenet" else paper.NETWORKS


def datasets_of(measured: Iterable[Measured]) -> tuple[str, ...]:
    """Those to show: the paper's, run or not, and the smoke test if it was."""
    present = {*paper.DATASETS, *(each.dataset for each in measured)}
    return tuple(name for name in DATASET_TITLES if name in present)


def drawn_datasets(measured: Sequence[Measured]) -> tuple[str, ...]:
    """Those of which a network was run; all that could be if none was."""
    shown = datasets_of(measured)
    return tuple(name for name in shown if all_trained(measured, name)) or shown


def all_trained(measured: Sequence[Measured], dataset: str) -> tuple[Measured, ...]:
    """Every plain network of a data set, all architectures and seeds."""
    return tuple(each for network in networks_of(measured, dataset) for each in trained(measured, dataset, network))


@dataclass(frozen=True)
class Variation:
    """A recipe whose networks are trained on several parts of the training split, the plain one among them."""

    recipe: str
    parts: tuple[Part, ...]


LOW_DATA = Variation("low_data", tuple(Part(fraction, 0.1) for fraction in paper.TRAIN_FRACTIONS))
HOLDOUT_SIZE = Variation(
    "holdout_size", tuple(Part(round(1 - fraction, 2), fraction) for fraction in paper.HOLDOUT_FRACTIONS)
)


def of_each_part(
    measured: Sequence[Measured], dataset: str, network: str, variation: Variation
) -> dict[Part, tuple[Measured, ...]]:
    """Of every part the cells whose seeds all parts that were run have: a trend must not be one from seeds to other seeds.

    Nothing where only the plain part was run, or where no seed is common: neither shows a trend.
    """
    found = {part: trained(measured, dataset, network, part, recipe=variation.recipe) for part in variation.parts}
    if not any(cells for part, cells in found.items() if part != PLAIN):
        return {}
    seeds = frozenset.intersection(*(frozenset(each.cell.seed for each in cells) for cells in found.values() if cells))
    if not seeds:
        return {}
    return {part: tuple(each for each in cells if each.cell.seed in seeds) for part, cells in found.items()}


# Numbers


def mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else MISSING


def improvement(metric: str, theirs: float, ours: float) -> float:
    """How much better ours is: positive is better, whichever way the metric points."""
    return ours - theirs if metric in LARGER_IS_BETTER else theirs - ours


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


def mean_over_networks(
    measured: Sequence[Measured], dataset: str, method: str, metric: str, sets: Sequence[str] = CLEAN_SET
) -> float:
    """First over an architecture's seeds, then over architectures: each counts once, however many seeds it has."""
    return over_networks(measured, dataset, lambda each: each.mean(method, metric, sets))


def gain_over_networks(
    measured: Sequence[Measured], dataset: str, method: str, metric: str, sets: Sequence[str] = CLEAN_SET
) -> float:
    """The relative gain, averaged like `mean_over_networks`."""
    return over_networks(measured, dataset, lambda each: each.relative_gain(method, metric, sets))


def over_networks(measured: Sequence[Measured], dataset: str, value: Callable[[Measured], float]) -> float:
    """The mean over an architecture's seeds, then over architectures, of anything known of a network."""
    networks = networks_of(measured, dataset)
    return spread(spread(map(value, trained(measured, dataset, network))).mean for network in networks).mean


def method_title(method: str) -> str:
    """In words; budgets other than 1 % are spelt out."""
    if method in METHOD_TITLES:
        return METHOD_TITLES[method]
    stem, _, budget = method.rpartition("_")
    if f"{stem}_1" in METHOD_TITLES and budget in BUDGETS:
        return f"{METHOD_TITLES[f'{stem}_1'].removesuffix(' (default)')}, " + (
            "no budget" if budget == "all" else f"{budget} %"
        )
    return method
