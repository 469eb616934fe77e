"""Counts, tests and intervals of gains: recomputed from invented results."""

import math
import shutil
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev

import numpy as np
import pytest
from scipy.stats import t as student
from scipy.stats import wilcoxon

from experiments.data.corruptions import LIKE_JITTER
from experiments.reporting.summaries import read_measured
from experiments.reporting.tables import render_tables
from experiments.reporting.tables.comparisons import expectations
from experiments.reporting.tables.markdown import number, p_value
from experiments.runner.results import find_results, read_results, write_results
from tests.experiments.reporting.synthetic import SEEDS_RUN, column, rows_of, write_cell

NO_VIEWS = ("LATES, no views — temperature", "CIFAR-10")


def test_gains_of_mc_dropout_have_the_interval_of_a_mean_over_test_images(results: Path, tmp_path: Path) -> None:
    name = "mc_dropout-cifar10-wide_resnet_28_10-s0-d0.2"
    found = read_results(results / "mc_dropout" / f"{name}.json")
    harm = np.random.default_rng(0).normal(0.01, 0.02, (3, 200))  # to temperature scaling; ordered as IMAGE_METRICS
    blocks = {key: values + (harm if key[0] == "mcd_temperature" else 0) for key, values in found.blocks.items()}
    write_results(tmp_path, replace(found, blocks=blocks))
    table = render_tables(tmp_path)["mc_dropout_gains"]
    (row,) = rows_of(table, "CIFAR-10", "0.2", "+ LATES, no views", "+ temperature")
    for title, metric, more, sign in (
        ("NLL [95 %]", "nll", harm[0], 1),
        ("Brier [95 %]", "brier", harm[1], 1),
        ("accuracy [95 %]", "accuracy", harm[2], -1),
    ):
        shown = [float(text.strip("[],").replace("−", "-")) for text in row[title].split()]
        ours, theirs = (column(results, name, method, metric)["clean"] for method in ("mcd_lates", "mcd_temperature"))
        middle, half = sign * (theirs + more.mean() - ours), 1.96 * more.std(ddof=1) / math.sqrt(200)
        assert shown == pytest.approx([middle, middle - half, middle + half], abs=2e-4)
    ours, theirs = (column(results, name, method, "ece")["clean"] for method in ("mcd_lates", "mcd_temperature"))
    assert row["ECE [95 %]"] == f"{theirs - ours:+.4f}"  # no mean over images: of one network it has no interval


def test_gains_of_mc_dropout_are_of_all_seeds_in_every_comparison(tables: dict[str, str], tmp_path: Path) -> None:
    on, off = "+ LATES, no views", "dropout off: LATES, no views"
    rows = rows_of(tables["mc_dropout_gains"], "CIFAR-10", "0.2")
    assert {row["seeds"] for row in rows} == {"1"}
    pairs = [(row["method"], row["over"]) for row in rows]
    assert {("+ temperature", "MC dropout"), (on, "+ temperature"), (off, "+ temperature"), (on, off)} <= set(pairs)
    assert len(set(pairs)) == len(pairs)
    (missing,) = rows_of(tables["mc_dropout_gains"], "CIFAR-10", "0.1")
    assert missing["method"] == "not run"
    for seed in range(2):
        write_cell(tmp_path, "mc_dropout", "cifar10", "wide_resnet_28_10", seed, dropout=0.2, sets=["clean"])
    names = [f"mc_dropout-cifar10-wide_resnet_28_10-s{seed}-d0.2" for seed in range(2)]
    gains = [
        mean(
            column(tmp_path, name, "mcd_temperature", metric)["clean"]
            - column(tmp_path, name, "mcd_lates", metric)["clean"]
            for name in names
        )
        for metric in ("ece", "nll")
    ]
    (row,) = rows_of(render_tables(tmp_path)["mc_dropout_gains"], "CIFAR-10", "0.2", on, "+ temperature")
    assert [float(row[title].split()[0]) for title in ("ECE [95 %]", "NLL [95 %]")] == pytest.approx(gains, abs=1e-4)
    assert row["seeds"] == "2"


def test_wilcoxon_counts_every_set_and_every_network(tables: dict[str, str]) -> None:
    (row,) = rows_of(tables["wilcoxon"], "LATES, jittered views — temperature", "CIFAR-100", "NLL")
    assert row["sets better"].endswith(" / 760")
    assert row["networks better"] == "8 / 8"
    assert row["p"] == "0.008"
    assert row["p, Holm"] == "0.078"


def corrupted_differences(results: Path, network: str, seed: int, metric: str) -> dict[str, list[float]]:
    """corruption -> by how much temperature's values on CIFAR-10 exceed those of LATES without views, over severities."""
    name = f"in_distribution-cifar10-{network}-s{seed}"
    ours, theirs = (column(results, name, method, metric) for method in ("lates_none_1", "temperature"))
    found: dict[str, list[float]] = {}
    for test_set in ours.keys() - {"clean"}:
        found.setdefault(test_set.split("-")[0], []).append(theirs[test_set] - ours[test_set])
    return found


@pytest.mark.parametrize(("metric", "title"), [("ece", "ECE"), ("brier", "Brier")])
def test_mean_gains_are_the_files_with_each_architecture_once_and_corruptions_apart(
    results: Path, tables: dict[str, str], metric: str, title: str
) -> None:
    (row,) = rows_of(tables["effects"], *NO_VIEWS, title)
    shown = {name: float(cell.split()[0].replace("−", "-")) for name, cell in row.items() if name.endswith("[95 %]")}
    by_architecture = {
        network: [corrupted_differences(results, network, seed, metric) for seed in range(seeds)]
        for network, seeds in SEEDS_RUN.items()
    }
    everything = tuple(by_architecture["vgg16"][0])
    unlike = tuple(name for name in everything if name not in LIKE_JITTER)
    for heading, types in (("all 19", everything), ("like the jitter", LIKE_JITTER), ("unlike it", unlike)):
        gain = mean(
            mean(mean(mean(gains[name]) for name in types) for gains in networks)
            for networks in by_architecture.values()
        )
        assert shown[f"{heading} [95 %]"] == pytest.approx(gain, abs=6e-5), heading


@pytest.mark.parametrize(("heading", "left_out"), [("17 types", {"motion_blur", "snow"}), ("all 19", set[str]())])
def test_anova_is_of_the_types_means_over_seeds_then_architectures(
    results: Path, tables: dict[str, str], heading: str, left_out: set[str]
) -> None:
    found = {
        network: [corrupted_differences(results, network, seed, "nll") for seed in range(seeds)]
        for network, seeds in SEEDS_RUN.items()
    }
    gains = [
        mean(mean(mean(gains[name]) for gains in networks) for networks in found.values())
        for name in found["vgg16"][0].keys() - left_out
    ]
    header, *lines = (line for line in tables["anova"].splitlines() if line.startswith("|"))
    (line,) = (line for line in lines if line.startswith(f"| {' | '.join(NO_VIEWS)} | NLL |"))
    place = header.split(" | ").index(heading)
    statistic, p, dz = line.strip("| ").split(" | ")[place : place + 3]
    t = mean(gains) / stdev(gains) * math.sqrt(len(gains))
    assert statistic == f"F(1, {len(gains) - 1}) = {t**2:.2f}"
    assert p == p_value(2 * float(student.sf(abs(t), len(gains) - 1)))
    assert dz == number(mean(gains) / stdev(gains), 2)


def test_wilcoxon_of_sets_stands_before_that_of_networks(results: Path, tables: dict[str, str]) -> None:
    by_network = [
        np.ravel(list(corrupted_differences(results, network, seed, "ece").values()))
        for network, seeds in SEEDS_RUN.items()
        for seed in range(seeds)
    ]
    (line,) = (line for line in tables["wilcoxon"].splitlines() if line.startswith(f"| {' | '.join(NO_VIEWS)} | ECE |"))
    cells = line.strip("| ").split(" | ")

    def expected(gains: np.ndarray, method: str) -> list[str]:
        ranks = np.abs(gains).argsort().argsort() + 1
        r, p = np.sign(gains) @ ranks / ranks.sum(), np.asarray(wilcoxon(gains, method=method))[1]
        return [f"{(gains > 0).sum()} / {len(gains)}", number(float(r), 2), p_value(float(p))]

    assert cells[4:7] == expected(np.concatenate(by_network), "asymptotic")
    means = np.mean(by_network, axis=1)
    better, r, dz, p = cells[8:12]
    assert [better, r, p] == expected(means, "exact")
    assert dz == number(float(means.mean() / means.std(ddof=1)), 2)


def test_a_mean_gain_is_of_all_networks_counted_even_if_some_kept_no_images(
    results: Path, tables: dict[str, str], tmp_path: Path
) -> None:
    partly = Path(shutil.copytree(results, tmp_path / "results"))
    for found in find_results(partly):
        if found.cell.dataset == "cifar100" and found.cell.seed == 0:
            kept = {key: values for key, values in found.blocks.items() if key[0] != "lates_none_1"}
            write_results(partly, replace(found, blocks=kept))
    start = "LATES, no views — temperature", "CIFAR-100", "NLL"
    (whole,), (part,) = rows_of(tables["effects"], *start), rows_of(render_tables(partly)["effects"], *start)
    column = "clean [95 %]"
    assert part[column] != whole[column], "the interval is no longer one over images"
    assert part[column].split()[0] == whole[column].split()[0]


def test_networks_on_which_lates_is_better_are_counted(results: Path, tables: dict[str, str], tmp_path: Path) -> None:
    names = [
        f"in_distribution-cifar10-{network}-s{seed}" for network, seeds in SEEDS_RUN.items() for seed in range(seeds)
    ]
    scores = [
        [column(results, name, method, "accuracy")["clean"] for method in ("lates_shift_1", "temperature")]
        for name in names
    ]
    better = sum(ours > theirs for ours, theirs in scores)
    clean = ("clean, CIFAR-10", "LATES, shifted views", "temperature")
    (row,) = rows_of(tables["expectations"], *clean)
    assert row["accuracy"] == f"{better} of {len(names)}"
    write_cell(tmp_path, "out_of_distribution", "cifar10", "vgg16", 0, sets=["clean"])
    partly = render_tables(tmp_path)["expectations"]
    assert rows_of(partly, *clean)[0]["NLL"].endswith(" of 1")
    (not_measured,) = rows_of(partly, "corrupted", "LATES, shifted views")
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
