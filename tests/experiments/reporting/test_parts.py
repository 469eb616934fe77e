"""Tables of networks trained on parts of the training split; one trained again."""

from pathlib import Path
from statistics import mean

import pytest

from experiments.data.corruptions import NAMES
from experiments.reporting.prose import fill
from experiments.reporting.summaries import read_measured
from experiments.reporting.tables import make_tables
from experiments.reporting.tables.markdown import markdown, signed
from experiments.reporting.tables.scores import methods_table
from tests.experiments.reporting.synthetic import column, read_column, rows_of, write_cell


@pytest.mark.parametrize("metric", ["nll", "accuracy"])
def test_sizes_stand_beside_one_another_and_ninety_percent_is_the_plain_network(results: Path, metric: str) -> None:
    places = {
        "25 % to train": "low_data-cifar100-resnet18-s0-t0.25",
        "98 % to train": "holdout_size-cifar100-resnet18-s0-t0.98-h0.02",
        "90 % to train": "in_distribution-cifar100-resnet18-s0",
    }
    field = ",".join(f"cifar100/resnet18#0@{share}" for share in ("0.25", "0.98", "0.9"))
    (row,) = rows_of(fill(f"{{{{scores {field} {metric}:clean lates_none_1}}}}", read_measured(results), {}))
    values = {title: column(results, cell, "lates_none_1", metric)["clean"] for title, cell in places.items()}
    assert row == {"method": "LATES, no views", **{title: f"{value:.3f}" for title, value in values.items()}}


def test_released_networks_are_averaged_over_the_severities_of_their_recipe(tmp_path: Path) -> None:
    where, shares = (tmp_path, "public", "cifar10", "resnet32", 0), {"train_fraction": 1.0, "holdout_fraction": 0.0}
    sets = ["clean", *(f"{name}-3" for name in NAMES)]
    values = read_column(write_cell(*where, **shares, sets=sets, severities=[3]), "temperature", "nll")
    table = markdown(methods_table(read_measured(tmp_path)))
    (row,) = rows_of(table, "public networks (crops)", "CIFAR-10", "temperature")
    assert row["NLL, corrupted"] == f"{mean(values[name] for name in sets[1:]):.4f}"


def test_the_small_vit_trained_by_its_own_recipe_takes_the_place_of_the_other(tmp_path: Path) -> None:
    paths = [write_cell(tmp_path, recipe, "cifar100", "small_vit", 0) for recipe in ("strong", "strong_vit")]
    own = read_column(paths[1], "sms", "nll")["clean"]
    assert fill("{{mean nll clean strong:cifar100/small_vit sms}}", read_measured(tmp_path), {}) == f"{own:.3f}"


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
