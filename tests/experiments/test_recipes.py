"""Recipes are the paper's grids, and every cell of them can be named, trained and measured."""

import pytest

from experiments.corruptions import NAMES
from experiments.data import CIFAR
from experiments.networks import NETWORKS
from experiments.provenance import recipe_of
from experiments.recipes import RECIPES, Experiment
from experiments.schedules import MC_DROPOUT, PAPER_CIFAR, PAPER_IMAGENET


@pytest.mark.parametrize(
    ("name", "cells", "sets"),
    [
        ("in_distribution", 5 * 2 * 5, 0),
        ("out_of_distribution", 5 * 2 * 5, 95),
        ("low_data", 3 * 5 * 2 * 5, 0),
        ("holdout_size", 5 * 5 * 2 * 5, 0),
        ("mc_dropout", 2 * 2 * 5, 0),
        ("again", 1, 95),
        ("imagenet", 5, 95),
        ("smoke", 4, 18),
    ],
)
def test_grids_have_the_papers_size(name: str, cells: int, sets: int) -> None:
    experiment = RECIPES[name]
    assert len(experiment.cells()) == cells
    assert len(experiment.corruptions) * len(experiment.severities) == sets


@pytest.mark.parametrize("experiment", RECIPES.values(), ids=lambda experiment: experiment.name)
def test_every_cell_can_be_named_trained_and_split(experiment: Experiment) -> None:
    cells = experiment.cells()
    assert len({cell.name for cell in cells}) == len(cells)
    for cell in cells:
        assert cell.network in NETWORKS
        assert cell.dataset in (*CIFAR, "imagenet", "cifar10_600")
        assert cell.train_fraction + cell.holdout_fraction <= 1 + 1e-9
    assert set(experiment.corruptions) <= set(NAMES)
    assert experiment.command == f"python -m experiments run {experiment.name}"
    assert experiment.cost
    assert experiment.expected


def test_cells_come_seed_by_seed() -> None:
    seeds = [cell.seed for cell in RECIPES["low_data"].cells()]
    assert seeds == sorted(seeds)
    assert {cell.seed for cell in RECIPES["low_data"].cells([7, 9])} == {7, 9}


def test_the_papers_headline_comes_first_on_both_data_sets() -> None:
    order = [(cell.dropout, cell.dataset) for cell in RECIPES["mc_dropout"].cells([0])]
    assert order == [(0.2, "cifar10"), (0.2, "cifar100"), (0.1, "cifar10"), (0.1, "cifar100")]


def test_what_is_trained_again_is_trained_alike_and_shared_with_none() -> None:
    (again,) = RECIPES["again"].cells()
    (first,) = (cell for cell in RECIPES["out_of_distribution"].cells() if cell.trained_alike == again.trained_alike)
    others = [cell for name, experiment in RECIPES.items() if name != "again" for cell in experiment.cells()]
    assert again.training not in {cell.training for cell in others}
    assert again.name == "again-cifar100-vgg16-s0"
    assert recipe_of(RECIPES["again"], again) == recipe_of(RECIPES["out_of_distribution"], first)


def test_networks_are_trained_as_the_paper_says() -> None:
    recipes = {
        name: {experiment.training_of(cell) for cell in experiment.cells()} for name, experiment in RECIPES.items()
    }
    assert recipes["in_distribution"] == recipes["low_data"] == recipes["holdout_size"] == {PAPER_CIFAR}
    assert recipes["mc_dropout"] == {MC_DROPOUT}
    assert recipes["imagenet"] == {PAPER_IMAGENET}


def test_the_holdout_grid_trains_on_the_complement() -> None:
    assert all(t + h == pytest.approx(1) for t, h in RECIPES["holdout_size"].fractions)


def test_networks_trained_alike_are_shared() -> None:
    first = {cell.training for cell in RECIPES["in_distribution"].cells()}
    assert first <= {cell.training for cell in RECIPES["low_data"].cells()}
    assert first <= {cell.training for cell in RECIPES["holdout_size"].cells()}


def test_the_smoke_recipe_needs_no_photographs() -> None:
    assert "frost" not in RECIPES["smoke"].corruptions
