"""Tables of networks trained on parts of the training split; one trained again."""

from pathlib import Path
from statistics import mean

from experiments.data.corruptions import NAMES
from experiments.reporting.prose import fill
from experiments.reporting.summaries import of_each_part, read_measured
from experiments.reporting.tables import make_tables
from experiments.reporting.tables.markdown import markdown, signed
from experiments.reporting.tables.scores import methods_table
from experiments.reporting.tables.variations import by_part
from tests.experiments.reporting.synthetic import column, read_column, rows_of, write_cell

BOTH = ("CIFAR-100", "CIFAR-10")
PLAIN_CELL = "in_distribution-cifar100-resnet18-s0"


def test_low_data_takes_the_plain_network_for_ninety_percent(results: Path, tables: dict[str, str]) -> None:
    rows = rows_of(tables["low_data"], "CIFAR-100", "ResNet18", "LATES, no views")
    assert [(row["train"], row["seeds"]) for row in rows] == [("25 %", "1"), ("50 %", "1"), ("90 %", "1")]
    cells = ["low_data-cifar100-resnet18-s0-t0.25", "low_data-cifar100-resnet18-s0-t0.5", PLAIN_CELL]
    values = [column(results, cell, "lates_none_1", "nll")["clean"] for cell in cells]
    assert [row["NLL"] for row in rows] == [f"{value:.4f}" for value in values], "of seed 0 alone, as the others"


def test_a_trend_is_of_the_seeds_that_every_part_has(tmp_path: Path) -> None:
    for seed in range(3):
        write_cell(tmp_path, "out_of_distribution", "cifar100", "resnet18", seed, sets=["clean", "fog-1"])
    for fraction, seed in ((0.25, 0), (0.25, 2), (0.5, 2), (0.5, 3)):
        write_cell(tmp_path, "low_data", "cifar100", "resnet18", seed, train_fraction=fraction, sets=["clean"])
    parts = of_each_part(read_measured(tmp_path), "cifar100", "resnet18", "low_data")
    assert [[each.cell.seed for each in cells] for cells in parts.values()] == [[2], [2], [2]]
    assert of_each_part(read_measured(tmp_path), "cifar100", "resnet18", "holdout_size") == {}
    assert parts[0.9, 0.1][0].cell.recipe == "out_of_distribution"
    write_cell(tmp_path, "low_data", "cifar100", "resnet18", 2, sets=["clean"])
    parts = of_each_part(read_measured(tmp_path), "cifar100", "resnet18", "low_data")
    assert [cells[0].cell.recipe for cells in parts.values()] == ["low_data"] * 3, "its own, though it has fewer sets"


def test_parts_without_a_common_seed_show_no_trend(tmp_path: Path) -> None:
    write_cell(tmp_path, "in_distribution", "cifar100", "resnet18", 0, sets=["clean"])
    write_cell(tmp_path, "low_data", "cifar100", "resnet18", 1, train_fraction=0.25, sets=["clean"])
    assert of_each_part(read_measured(tmp_path), "cifar100", "resnet18", "low_data") == {}
    assert [row["network"] for row in rows_of(markdown(by_part(read_measured(tmp_path), "low_data")), "CIFAR-100")] == [
        "all"
    ]


def test_temperature_scaling_stands_below_itself_by_size_of_the_holdout(results: Path, tables: dict[str, str]) -> None:
    """Does it gain from a smaller hold-out, and more training data?"""
    rows = rows_of(tables["holdout_size"], "CIFAR-100", "ResNet18", "temperature")
    cells = [f"holdout_size-cifar100-resnet18-s0-t{1 - held:g}-h{held:g}" for held in (0.02, 0.04, 0.06, 0.08)]
    for metric, title in (("ece", "ECE"), ("nll", "NLL"), ("accuracy", "accuracy")):
        values = [column(results, cell, "temperature", metric)["clean"] for cell in (*cells, PLAIN_CELL)]
        assert [row[title] for row in rows] == [f"{value:.4f}" for value in values]
    assert {row["NLL, gain %"] for row in rows} == {"–"}


def test_networks_whose_split_was_not_varied_are_one_line(tables: dict[str, str]) -> None:
    for name in ("low_data", "holdout_size"):
        networks = [list(dict.fromkeys(row["network"] for row in rows_of(tables[name], d))) for d in BOTH]
        assert networks == [["ResNet18", "all others"], ["all"]]
        assert [rows_of(tables[name], d)[-1]["method"] for d in BOTH] == ["not run"] * 2


def test_released_networks_are_averaged_over_the_severities_of_their_recipe(tmp_path: Path) -> None:
    where, shares = (tmp_path, "public", "cifar10", "resnet32", 0), {"train_fraction": 1.0, "holdout_fraction": 0.0}
    sets = ["clean", *(f"{name}-3" for name in NAMES)]
    values = read_column(write_cell(*where, **shares, sets=sets, severities=[3]), "temperature", "nll")
    table = markdown(methods_table(read_measured(tmp_path)))
    (row,) = rows_of(table, "public networks (crops)", "CIFAR-10", "temperature")
    assert row["NLL, corrupted"] == f"{mean(values[name] for name in sets[1:]):.4f}"


def test_natural_shift_is_compared_where_it_was_measured(tmp_path: Path) -> None:
    shares = {"train_fraction": 1.0, "holdout_fraction": 0.0}
    paths = [
        write_cell(tmp_path, "public", "cifar10", network, 0, **shares, sets=["clean", "natural"], severities=[3])
        for network in ("resnet32", "resnet56")
    ]
    field = "{{gains public:cifar10 nll:natural lates_last temperature}}"
    (row,) = rows_of(fill(field, read_measured(tmp_path), {}))
    ours, theirs = (
        mean(read_column(path, method, "nll")["natural"] for path in paths) for method in ("lates_last", "temperature")
    )
    assert row["gain"] == signed(theirs - ours, 4)
    assert row["bootstrap, 95 %"] != "–"
    assert fill("{{mean nll natural public:cifar10 sms}}", (), {}) == "not run"


def test_a_network_trained_again_counts_in_no_table_but_that_of_all_runs(tmp_path: Path) -> None:
    write_cell(tmp_path, "in_distribution", "cifar100", "vgg16", 0)
    before, _ = (make_tables(tmp_path)[1], write_cell(tmp_path, "again", "cifar100", "vgg16", 0))
    after = make_tables(tmp_path)[1]
    assert {name for name, table in after.items() if table != before[name]} == {"runs"}
    second = read_column(tmp_path / "again" / "again-cifar100-vgg16-s0.csv", "sms", "nll")["clean"]
    fields = [f"{{{{mean nll clean {place} sms}}}}" for place in ("again:cifar100/vgg16", "cifar100/vgg16#1")]
    assert [fill(field, read_measured(tmp_path), {}) for field in fields] == [f"{second:.3f}", "not run"]
