"""Tables from invented results: the numbers in them, and what is missing."""

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev

import numpy as np
import pytest
from scipy.stats import t as student
from scipy.stats import wilcoxon

from experiments.corruptions import LIKE_JITTER
from experiments.results import find_results, read_results, write_results
from experiments.summaries import (
    Spread,
    improvement,
    method_title,
    read_measured,
    spread,
    trained,
)
from experiments.tables import render_tables
from experiments.tables.costs import timing_table
from experiments.tables.counted import expectations
from experiments.tables.markdown import markdown, number, p_value, signed, with_deviation
from experiments.tables.measured import against_shift
from experiments.tables.printed import imagenet
from tests.experiments.synthetic import column, read_column, rows_of, write_cell

SEEDS_RUN = {"vgg16": 3, "vgg19": 1, "resnet18": 3, "wide_resnet_28_10": 1}


@pytest.fixture(scope="module")
def empty_tables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return render_tables(tmp_path_factory.mktemp("nothing") / "results")


# The numbers


def test_clean_scores_are_the_files_mean_and_deviation(results: Path, tables: dict[str, str]) -> None:
    (row,) = rows_of(tables["in_distribution"], "CIFAR-100", "ResNet18", "LATES, shifted views (default)")
    cells = [f"in_distribution-cifar100-resnet18-s{seed}" for seed in range(3)]
    values = [column(results, cell, "lates_shift_1", "nll")["clean"] for cell in cells]
    assert row["NLL"] == f"{mean(values):.4f} ± {stdev(values):.4f}"
    assert row["seeds"] == "3"
    assert row["floor"] == "0.0060 ± 0.0000"


def test_one_seed_has_no_deviation(results: Path, tables: dict[str, str]) -> None:
    (row,) = rows_of(tables["in_distribution"], "CIFAR-10", "VGG19", "temperature")
    value = column(results, "in_distribution-cifar10-vgg19-s0", "temperature", "ece")["clean"]
    assert (row["ECE"], row["seeds"]) == (f"{value:.4f}", "1")


def test_corrupted_scores_are_means_over_all_corrupted_sets(results: Path, tables: dict[str, str]) -> None:
    (row,) = rows_of(tables["out_of_distribution"], "CIFAR-100", "WRN-28-10", "LATES, no views")
    by_set = column(results, "in_distribution-cifar100-wide_resnet_28_10-s0", "lates_none_1", "accuracy")
    by_set.pop("clean")
    assert len(by_set) == 95
    assert row["accuracy"] == f"{mean(by_set.values()):.4f}"


def test_corruptions_like_the_jitter_stand_apart_and_each_network_counts_once(
    results: Path, tables: dict[str, str]
) -> None:
    (row,) = rows_of(tables["jitter"], "CIFAR-10", "resemble", "temperature")

    def like(network: str, seed: int) -> float:
        by_set = column(results, f"in_distribution-cifar10-{network}-s{seed}", "temperature", "nll")
        return mean(value for name, value in by_set.items() if name.split("-")[0] in LIKE_JITTER)

    several = [mean(like(network, seed) for seed in range(3)) for network in ("vgg16", "resnet18")]
    single = [like(network, 0) for network in ("vgg19", "wide_resnet_28_10")]
    assert row["NLL"] == f"{mean([*several, *single]):.4f}"


def test_relative_gain_is_in_percent_of_the_rival_and_positive_for_better(
    results: Path, tables: dict[str, str]
) -> None:
    (row,) = rows_of(tables["relative_gain"], "CIFAR-100", "VGG19", "LATES, jittered views")
    cell = "in_distribution-cifar100-vgg19-s0"
    for metric, title, sign in (("nll", "NLL", -1), ("accuracy", "accuracy", 1)):
        ours, theirs = (column(results, cell, m, metric)["clean"] for m in ("lates_jitter_1", "temperature"))
        assert row[title] == f"{100 * sign * (ours - theirs) / theirs:+.1f}".replace("-", "−")


def test_gains_are_over_a_rival_that_is_solved_in_the_same_way(results: Path, tables: dict[str, str]) -> None:
    (row,) = rows_of(tables["relative_gain"], "CIFAR-10", "VGG19", "LATES, paper mode (SGD)")
    cell = "in_distribution-cifar10-vgg19-s0"
    ours, theirs = (column(results, cell, name, "nll")["clean"] for name in ("lates_paper", "temperature_sgd"))
    assert row["NLL"] == f"{100 * (theirs - ours) / theirs:+.1f}".replace("-", "−")


def test_a_method_that_came_later_has_no_row_where_it_was_not_measured(tmp_path: Path) -> None:
    new = "head_refitted_both_holdouts"
    for network in ("vgg16", "vgg19"):
        write_cell(tmp_path, "out_of_distribution", "cifar10", network, 0, sets=["clean"])
    found = read_results(tmp_path / "out_of_distribution" / "out_of_distribution-cifar10-vgg16-s0.json")
    write_results(tmp_path, replace(found, rows=tuple(row for row in found.rows if row.method != new)))
    table = render_tables(tmp_path)["against_shift"]
    assert [len(rows_of(table, "CIFAR-10", name, "0", method_title(new))) for name in ("VGG16", "VGG19")] == [0, 1]
    assert rows_of(table, "CIFAR-10", "VGG16", "0", "LATES, hold-out plain and jittered")


def test_what_has_seen_the_jitter_is_compared_only_where_all_of_it_was_measured(tmp_path: Path) -> None:
    path = write_cell(tmp_path, "out_of_distribution", "cifar10", "vgg16", 1)
    write_cell(tmp_path, "in_distribution", "cifar10", "vgg16", 0, sets=["clean"])
    write_cell(tmp_path, "out_of_distribution", "cifar10", "resnet18", 0, sets=["clean"])
    found = read_results(tmp_path / "out_of_distribution" / "out_of_distribution-cifar10-resnet18-s0.json")
    write_results(
        tmp_path, replace(found, rows=tuple(row for row in found.rows if row.method != "lates_both_holdouts"))
    )
    text = markdown(against_shift(read_measured(tmp_path)))
    assert {(row["network"], row["seed"]) for row in rows_of(text)} == {("VGG16", "1")}
    (row,) = rows_of(text, "CIFAR-10", "VGG16", "1", "LATES, jittered hold-out")
    values = read_column(path, "lates_jittered_holdout", "brier")
    assert row["Brier"] == f"{values.pop('clean'):.4f}"
    assert row["Brier, corrupted"] == f"{mean(values.values()):.4f}"


def test_gains_by_budget_are_of_each_networks_own_means(results: Path, tables: dict[str, str]) -> None:
    row = rows_of(tables["budget"], "CIFAR-10", "jitter", "5 %")[0]

    def gain(network: str, seed: int, metric: str, corrupted: bool) -> float:
        ours, theirs = (
            mean(value for name, value in by_set.items() if (name != "clean") == corrupted)
            for method in ("lates_jitter_5", "temperature")
            for by_set in [column(results, f"in_distribution-cifar10-{network}-s{seed}", method, metric)]
        )
        return 100 * (ours - theirs) / theirs

    for metric, title, sign in (("nll", "NLL", -1), ("accuracy", "accuracy", 1)):
        for heading, corrupted in ((title, False), (f"{title}, corrupted", True)):
            gains = [
                mean(gain(network, seed, metric, corrupted) for seed in range(n)) for network, n in SEEDS_RUN.items()
            ]
            assert row[heading] == signed(sign * mean(gains))


def test_budget_shows_what_was_really_spent(tables: dict[str, str]) -> None:
    rows = rows_of(tables["budget"], "CIFAR-100", "shift")
    assert [row["parameters added, %"] for row in rows] == ["0.49", "0.98", "1.97", "4.80", "6.80"]


def test_networks_on_which_lates_is_better_are_counted(results: Path, tables: dict[str, str], tmp_path: Path) -> None:
    names = [
        f"in_distribution-cifar10-{network}-s{seed}"
        for network, seeds in (("vgg16", 3), ("vgg19", 1), ("resnet18", 3), ("wide_resnet_28_10", 1))
        for seed in range(seeds)
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


def test_imagenet_stands_below_the_papers_rows_once_it_was_run(tmp_path: Path) -> None:
    not_run = [row[1:] for row in imagenet(()).rows if row[1] != "paper"]
    assert set(not_run) == {("not run", "0", *["–"] * 7)}
    path = write_cell(tmp_path, "imagenet", "imagenet", "resnet50", 0, sets=["clean"])
    paper, ours = (
        [row for row in rows_of(markdown(imagenet(read_measured(tmp_path)))) if row["source"] == source]
        for source in ("paper", "ours")
    )
    assert [row["NLL"] for row in paper] == ["1.156", "1.039"]
    assert len(ours) == len(not_run)
    (row,) = (row for row in ours if row["method"] == "temperature, SGD in beta")
    assert row["AUC (Keras)"] == f"{read_column(path, 'temperature_sgd', 'auc_keras')['clean']:.4f}"


def test_gains_of_mc_dropout_have_the_interval_of_a_mean_over_test_images(results: Path, tmp_path: Path) -> None:
    name = "mc_dropout-cifar10-wide_resnet_28_10-s0-d0.2"
    found = read_results(results / "mc_dropout" / f"{name}.json")
    harm = np.random.default_rng(0).normal(
        0.01, 0.02, (3, 200)
    )  # to temperature scaling, in the order of IMAGE_METRICS
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


def test_the_papers_numbers_stand_beside_ours(results: Path, tables: dict[str, str]) -> None:
    rows = rows_of(tables["mc_dropout"], "CIFAR-10", "0.2")
    assert [row["source"] for row in rows] == ["paper"] * 2 + ["ours"] * 8
    assert (rows[1]["ECE"], rows[1]["floor"], rows[1]["accuracy"]) == ("0.0045", "–", "0.953")
    (lates,) = (row for row in rows if row["method"] == "+ LATES, no views")
    ours = column(results, "mc_dropout-cifar10-wide_resnet_28_10-s0-d0.2", "mcd_lates", "brier_paper")["clean"]
    assert (lates["Brier (paper's)"], lates["floor"]) == (f"−{abs(ours):.4f}", "0.0060")
    (off,) = (row for row in rows if row["method"] == "dropout off: temperature")
    ours = column(results, "mc_dropout-cifar10-wide_resnet_28_10-s0-d0.2", "temperature", "nll")["clean"]
    assert off["NLL"] == f"{ours:.4f}"
    missing = rows_of(tables["mc_dropout"], "CIFAR-10", "0.1")
    assert [(row["method"], row["source"]) for row in missing[2:]] == [("not run", "–")]
    own = "LATES, paper mode (SGD) — temperature, SGD in beta"
    wilcoxon = rows_of(tables["wilcoxon"], own, "ImageNet", "accuracy")
    assert wilcoxon[0]["p, paper"] == "0.18"
    (missing,) = rows_of(tables["wilcoxon"], "LATES, no views — temperature", "ImageNet")
    assert (missing["metric"], missing["p, paper"]) == ("not run", "–")
    anova = rows_of(tables["anova"], own, "CIFAR-10", "accuracy")
    assert (anova[0]["paper"], anova[0]["p, paper"]) == ("F(1, 16) = 7.72", ".013")
    assert anova[0]["17 types"].startswith("F(1, 16) = ")
    assert anova[0]["all 19"].startswith("F(1, 18) = ")


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


NO_VIEWS = ("LATES, no views — temperature", "CIFAR-10")


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


def test_controls_are_means_over_seeds_then_networks(results: Path, tables: dict[str, str]) -> None:
    (row,) = rows_of(tables["controls"], "CIFAR-10", "vector scaling")

    def shown(metric: str, corrupted: bool) -> str:
        def of(network: str, seed: int) -> float:
            by_set = column(results, f"in_distribution-cifar10-{network}-s{seed}", "vector_scaling", metric)
            return mean(value for name, value in by_set.items() if (name != "clean") == corrupted)

        return f"{mean(mean(of(network, seed) for seed in range(n)) for network, n in SEEDS_RUN.items()):.4f}"

    assert row["AUC at best T"] == shown("auc_best_temperature", corrupted=False)
    assert row["accuracy"] == shown("accuracy", corrupted=False)
    assert row["accuracy, corrupted"] == shown("accuracy", corrupted=True)


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


def test_cost_is_a_share_of_the_network(tables: dict[str, str]) -> None:
    (row,) = rows_of(tables["cost"], "CIFAR-100", "ResNet18", "LATES, no views")
    assert [row[name] for name in ("parameters, %", "FLOPs, %")] == ["0.98", "0.040"]


def test_time_is_that_of_one_calibration_beside_all_epochs(tmp_path: Path) -> None:
    timed = {"recipe_epochs": 200, "epochs": [20.5, 0.5, 0.4, 0.9], "calibrations": [2.0, 3.0, 2.4]}
    (tmp_path / "cifar100-vgg16").mkdir()
    (tmp_path / "cifar100-vgg16" / "timing.json").write_text(json.dumps(timed))
    (row,) = rows_of(markdown(timing_table(tmp_path)), "CIFAR-100", "VGG16")
    assert row["training, s"] == "120", "the first epoch and 199 of the median"
    assert (row["calibrate, s"], row["its spread, s"], row["time, %"]) == ("2.40", "2.00 to 3.00", "2.00")


def test_depth_lists_every_member_and_their_contributions_sum_to_one(tables: dict[str, str]) -> None:
    rows = rows_of(tables["depth"], "CIFAR-10", "VGG16")
    assert len(rows) == 14
    assert rows[-1]["member"] == "head"
    assert math.fsum(float(row["LATES, no views"]) for row in rows) == pytest.approx(1, abs=0.01)


def test_accuracy_by_depth_is_the_mean_over_seeds_of_either_mode(results: Path, tables: dict[str, str]) -> None:
    folder = results / "in_distribution"
    facts = [read_results(folder / f"in_distribution-cifar10-vgg16-s{seed}.json").facts for seed in range(3)]
    for row in rows_of(tables["depth"], "CIFAR-10", "VGG16"):
        for heading, kind in (("accuracy", "probe_accuracy"), ("accuracy, paper mode", "probe_accuracy_paper")):
            assert row[heading] == f"{mean(each[kind][row['member']] for each in facts):.3f}"


# What is missing


def test_what_was_not_run_is_a_row_that_says_so(tables: dict[str, str]) -> None:
    for name in ("in_distribution", "out_of_distribution", "relative_gain", "cost", "depth"):
        (row,) = rows_of(tables[name], "CIFAR-100", "ResNet50")
        assert "not run" in row.values()
        assert not any(cell.replace(".", "").isdigit() and cell != "0" for cell in row.values())


def test_without_results_no_table_holds_a_measured_number(empty_tables: dict[str, str], tables: dict[str, str]) -> None:
    assert empty_tables.keys() == tables.keys()
    invented = [
        f"{name}: {cell}"
        for name, text in empty_tables.items()
        for row in rows_of(text)
        if name not in ("pitfall", "proposition") and row.get("source") != "paper" and row.get("data set") != "paper"
        for title, cell in row.items()
        if any(digit.isdigit() for digit in cell)
        and title not in ("data set", "network", "dropout", "budget", "paper", "p, paper", "test sets", "method")
        and cell != "0"
    ]
    assert invented == []


def test_a_mean_over_a_part_of_the_sets_is_missing(tmp_path: Path) -> None:
    write_cell(tmp_path, "in_distribution", "cifar10", "vgg16", 0, sets=["clean", "fog-1", "fog-2"])
    tables = render_tables(tmp_path)
    (row,) = rows_of(tables["out_of_distribution"], "CIFAR-10", "VGG16", "temperature")
    assert (row["seeds"], row["NLL"]) == ("0", "–")
    assert rows_of(tables["in_distribution"], "CIFAR-10", "VGG16", "temperature")[0]["seeds"] == "1"


def test_the_smoke_test_keeps_to_itself_and_to_its_sets(tmp_path: Path) -> None:
    path = write_cell(
        tmp_path,
        "smoke",
        "cifar10_600",
        "tiny_vgg",
        0,
        train_fraction=0.7,
        holdout_fraction=0.3,
        sets=["clean", "fog-1"],
    )
    tables = render_tables(tmp_path)
    (row,) = rows_of(tables["out_of_distribution"], "smoke test", "tiny_vgg", "temperature")
    assert row["NLL"] == f"{read_column(path, 'temperature', 'nll')['fog-1']:.4f}"
    assert all("not run" in row.values() for row in rows_of(tables["in_distribution"], "CIFAR-10"))


def test_a_damaged_cell_counts_as_missing(tmp_path: Path) -> None:
    path = write_cell(tmp_path, "in_distribution", "cifar10", "vgg16", 0)
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.warns(UserWarning, match="counts as missing"):
        assert read_measured(tmp_path) == ()


def test_recipes_that_share_a_network_count_it_once(tmp_path: Path) -> None:
    for recipe in ("in_distribution", "low_data"):
        write_cell(tmp_path, recipe, "cifar10", "vgg16", 0, sets=["clean"])
    measured = read_measured(tmp_path)
    assert len(measured) == 2
    assert len(trained(measured, "cifar10", "vgg16")) == 1


# Words and numbers


def test_numbers_as_text() -> None:
    assert number(-0.62945, 3) == "−0.629"
    assert number(-0.00001) == "0.0000"
    assert number(math.nan) == "–"
    assert signed(1.25) == "+1.2"
    assert signed(-0.01) == "0.0"
    assert with_deviation(Spread(0.5, 0.01, 3), 2) == "0.50 ± 0.01"
    assert [p_value(p) for p in (0.0123, 2e-5, 1e-12, math.nan)] == ["0.012", "2.0e-05", "< 1e-9", "–"]


def test_spread_skips_what_is_missing() -> None:
    assert spread([1.0, math.nan, 3.0]) == Spread(2.0, math.sqrt(2), 2)
    assert math.isnan(spread([math.nan]).mean)


def test_improvement_is_positive_for_better() -> None:
    assert improvement("accuracy", 0.6, 0.7) == pytest.approx(0.1)
    assert improvement("ece", 0.6, 0.7) == pytest.approx(-0.1)


def test_methods_in_words() -> None:
    assert method_title("lates_shift_1") == "LATES, shifted views (default)"
    assert method_title("lates_jitter_0.5") == "LATES, jittered views, 0.5 %"
    assert method_title("lates_none_all") == "LATES, no views, no budget"
    assert method_title("something_new") == "something_new"
