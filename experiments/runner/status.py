"""How far a cell is, read from its folders."""

from experiments.recipes import Cell, Recipe
from experiments.runner.cells import Folders
from experiments.runner.claims import read_claim
from experiments.runner.provenance import conditions_of
from experiments.runner.results import describe_differences, is_finished
from experiments.training.checkpoints import RunFolder


def read_status(recipe: Recipe, cell: Cell, folders: Folders) -> str:
    """Done; measured by another recipe; or how much of its training is done, and whether a runner works on it."""
    folder, conditions = folders.runs / cell.training, conditions_of(recipe, cell)
    if is_finished(folders.results, cell, conditions):
        return "done"
    if describe_differences(folders.results, cell, conditions):
        return "measured by another recipe: `run` says what differs"
    running = ", running" if read_claim(folder) is not None else ""
    return f"trained {RunFolder(folder, {}).share_trained():.0%}{running}"
