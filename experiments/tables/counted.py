"""At a glance: on how many of the trained networks LATES is better than its rivals."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from experiments import paper
from experiments.corruptions import NAMES, UNLIKE_JITTER
from experiments.recipes import CIFAR_SETS
from experiments.significance import clean_gains, corrupted_gains, network_gains
from experiments.summaries import BUDGETS, DATASET_TITLES, Measured, all_trained, method_title
from experiments.tables.markdown import ABSENT, Table, number
from experiments.tables.measured import titles


@dataclass(frozen=True)
class Expectation:
    """That `method` is better than `rival` in the mean over these corruptions; without any, on the clean test set."""

    title: str
    corruptions: tuple[str, ...]
    method: str
    rival: str
    datasets: tuple[str, ...] = CIFAR_SETS


CLEAN = ()
ALL, UNLIKE = ("corrupted", NAMES), ("corrupted, unlike the jitter", UNLIKE_JITTER)
WITHIN_ONE_PERCENT = ("lates_none_1", "lates_shift_1", "lates_jitter_1")
EXPECTATIONS = (
    *(
        Expectation(f"clean, {DATASET_TITLES[dataset]}", CLEAN, method, "temperature", (dataset,))
        for method in ("lates_none_1", "lates_shift_1")
        for dataset in reversed(CIFAR_SETS)
    ),
    Expectation(*ALL, "lates_shift_1", "temperature"),
    Expectation(*ALL, "lates_jitter_1", "temperature"),
    Expectation(*UNLIKE, "lates_jitter_1", "temperature"),
    *(Expectation(*ALL, f"lates_jitter_{budget}", "temperature_jittered_holdout") for budget in BUDGETS),
    Expectation(*UNLIKE, "lates_jitter_1", "temperature_jittered_holdout"),
    Expectation(*ALL, "lates_both_holdouts", "temperature_jittered_holdout"),
    Expectation(*UNLIKE, "lates_both_holdouts", "temperature_jittered_holdout"),
)


def expectations(measured: Sequence[Measured]) -> Table:
    note = (
        "By the mean over the test sets, of the networks on which both were measured. LATES, hold-out plain and jittered, has "
        "jittered views too."
    )
    networks = _networks(measured, CIFAR_SETS)
    if networks:
        parameters, flops = (_most_added(networks, fact) for fact in ("parameters", "flops"))
        note += f" Within 1 % it adds at most {number(parameters, 2)} % to a network's parameters and "
        note += f"{number(flops, 3)} % to its FLOPs."
    header = ("test sets", "method", "better than", *titles(paper.METRICS))
    rows = tuple(
        (each.title, method_title(each.method), method_title(each.rival), *_counts(measured, each))
        for each in EXPECTATIONS
    )
    return Table("expectations", "On how many networks LATES is better", header, rows, note, text_columns=3)


def _networks(measured: Sequence[Measured], datasets: Sequence[str]) -> list[Measured]:
    return [cell for dataset in datasets for cell in all_trained(measured, dataset)]


def _counts(measured: Sequence[Measured], expected: Expectation) -> list[str]:
    networks = _networks(measured, expected.datasets)
    pair = (expected.method, expected.rival)
    gains = [
        network_gains(corrupted_gains(networks, *pair, metric, expected.corruptions))
        if expected.corruptions
        else clean_gains(networks, *pair, metric)
        for metric in paper.METRICS
    ]
    return [f"{(each > 0).sum()} of {each.size}" if each.size else ABSENT for each in gains]


def _most_added(networks: Sequence[Measured], fact: str) -> float:
    """In percent; missing if one is: a maximum over a part would pass for the whole."""
    return float(np.max([100 * cell.fact("methods", each, fact) for cell in networks for each in WITHIN_ONE_PERCENT]))
