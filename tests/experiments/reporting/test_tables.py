"""Tables from invented results: the numbers in them, and what is missing."""

import json
import math
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev

import pytest

from experiments.data.corruptions import LIKE_JITTER
from experiments.reporting.names import method_title
from experiments.reporting.summaries import Spread, read_measured, spread, trained
from experiments.reporting.tables import render_tables
from experiments.reporting.tables.costs import timing_table
from experiments.reporting.tables.markdown import markdown, number, p_value, signed, with_deviation
from experiments.reporting.tables.scores import against_shift, imagenet
from experiments.runner.results import read_results, write_results
from tests.experiments.reporting.synthetic import SEEDS_RUN, column, read_column, rows_of, write_cell


@pytest.fixture(scope="module")
def empty_tables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return render_tables(tmp_path_factory.mktemp("nothing") / "results")


# The numbers


def test_clean_scores_are_the_files_mean_and_deviation(results: Path, tables: dict[str, str]) -> None:
    (row,) = rows_of(tables["in_distribution"], "CIFAR-100", "ResNet18", "LATES, shifted views")
    cells = [f"in_distribution-cifar100-resnet18-s{seed}" for seed in range(3)]
    values = [column(results, cell, "lates_shift_1", "nll")["clean"] for cell in cells]
    assert row["NLL"] == f"{mean(values):.4f} ± {stdev(values):.4f}"
    assert row["seeds"] == "3"
    assert row["floor"] == "0.0060 ± 0.0000"


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


def test_results_of_the_recipe_smoke_enter_no_table(tmp_path: Path) -> None:
    write_cell(tmp_path, "smoke", "cifar10", "resnet18", 0)
    assert render_tables(tmp_path) == render_tables(tmp_path / "nothing")


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


def test_methods_in_words() -> None:
    assert method_title("lates_shift_1") == "LATES, shifted views"
    assert method_title("lates_jitter_0.5") == "LATES, jittered views, 0.5 %"
    assert method_title("lates_none_all") == "LATES, no views, no budget"
    assert method_title("something_new") == "something_new"
