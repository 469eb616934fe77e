"""The runner on the tiny grid, shared by its tests and those of its deaths."""

from pathlib import Path
from typing import Any

from experiments.runner.cells import Folders, Outcome, run_cells
from experiments.runner.results import find_results, results_path
from tests.experiments.sample import tiny_recipe


def folders_in(root: Path) -> Folders:
    return Folders(None, root / "runs", root / "results")


def run_tiny(root: Path, seeds: tuple[int, ...] = (0,), **options: Any) -> Outcome:
    recipe = tiny_recipe(seeds)
    return run_cells(recipe, recipe.cells(), folders_in(root), "cpu", **options)


def numbers(root: Path) -> dict[str, tuple[bytes, Any]]:
    """All that has to be the same in two runs: everything but what clocks say."""
    found: dict[str, tuple[bytes, Any]] = {}
    for results in find_results(root / "results"):
        path = results_path(root / "results", results.cell)
        methods = {
            name: {key: value for key, value in facts.items() if not key.endswith("seconds")}
            for name, facts in results.facts["methods"].items()
        }
        kept = {key: results.facts[key] for key in ("cell", "split", "rows", "probe_accuracy", "flops")}
        found[results.cell.name] = path.with_suffix(".csv").read_bytes(), {**kept, "methods": methods}
    return found
