"""Invented results in the form that evaluation writes, for the tests of tables and figures alone."""

import csv
import math
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean

import numpy as np

from experiments.data.corruptions import NAMES, SEVERITIES
from experiments.evaluation.dropout import OFF, ON
from experiments.evaluation.image_blocks import BLOCKS, IMAGE_METRICS, group_of
from experiments.evaluation.measuring import METRICS, Scores
from experiments.recipes import Cell
from experiments.runner.results import CellResults, write_results

SETS = ("clean", *(f"{name}-{severity}" for name in NAMES for severity in SEVERITIES))
MEMBERS = {"vgg16": 14, "vgg19": 17, "resnet18": 8, "resnet50": 16, "wide_resnet_28_10": 12, "resnet32": 15}
PLAIN_METHODS = (
    "network", "temperature", "temperature_sgd", "temperature_jittered_holdout", "temperature_tau_sgd",
    "temperature_brier", "vector_scaling", "head_refitted_shift", "head_refitted_jitter", "lates_paper",
    "head_refitted_both_holdouts", "head_refitted_robust", "temperature_robust_holdout", "sms", "lates_last",
    "lates_capped_rescaled",
    *(f"lates_{views}_{budget}" for views in ("none", "shift", "jitter", "robust") for budget in ("0.5", "1", "2", "5", "all")),
    "lates_jittered_holdout", "lates_both_holdouts", "temperature_both_holdouts", "lates_last_block",
)  # fmt: skip
SEEDS_RUN = {"vgg16": 3, "vgg19": 1, "resnet18": 3, "wide_resnet_28_10": 1}
"""How many of each network, on either data set, `write_all` invents."""
SPENT = {"0.5": 0.0049, "1": 0.0098, "2": 0.0197, "5": 0.048, "all": 0.068}


def write_cell(
    results: Path,
    recipe: str,
    dataset: str,
    network: str,
    seed: int,
    *,
    train_fraction: float = 0.9,
    holdout_fraction: float = 0.1,
    dropout: float = 0.0,
    sets: Sequence[str] = SETS,
    severities: Sequence[int] = SEVERITIES,
) -> Path:
    """One cell's CSV and JSON; returns the CSV. The same arguments give the same numbers."""
    cell = Cell(recipe, dataset, network, seed, train_fraction, holdout_fraction, dropout)
    random = np.random.default_rng(zlib.crc32(cell.training.encode()))
    methods = (*OFF, *ON) if dropout else PLAIN_METHODS
    hard = {"cifar100": 1.0, "imagenet": 0.8}.get(dataset, 0.25)
    error = 0.34 * hard * (0.9 / train_fraction) ** 0.3 * (1 + 0.03 * random.standard_normal())
    scores: dict[tuple[str, str], dict[str, float]] = {}
    for test_set in sets:
        severity = int(test_set.rpartition("-")[2]) if "-" in test_set else 0
        scores |= {(method, test_set): _scores(random, error, severity) for method in methods}
    facts = {
        "commit": "0" * 40,
        "device": "invented",
        "recipe": {"severities": severities},
        "seconds": {"training": 180.0, "extraction": 0.4},
        **_votes(network, error, methods),
    }
    return write_results(results, CellResults(cell, scores, facts, _blocks(scores))).with_suffix(".csv")


def _blocks(scores: Scores) -> dict[tuple[str, str], np.ndarray]:
    """Blocks of test images whose mean is the mean of the scores; a block is as hard for every method."""
    hardness = np.random.default_rng(0).normal(0, 0.1, BLOCKS)
    hardness -= hardness.mean()
    values: dict[tuple[str, str], list[list[float]]] = {}
    for (method, name), metrics in scores.items():
        values.setdefault((method, group_of(name)), []).append([metrics[metric] for metric in IMAGE_METRICS])
    return {key: np.mean(each, axis=0)[:, None] + hardness for key, each in values.items()}


def _scores(random: np.random.Generator, error: float, severity: int) -> dict[str, float]:
    wrong = error * (1 + severity / 5) * random.uniform(0.9, 1.1)
    scales = {"accuracy": -wrong, "auc": -0.1 * wrong, "auc_keras": -0.1 * wrong, "auc_best_temperature": -0.1 * wrong}
    values = {metric: random.uniform(0.05, 0.3) * (1 + severity / 5) for metric in METRICS}
    values |= {"nll": 4 * wrong, "brier": 1.3 * wrong, "brier_paper": 1.3 * wrong - 1, "ece_floor": 0.006}
    return values | {metric: 1 + scale for metric, scale in scales.items()}


def _votes(network: str, error: float, methods: Sequence[str]) -> dict[str, object]:
    blocks = [f"block{place}" for place in range(MEMBERS.get(network, 4) - 1)]
    depth = np.linspace(0.1, 1, len(blocks))
    weights = np.where(depth > 0.45, depth**2, 0.0) * 0.3
    weights[-2] = 0.0
    members = [*blocks, "head"]

    def votes(method: str) -> dict[str, object]:
        with_probes = "lates" in method
        beta = np.append(weights, 0.8) if with_probes else np.append(0 * weights, 0.7)
        return {
            "weights": dict(zip(members, beta.tolist(), strict=True)),
            "contributions": dict(zip(members, (beta / beta.sum()).tolist(), strict=True)),
            "parameters": SPENT.get(method.rpartition("_")[2], 0.0098) if with_probes else 0.0,
            "flops": 0.0004 if with_probes else 0.0,
            "seconds": 4.2 if with_probes else 0.1,
        }

    accuracies = dict(zip(blocks, ((1 - error) * (1 - np.exp(-3 * depth))).tolist(), strict=True))
    return {
        "probe_accuracy": {**accuracies, "head": 1 - error},
        "methods": {method: votes(method) for method in methods},
    }


def write_all(results: Path) -> Path:
    """As if most of the paper had been run: seeds differ, ImageNet and some cells are missing."""
    for dataset in ("cifar10", "cifar100"):
        for network, seeds in SEEDS_RUN.items():
            for seed in range(seeds):
                write_cell(results, "in_distribution", dataset, network, seed)
        write_cell(results, "mc_dropout", dataset, "wide_resnet_28_10", 0, dropout=0.2)
    for fraction in (0.25, 0.5):
        write_cell(results, "low_data", "cifar100", "resnet18", 0, train_fraction=fraction)
    for percent in (2, 4, 6, 8):
        rest, held = 1 - percent / 100, percent / 100
        write_cell(results, "holdout_size", "cifar100", "resnet18", 0, train_fraction=rest, holdout_fraction=held)
    return results


def over_networks(value: Callable[[str, int], float]) -> float:
    """The mean over seeds, then over architectures, of what (network, seed) has."""
    return mean(mean(value(network, seed) for seed in range(seeds)) for network, seeds in SEEDS_RUN.items())


def read_column(path: Path, method: str, metric: str) -> dict[str, float]:
    """set -> value, straight from the file: what the summaries have to agree with."""
    with open(path, newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["method"] == method]
    return {row["set"]: float(row[metric]) if row[metric] else math.nan for row in rows}


def rows_of(text: str, *starts: str) -> list[dict[str, str]]:
    """The rows whose first cells are `starts`, as {column: cell}; columns of one name keep the last."""
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("|")]
    return [dict(zip(lines[0], row, strict=True)) for row in lines[2:] if row[: len(starts)] == list(starts)]


def column(results: Path, cell: str, method: str, metric: str) -> dict[str, float]:
    return read_column(results / cell.split("-")[0] / f"{cell}.csv", method, metric)
