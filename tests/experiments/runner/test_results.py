"""Results are read back as they were written, and a cell counts as finished only if both of its files are whole."""

import hashlib
import json
import math
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.data.files import DamagedError, format_json, parse_json
from experiments.evaluation.measuring import METRICS
from experiments.recipes import Cell
from experiments.runner.results import (
    COLUMNS,
    CellResults,
    describe_differences,
    find_results,
    is_finished,
    read_results,
    write_results,
)

CELL = Cell("in_distribution", "cifar100", "resnet18", 0)
RECIPE = {"training": {"epochs": 200, "milestones": (0.3, 0.6)}, "corruptions": ("fog",), "probe_images": None}


def results_of(cell: Cell = CELL, value: float = 0.125) -> CellResults:
    places = [(method, name) for method in ("network", "lates") for name in ("clean", "fog-3")]
    scores = {place: dict.fromkeys(METRICS, value) for place in places}
    facts = {"commit": "abc", "recipe": RECIPE, "methods": {"network": {"weights": {"head": 1.0}}}}
    return CellResults(cell, scores, facts)


def test_names_hold_only_what_differs_from_the_default() -> None:
    assert CELL.name == "in_distribution-cifar100-resnet18-s0"
    assert replace(CELL, recipe="low_data", train_fraction=0.25).name == "low_data-cifar100-resnet18-s0-t0.25"
    varied = replace(CELL, recipe="holdout_size", train_fraction=0.98, holdout_fraction=0.02, dropout=0.2)
    assert varied.name == "holdout_size-cifar100-resnet18-s0-t0.98-h0.02-d0.2"


def test_the_csv_is_the_schemas(tmp_path: Path) -> None:
    path = write_results(tmp_path, results_of())
    assert path == tmp_path / "in_distribution" / "in_distribution-cifar100-resnet18-s0.json"
    header, first, *_ = path.with_suffix(".csv").read_text().splitlines()
    assert header == (
        "method,set,ece,ece_floor,nll,brier,brier_paper,accuracy,auc,auc_keras,classwise_ece,aurc,auc_best_temperature,"
        "ece_smooth"
    )
    assert first == "network,clean" + ",0.125" * 12
    assert len(COLUMNS) == 14


def test_a_metric_that_came_later_than_the_file_is_missing(tmp_path: Path) -> None:
    path = write_results(tmp_path, results_of())
    table = path.with_suffix(".csv").read_text().replace(",ece_smooth", "").replace(",0.125\n", "\n")
    path.with_suffix(".csv").write_text(table)
    facts = parse_json(path.read_bytes()) | {"csv_sha256": hashlib.sha256(table.encode()).hexdigest()}
    path.write_bytes(format_json(facts))
    metrics = read_results(path).scores["network", "clean"]
    assert tuple(metrics) == METRICS
    assert math.isnan(metrics["ece_smooth"])
    assert metrics["auc_best_temperature"] == 0.125


@settings(max_examples=30, deadline=None)
@given(values=st.lists(st.floats(-1e3, 1e3) | st.just(math.nan) | st.just(math.inf), min_size=12, max_size=12))
def test_numbers_survive_to_eight_digits(tmp_path_factory: pytest.TempPathFactory, values: list[float]) -> None:
    root = tmp_path_factory.mktemp("results")
    scores = {("temperature", "fog-5"): dict(zip(METRICS, values, strict=True))}
    ((place, found),) = read_results(write_results(root, CellResults(CELL, scores, {}))).scores.items()
    assert place == ("temperature", "fog-5")
    assert list(found.values()) == pytest.approx(values, rel=1e-7, nan_ok=True)


def test_facts_and_scores_survive(tmp_path: Path) -> None:
    written = results_of()
    read = read_results(write_results(tmp_path, written))
    assert (read.cell, read.scores) == (written.cell, written.scores)
    assert {name: read.facts[name] for name in written.facts} == json.loads(json.dumps(written.facts))
    assert read.facts["cell"] == asdict(CELL)


@pytest.mark.filterwarnings("ignore:.*cannot be used")
def test_a_cell_is_finished_once_both_files_are_there(tmp_path: Path) -> None:
    assert not is_finished(tmp_path, CELL, RECIPE)
    path = write_results(tmp_path, results_of())
    assert is_finished(tmp_path, CELL, RECIPE)
    assert not is_finished(tmp_path, replace(CELL, seed=1), RECIPE)
    for part in (path, path.with_suffix(".csv")):
        content = part.read_bytes()
        part.unlink()
        assert not is_finished(tmp_path, CELL, RECIPE)
        part.write_bytes(content)
    assert is_finished(tmp_path, CELL, RECIPE)


def test_results_of_another_recipe_do_not_count_and_say_why(tmp_path: Path) -> None:
    other = RECIPE | {"corruptions": ("fog", "snow"), "probe_images": 100}
    assert describe_differences(tmp_path, CELL, other) == ""
    write_results(tmp_path, results_of())
    assert describe_differences(tmp_path, CELL, RECIPE) == ""
    assert is_finished(tmp_path, CELL, RECIPE)
    assert not is_finished(tmp_path, CELL, other)
    words = "corruptions was ['fog'], is now ['fog', 'snow']; probe_images was None, is now 100"
    assert describe_differences(tmp_path, CELL, other) == words


def test_results_from_before_a_field_of_the_hyperparameters_count_while_it_has_its_default(tmp_path: Path) -> None:
    write_results(tmp_path, results_of())
    for optimiser, counts in (("sgd", True), ("adamw", False)):
        later = RECIPE | {"training": {**RECIPE["training"], "optimiser": optimiser}}
        assert is_finished(tmp_path, CELL, later) == counts
    assert describe_differences(tmp_path, CELL, later).endswith("'optimiser': 'adamw'}")


def test_results_that_name_no_recipe_do_not_count(tmp_path: Path) -> None:
    write_results(tmp_path, replace(results_of(), facts={}))
    assert not is_finished(tmp_path, CELL, RECIPE)
    assert describe_differences(tmp_path, CELL, RECIPE).startswith("training was None, is now {")


def test_a_changed_number_is_noticed_and_said(tmp_path: Path) -> None:
    path = write_results(tmp_path, results_of())
    path.write_bytes(path.read_bytes().replace(b'"head": 1.0', b'"head": 1.1'))
    with pytest.raises(DamagedError, match="not what was written, by its digest"):
        read_results(path)
    table = write_results(tmp_path, results_of()).with_suffix(".csv")
    table.write_text(table.read_text().replace("0.125", "0.126", 1))
    with pytest.raises(DamagedError, match=r"s0\.json .*resnet18-s0\.csv is not the file that .* Run the recipe again"):
        read_results(path)


@pytest.mark.parametrize(
    ("suffix", "content", "words"),
    [
        (".json", b"[" * 100_000, "no JSON"),
        (".json", b"[]", "it holds a list"),
        (".csv", b"", r"s0\.csv is not the file that it was written with"),
    ],
)
def test_a_damaged_file_is_named_and_the_cell_done_again(tmp_path: Path, suffix: str, content: bytes, words: str) -> None:
    path = write_results(tmp_path, results_of())
    path.with_suffix(suffix).write_bytes(content)
    with pytest.warns(UserWarning, match=rf"s0\.json cannot be used: .*{words}.*Run the recipe again"):
        assert not is_finished(tmp_path, CELL, RECIPE)
    assert describe_differences(tmp_path, CELL, RECIPE) == ""


def test_results_of_another_cell_do_not_count(tmp_path: Path) -> None:
    path = write_results(tmp_path, results_of())
    with pytest.raises(DamagedError, match="holds the results of in_distribution-cifar100-resnet18-s0"):
        read_results(path.rename(path.with_stem(path.stem.replace("s0", "s1"))))


def test_everything_whole_is_found_and_the_damaged_named(tmp_path: Path) -> None:
    cells = [CELL, replace(CELL, seed=1), replace(CELL, recipe="low_data", train_fraction=0.5)]
    paths = [write_results(tmp_path, results_of(cell)) for cell in cells]
    (tmp_path / "search").mkdir()
    (tmp_path / "search" / "cifar100-resnet18-s0.json").write_text("{}")
    assert [found.cell for found in find_results(tmp_path)] == cells
    paths[1].write_bytes(paths[1].read_bytes()[:40])
    with pytest.warns(UserWarning, match=r"resnet18-s1\.json cannot be used.*counts as missing"):
        assert [found.cell for found in find_results(tmp_path)] == [cells[0], cells[2]]
    assert find_results(tmp_path / "nothing") == []


def test_a_number_that_json_lacks_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON"):
        write_results(tmp_path, replace(results_of(), facts={"seconds": math.nan}))
    assert not list(tmp_path.rglob("*.csv"))
