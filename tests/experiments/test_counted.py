"""On how many networks LATES is better: counted anew from invented results."""

from dataclasses import replace
from pathlib import Path
from statistics import mean

import pytest

from experiments.corruptions import LIKE_JITTER
from experiments.results import read_results, write_results
from experiments.summaries import (
    read_measured,
)
from experiments.tables import render_tables
from experiments.tables.counted import expectations
from tests.experiments.synthetic import SEEDS_RUN, column, rows_of, write_cell


def test_networks_on_which_lates_is_better_are_counted(results: Path, tables: dict[str, str], tmp_path: Path) -> None:
    names = [
        f"in_distribution-cifar10-{network}-s{seed}" for network, seeds in SEEDS_RUN.items() for seed in range(seeds)
    ]
    scores = [
        [column(results, name, method, "accuracy")["clean"] for method in ("lates_shift_1", "temperature")]
        for name in names
    ]
    better = sum(ours > theirs for ours, theirs in scores)
    clean = ("clean, CIFAR-10", "LATES, shifted views (default)", "temperature")
    (row,) = rows_of(tables["expectations"], *clean)
    assert row["accuracy"] == f"{better} of {len(names)}"
    write_cell(tmp_path, "out_of_distribution", "cifar10", "vgg16", 0, sets=["clean"])
    partly = render_tables(tmp_path)["expectations"]
    assert rows_of(partly, *clean)[0]["NLL"].endswith(" of 1")
    (not_measured,) = rows_of(partly, "corrupted", "LATES, shifted views (default)")
    assert not_measured["NLL"] == "–"


@pytest.mark.parametrize(("title", "left_out"), [("corrupted", ()), ("corrupted, unlike the jitter", LIKE_JITTER)])
def test_on_corrupted_sets_the_mean_over_them_decides_on_which_networks_lates_is_better(
    results: Path, tables: dict[str, str], title: str, left_out: tuple[str, ...]
) -> None:
    (row,) = rows_of(tables["expectations"], title, "LATES, jittered views", "temperature, jittered hold-out")
    for metric, heading, sign in (("ece", "ECE", -1), ("auc", "AUC", 1)):
        gains = [
            sign * mean(ours[name] - theirs[name] for name in ours if name.split("-")[0] not in ("clean", *left_out))
            for path in sorted((results / "in_distribution").glob("*.blocks.csv"))
            for ours, theirs in [
                [
                    column(results, path.name.removesuffix(".blocks.csv"), method, metric)
                    for method in ("lates_jitter_1", "temperature_jittered_holdout")
                ]
            ]
        ]
        assert row[heading] == f"{sum(gain > 0 for gain in gains)} of 16"


def test_the_most_that_lates_adds_is_that_of_the_network_where_it_adds_most(tmp_path: Path) -> None:
    for network, parameters, flops in (
        ("vgg16", 0.004, 0.0001),
        ("vgg19", 0.0099, 0.00123),
        ("resnet18", 0.007, 0.001),
    ):
        write_cell(tmp_path, "in_distribution", "cifar10", network, 0, sets=["clean"])
        found = read_results(tmp_path / "in_distribution" / f"in_distribution-cifar10-{network}-s0.json")
        spent = {"parameters": parameters, "flops": flops}
        methods = {**found.facts["methods"], "lates_shift_1": spent, "lates_none_1": spent, "lates_jitter_1": spent}
        write_results(tmp_path, replace(found, facts={**found.facts, "methods": methods}))
    note = expectations(read_measured(tmp_path)).note
    assert "at most 0.99 % to a network's parameters and 0.123 % to its FLOPs" in note
    assert "at most" not in expectations(()).note
