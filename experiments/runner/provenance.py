"""What two results have to share before they may stand in one table."""

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from experiments.evaluation.dropout import SAMPLES
from experiments.recipes import Cell, Recipe
from experiments.runner.results import describe_differences, results_path


def conditions_of(recipe: Recipe, cell: Cell) -> dict[str, Any]:
    """What, beside the cell's name, has to be the same in all results that are compared."""
    return {
        "training": {"released": recipe.released[cell.network]}
        if recipe.released
        else asdict(recipe.training_of(cell)),
        "corruptions": recipe.corruptions,
        "severities": recipe.severities,
        "probe_images": recipe.probe_images,
        "samples": SAMPLES if cell.dropout > 0 else None,
    }


def refuse_other_recipe(recipe: Recipe, cells: Iterable[Cell], results: Path) -> None:
    """Raise if results of these cells were made in another way: they are neither mixed with new ones nor overwritten."""
    differences = {cell: describe_differences(results, cell, conditions_of(recipe, cell)) for cell in cells}
    others = [cell for cell, difference in differences.items() if difference]
    if others:
        were = f", and {len(others) - 1} more, were" if len(others) > 1 else " was"
        raise ValueError(
            f"{results_path(results, others[0])}{were} made by another recipe: {differences[others[0]]}. Choose another "
            f"--results, or remove what is there: {results / recipe.name}."
        )
