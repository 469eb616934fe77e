"""Recipes are the paper's grids, and every cell of them can be named, trained and measured."""

import pytest

from experiments.data.corruptions import BAR_NAMES, NAMES
from experiments.data.datasets import DATASETS
from experiments.recipes import RECIPES, Recipe
from experiments.runner.results import conditions_of
from experiments.training.hyperparameters import MC_DROPOUT, PAPER_CIFAR, PAPER_IMAGENET
from experiments.training.networks import NETWORKS


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
        ("tiny_imagenet", 1, 87),
        ("strong", 5 * 2 * 3, 87),
        ("strong_vit", 2 * 3, 87),
        ("strong_wide", 2 * 3, 87),
        ("smoke", 4, 18),
    ],
)
def test_grids_have_the_papers_size(name: str, cells: int, sets: int) -> None:
    recipe = RECIPES[name]
    assert len(recipe.cells()) == cells
    assert len(recipe.corruptions) * len(recipe.severities) == sets


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=lambda recipe: recipe.name)
def test_every_cell_can_be_named_trained_and_split(recipe: Recipe) -> None:
    cells = recipe.cells()
    assert len({cell.name for cell in cells}) == len(cells)
    for cell in cells:
        assert cell.network in NETWORKS
        assert cell.dataset in DATASETS
        assert cell.train_fraction + cell.holdout_fraction <= 1 + 1e-9
    assert set(recipe.corruptions) <= {*NAMES, *BAR_NAMES}


def test_what_is_trained_again_is_trained_alike_and_shared_with_none() -> None:
    (again,) = RECIPES["again"].cells()
    (first,) = (cell for cell in RECIPES["out_of_distribution"].cells() if cell.trained_alike == again.trained_alike)
    others = [cell for name, recipe in RECIPES.items() if name != "again" for cell in recipe.cells()]
    by_paper = {cell.training for cell in RECIPES["out_of_distribution"].cells()}
    for name in ("in_distribution", "low_data", "holdout_size"):
        assert by_paper <= {cell.training for cell in RECIPES[name].cells()}, "networks trained alike are shared"
    assert by_paper.isdisjoint(
        cell.training for name in ("strong", "strong_wide", "strong_vit") for cell in RECIPES[name].cells()
    )
    assert again.training not in {cell.training for cell in others}
    assert again.name == "again-cifar100-vgg16-s0"
    assert conditions_of(RECIPES["again"], again) == conditions_of(RECIPES["out_of_distribution"], first)


def test_networks_are_trained_as_the_paper_says() -> None:
    recipes = {name: {recipe.training_of(cell) for cell in recipe.cells()} for name, recipe in RECIPES.items()}
    assert recipes["in_distribution"] == recipes["low_data"] == recipes["holdout_size"] == {PAPER_CIFAR}
    assert recipes["mc_dropout"] == {MC_DROPOUT}
    assert recipes["imagenet"] == recipes["tiny_imagenet"] == {PAPER_IMAGENET}
