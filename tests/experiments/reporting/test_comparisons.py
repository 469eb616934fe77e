"""Tables of gains: recomputed from invented results."""

import math
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev

import numpy as np
import pytest
from scipy.stats import t as student

from experiments.data.corruptions import LIKE_JITTER
from experiments.reporting.prose import fill
from experiments.reporting.summaries import read_measured
from experiments.reporting.tables.comparisons import mc_dropout_gains, primary
from experiments.reporting.tables.markdown import markdown, p_value, signed
from experiments.runner.results import read_results, write_results
from tests.experiments.reporting.synthetic import SEEDS_RUN, column, read_column, rows_of, write_cell


def gains_of(results: Path, network: str, seed: int, metric: str) -> dict[str, float]:
    """set -> by how much temperature's values on CIFAR-10 exceed those of LATES without views"""
    name = f"in_distribution-cifar10-{network}-s{seed}"
    ours, theirs = (column(results, name, method, metric) for method in ("lates_none_1", "temperature"))
    return {each: theirs[each] - ours[each] for each in ours}


def numbers(cell: str) -> list[float]:
    return [float(text.strip("[],").replace("−", "-")) for text in cell.split()]


@pytest.mark.parametrize(("metric", "title"), [("ece", "ECE"), ("nll", "NLL")])
def test_gains_count_each_architecture_once_and_have_its_t_interval(
    results: Path, tables: dict[str, str], metric: str, title: str
) -> None:
    start = ("LATES, no views", "temperature", "paper's recipe", "CIFAR-10")
    for group, chosen in (
        ("clean", lambda name: name == "clean"),
        ("corrupted", lambda name: name != "clean"),
        ("corrupted, similar to views", lambda name: name.split("-")[0] in LIKE_JITTER),
    ):
        means = [
            mean(
                mean(gain for name, gain in gains_of(results, network, seed, metric).items() if chosen(name))
                for seed in range(seeds)
            )
            for network, seeds in SEEDS_RUN.items()
        ]
        half = student.ppf(0.975, len(means) - 1) * stdev(means) / math.sqrt(len(means))
        (row,) = rows_of(tables["gains"], *start, group, title)
        assert numbers(row["gain"]) == pytest.approx([mean(means)], abs=6e-5)
        low, high = mean(means) - half, mean(means) + half
        assert numbers(row["t over architectures, 95 %"]) == pytest.approx([low, high], abs=6e-5)
        low, high = numbers(row["bootstrap, 95 %"])
        assert low < mean(means) < high
        assert row["networks better"].endswith(" of 8")
        assert row["architectures"] == "4"


def test_networks_of_both_data_sets_on_which_a_method_is_better_are_counted(results: Path) -> None:
    better = 0
    for dataset in ("cifar10", "cifar100"):
        for network, seeds in SEEDS_RUN.items():
            for seed in range(seeds):
                name = f"in_distribution-{dataset}-{network}-s{seed}"
                ours, theirs = (column(results, name, m, "accuracy")["clean"] for m in ("lates_shift_1", "temperature"))
                better += ours > theirs
    field = "{{better both nll:clean,accuracy:clean lates_shift_1 temperature sms}}"
    (row,) = rows_of(fill(field, read_measured(results), {}), "temperature")
    assert row["accuracy, clean"] == f"{better} of 16"


# Named beforehand


def test_the_primary_family_is_of_strong_networks_with_equal_seeds_and_corrected_by_holm(tmp_path: Path) -> None:
    assert all(row[1] == "not run" for row in primary((), "primary", "nll").rows)
    seeds = {"resnet18": 2, "vgg16": 1, "small_vit": 3}
    for dataset in ("cifar10", "cifar100"):
        write_cell(tmp_path, "in_distribution", dataset, "resnet18", 0)
        for network, count in seeds.items():
            for seed in range(count):
                write_cell(tmp_path, "strong", dataset, network, seed)
    texts = [markdown(primary(read_measured(tmp_path), "", metric)) for metric in ("nll", "ece_smooth")]
    (row,) = rows_of(texts[0], "CIFAR-10, clean")
    gains = [
        theirs["clean"] - ours["clean"]
        for network in seeds
        for ours, theirs in [
            [
                read_column(tmp_path / "strong" / f"strong-cifar10-{network}-s0.csv", method, "nll")
                for method in ("lates_last", "sms")
            ]
        ]
    ]
    assert numbers(row["gain"]) == pytest.approx([mean(gains)], abs=6e-5), "of seed 0, which all of them have"
    assert (row["architectures"], row["networks better"][-4:]) == ("3", "of 3")
    t = mean(gains) / stdev(gains) * math.sqrt(3)
    assert row["p"] == p_value(2 * float(student.sf(abs(t), 2)))
    for text in texts:
        rows = rows_of(text)
        assert len(rows) == 4
        smallest = min(rows, key=lambda each: float(each["p"]))
        assert float(smallest["p, Holm"]) == pytest.approx(min(1, 4 * float(smallest["p"])), abs=3e-3)


# MC dropout


def test_gains_of_mc_dropout_have_the_interval_of_a_mean_over_test_images(results: Path, tmp_path: Path) -> None:
    name = "mc_dropout-cifar10-wide_resnet_28_10-s0-d0.2"
    found = read_results(results / "mc_dropout" / f"{name}.json")
    harm = np.random.default_rng(0).normal(0.01, 0.02, (3, 200))  # to temperature scaling; ordered as IMAGE_METRICS
    blocks = {key: values + (harm if key[0] == "mcd_temperature" else 0) for key, values in found.blocks.items()}
    write_results(tmp_path, replace(found, blocks=blocks))
    table = markdown(mc_dropout_gains(read_measured(tmp_path)))
    (row,) = rows_of(table, "CIFAR-10", "0.2", "+ LATES, no views", "+ temperature")
    for title, harmed in (("NLL [95 %]", harm[0]), ("Brier [95 %]", harm[1])):
        middle, low, high = numbers(row[title])
        half = 1.96 * harmed.std(ddof=1) / math.sqrt(200)
        assert (high - low) / 2 == pytest.approx(half, abs=2e-4)
        assert low < middle + harmed.mean() < high
    ours, theirs = (column(results, name, method, "ece")["clean"] for method in ("mcd_lates", "mcd_temperature"))
    assert row["ECE [95 %]"] == signed(theirs - ours, 4)  # no mean over images: of one network it has no interval


# The paper's tests


@pytest.mark.parametrize(("heading", "left_out"), [("17 types", {"motion_blur", "snow"}), ("all 19", set[str]())])
def test_anova_is_of_the_types_means_over_seeds_then_architectures(
    results: Path, tables: dict[str, str], heading: str, left_out: set[str]
) -> None:
    by_type: dict[str, list[float]] = {}
    for network, seeds in SEEDS_RUN.items():
        for seed in range(seeds):
            name = f"in_distribution-cifar10-{network}-s{seed}"
            ours, theirs = (column(results, name, method, "nll") for method in ("lates_paper", "temperature_sgd"))
            for each in ours.keys() - {"clean"}:
                weighted = (theirs[each] - ours[each]) / seeds
                by_type.setdefault(each.split("-")[0], []).append(weighted)
    gains = [sum(values) / 5 / len(SEEDS_RUN) for name, values in by_type.items() if name not in left_out]
    header, *lines = (line for line in tables["paper_tests"].splitlines() if line.startswith("|"))
    (line,) = (line for line in lines if line.startswith("| CIFAR-10 | NLL |"))
    place = header.split(" | ").index(heading)
    statistic, p = line.strip("| ").split(" | ")[place : place + 2]
    t = mean(gains) / stdev(gains) * math.sqrt(len(gains))
    assert statistic == f"F(1, {len(gains) - 1}) = {t**2:.2f}"
    assert p == p_value(2 * float(student.sf(abs(t), len(gains) - 1)))
