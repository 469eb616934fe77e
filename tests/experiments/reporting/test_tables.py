"""Tables from invented results: the numbers in them, and what is missing."""

import json
import math
from pathlib import Path
from statistics import mean

import pytest

from experiments.data.corruptions import NAMES
from experiments.recipes import ensemble_cell
from experiments.reporting.names import in_words
from experiments.reporting.summaries import Spread, mean_over_networks, read_measured, spread, trained
from experiments.reporting.tables import make_tables
from experiments.reporting.tables.costs import timing_table
from experiments.reporting.tables.factorial import factorial_tables
from experiments.reporting.tables.markdown import markdown, number, p_value, signed, with_deviation
from experiments.reporting.tables.scores import baselines, imagenet, methods_table
from experiments.reporting.tables.text_and_tables import problem_table
from experiments.runner.results import CellResults, read_results, write_results
from tests.experiments.reporting.synthetic import column, read_column, rows_of, write_cell

PAPER = "paper's recipe"
ROOT = Path(__file__).parents[3]


def texts(results: Path) -> dict[str, str]:
    return {name: markdown(table) for name, table in make_tables(results)[1].items()}


# The numbers


def test_scores_of_a_network_are_means_over_its_seeds(results: Path, tables: dict[str, str]) -> None:
    where = (PAPER, "CIFAR-100", "ResNet18")
    (row,) = rows_of(tables["scores"], *where, "clean", "LATES, shifted views")
    cells = [f"in_distribution-cifar100-resnet18-s{seed}" for seed in range(3)]
    values = [column(results, cell, "lates_shift_1", "nll")["clean"] for cell in cells]
    assert (row["NLL"], row["seeds"]) == (f"{mean(values):.4f}", "3")
    (row,) = rows_of(tables["scores"], PAPER, "CIFAR-100", "WRN-28-10", "corrupted", "LATES, no views")
    by_set = column(results, "in_distribution-cifar100-wide_resnet_28_10-s0", "lates_none_1", "ece")
    assert row["ECE"] == f"{mean(value for name, value in by_set.items() if name != 'clean'):.4f}"


def test_methods_are_those_run_on_every_network(tmp_path: Path) -> None:
    write_cell(tmp_path, "in_distribution", "cifar10", "vgg16", 0)
    path = write_cell(tmp_path, "in_distribution", "cifar10", "resnet18", 0)
    found = read_results(path.with_suffix(".json"))
    kept = {key: metrics for key, metrics in found.scores.items() if key[0] != "sms"}
    write_results(tmp_path, CellResults(found.cell, kept, found.facts, found.blocks))
    text = markdown(methods_table(read_measured(tmp_path)))
    assert not rows_of(text, PAPER, "CIFAR-10", "structured matrix scaling")
    assert rows_of(text, PAPER, "CIFAR-10", "temperature")


def test_ensembles_are_means_of_their_own_files_and_count_as_no_network(tmp_path: Path) -> None:
    path, _ = (write_cell(tmp_path, "strong", "cifar10", "vgg16", seed) for seed in range(2))
    single = read_results(path.with_suffix(".json"))
    scores = {("ensemble", name): metrics for (method, name), metrics in single.scores.items() if method == "sms"}
    write_results(tmp_path, CellResults(ensemble_cell("strong", "cifar10", "vgg16"), scores, {"seeds": [0, 1]}))
    measured = read_measured(tmp_path)
    assert len(trained(measured, "cifar10", "vgg16", training="strong")) == 2
    expected = read_column(path, "sms", "nll")["clean"]
    assert mean_over_networks(measured, "cifar10", "ensemble", "nll", training="strong") == pytest.approx(expected)
    (row,) = rows_of(markdown(methods_table(measured)), "strong recipe", "CIFAR-10", "ensemble of the seeds")
    assert row["NLL"] == f"{expected:.4f}"


def test_imagenet_stands_below_the_papers_rows_once_it_was_run(tmp_path: Path) -> None:
    not_run = [row for row in imagenet(()).rows if row[2] != "paper"]
    assert not_run == [(name, "not run", *["–"] * 9) for name in ("ImageNet", "Tiny-ImageNet")]
    path = write_cell(tmp_path, "imagenet", "imagenet", "resnet50", 0, sets=["clean"])
    paper, ours = (
        [row for row in rows_of(markdown(imagenet(read_measured(tmp_path)))) if row["source"] == source]
        for source in ("paper", "ours")
    )
    assert [row["NLL"] for row in paper] == ["1.156", "1.039"]
    assert len(ours) == 6
    write_cell(tmp_path, "tiny_imagenet", "tiny_imagenet", "resnet50", 0, sets=["clean"])
    assert [row[0] for row in imagenet(read_measured(tmp_path)).rows] == ["ImageNet"] * 8 + ["Tiny-ImageNet"] * 6
    (row,) = (row for row in ours if row["method"] == "temperature, SGD in beta")
    assert row["AUC (Keras)"] == f"{read_column(path, 'temperature_sgd', 'auc_keras')['clean']:.4f}"


def test_wide_resnet_stands_below_the_published_rows_over_their_types_at_our_severities(tmp_path: Path) -> None:
    sets = ["clean", *(f"{name}-{severity}" for name in NAMES for severity in (1, 3, 5))]
    where = (tmp_path, "strong_wide", "cifar100", "wide_resnet_28_10", 0)
    values = read_column(write_cell(*where, sets=sets, severities=[1, 3, 5]), "lates_last", "nll")
    rows = {row["method"]: row for row in rows_of(markdown(baselines(read_measured(tmp_path), "cifar100")))}
    assert (rows["SNGP, ensemble of 4"]["NLL, corrupted"], rows["SNGP, ensemble of 4"]["source"]) == (
        "1.95",
        "published",
    )
    kept = [values[name] for name in sets[1:] if not name.startswith(("snow", "motion_blur"))]
    assert len(kept) == 17 * 3
    assert rows["LATES (default)"]["NLL, corrupted"] == f"{mean(kept):.3f}"
    assert rows["best single layer, robust views"]["NLL"] == "–"


def test_the_papers_numbers_of_mc_dropout_stand_beside_ours(results: Path, tables: dict[str, str]) -> None:
    rows = rows_of(tables["mc_dropout"], "CIFAR-10", "0.2")
    assert [row["source"] for row in rows] == ["paper"] * 2 + ["ours"] * 8
    assert (rows[1]["ECE"], rows[1]["floor"], rows[1]["accuracy"]) == ("0.0045", "–", "0.953")
    (lates,) = (row for row in rows if row["method"] == "+ LATES, no views")
    ours = column(results, "mc_dropout-cifar10-wide_resnet_28_10-s0-d0.2", "mcd_lates", "brier_paper")["clean"]
    assert (lates["Brier (paper's)"], lates["floor"]) == (f"−{abs(ours):.4f}", "0.0060")
    missing = rows_of(tables["mc_dropout"], "CIFAR-10", "0.1")
    assert [(row["method"], row["source"]) for row in missing[2:]] == [("not run", "–")]


def test_cost_is_the_most_that_a_method_adds_to_a_network(tables: dict[str, str]) -> None:
    (row,) = rows_of(tables["cost"], "LATES, no views")
    assert [row[name] for name in ("parameters, at most, %", "FLOPs, at most, %")] == ["0.980", "0.040"]


def test_time_is_that_of_one_calibration_beside_all_epochs(tmp_path: Path) -> None:
    timed = {"recipe_epochs": 200, "epochs": [20.5, 0.5, 0.4, 0.9], "calibrations": [2.0, 3.0, 2.4]}
    (tmp_path / "cifar100-vgg16").mkdir()
    (tmp_path / "cifar100-vgg16" / "timing.json").write_text(json.dumps(timed))
    (tmp_path / "views.csv").write_text(
        'part,VGG16\n"read, shift, two passes",1\n"read, robust, four passes",2 to 4\n'
        '"train probes, shift, two passes",1\n"train probes, robust, four passes",2\nbudget and weights,1\n'
    )
    (row,) = rows_of(markdown(timing_table(tmp_path)), "VGG16, CIFAR-100")
    assert row["200 epochs, s"] == "120", "the first epoch and 199 of the median"
    assert (row["calibrate, s"], row["its spread, s"], row["share, %"]) == ("2.40", "2.00 to 3.00", "2.0")
    assert (row["default, %"], row["default, 100 epochs, %"]) == ("4.0", f"{100 * 2.4 * 2 / (20.5 + 99 * 0.5):.1f}")


# Reports of their own files


def test_steps_and_pairs_of_the_factorial_agree_with_its_rows() -> None:
    file = json.loads((ROOT / "results" / "paper_recipe" / "cifar100-vgg16-paper.json").read_text())
    steps, _, pairs = map(markdown, factorial_tables(ROOT / "results" / "paper_recipe"))
    scales = [sorted((list(map(row.get, ("pooling", "probes", "weights", "cap"))), row["nll"]) for row in file["rows"]
                     if row["scale"] == scale) for scale in ("raw", "standardised")]  # fmt: skip
    assert len(scales[0]) == 40
    change = mean(after[1] - before[1] for before, after in zip(*scales, strict=True))
    (row,) = rows_of(steps, "features: raw → standardised")
    assert row["VGG16, CIFAR-100"] == f"{change:.3f}".replace("-", "−")
    (row,) = rows_of(pairs, "global average, standardised, SGD")
    wanted = {"pooling": "global average", "scale": "standardised", "probes": "SGD", "cap": "capped"}
    (exact,) = (each["nll"] for each in file["rows"] if each.items() >= {**wanted, "weights": "exact"}.items())
    assert row["VGG16, CIFAR-100"].endswith(f" / {exact:.3f}")


def test_views_for_text_are_shown_with_their_deviation_over_seeds() -> None:
    folder = ROOT / "results" / "text_and_tables"
    value, deviation = json.loads((folder / "trec.json").read_text())["test"]["mask .3"]["typos"]["nll"]
    (row,) = rows_of(markdown(problem_table(folder, "trec", "")), "typos", "NLL")
    assert row["mask .3"] == f"{value:.3f} ± {deviation:.3f}"


# What is missing


def test_without_results_no_table_holds_a_measured_number(tmp_path: Path, tables: dict[str, str]) -> None:
    empty = texts(tmp_path / "nothing")
    assert empty.keys() == tables.keys()
    invented = [
        f"{name}: {cell}"
        for name, text in empty.items()
        for row in rows_of(text)
        if row.get("source") not in ("paper", "published") and "paper" not in next(iter(row.values()))
        for title, cell in row.items()
        if any(digit.isdigit() for digit in cell)
        and title not in ("data set", "network", "dropout", "budget", "test sets", "method")
        and "paper" not in title
        and cell != "0"
    ]
    assert invented == []


def test_a_mean_over_a_part_of_the_sets_is_missing(tmp_path: Path) -> None:
    write_cell(tmp_path, "in_distribution", "cifar10", "vgg16", 0, sets=["clean", "fog-1", "fog-2"])
    (row,) = rows_of(markdown(methods_table(read_measured(tmp_path))), PAPER, "CIFAR-10", "temperature")
    assert row["NLL, corrupted"] == "–"
    assert row["NLL"] != "–"


def test_results_of_the_recipe_smoke_enter_no_table(tmp_path: Path) -> None:
    write_cell(tmp_path, "smoke", "cifar10", "resnet18", 0)
    assert read_measured(tmp_path) == ()


def test_a_damaged_cell_counts_as_missing(tmp_path: Path) -> None:
    path = write_cell(tmp_path, "in_distribution", "cifar10", "vgg16", 0)
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.warns(UserWarning, match="counts as missing"):
        assert read_measured(tmp_path) == ()


def test_recipes_that_share_a_network_count_it_once_and_strong_networks_apart(tmp_path: Path) -> None:
    for recipe in ("in_distribution", "low_data", "strong"):
        write_cell(tmp_path, recipe, "cifar10", "vgg16", 0, sets=["clean"])
    measured = read_measured(tmp_path)
    assert len(measured) == 3
    assert len(trained(measured, "cifar10", "vgg16")) == 1
    assert [each.cell.recipe for each in trained(measured, "cifar10", "vgg16", training="strong")] == ["strong"]


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
    assert in_words("lates_shift_1") == "LATES, shifted views"
    assert in_words("lates_jitter_0.5") == "LATES, jittered views, 0.5 %"
    assert in_words("lates_none_all") == "LATES, no views, no budget"
    assert in_words("lates_robust_2") == "LATES, robust views, 2 %"
    assert in_words("something_new") == "something_new"
