"""How results were made: under what, and what two of them have to share before they may stand in one table."""

import os
import platform
import subprocess
from collections.abc import Iterable
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch

import lates
from experiments.dropout import SAMPLES
from experiments.methods import BUDGETS
from experiments.recipes import Experiment
from experiments.results import Cell, OtherRecipeError, describe_differences, results_path

CORRUPTION_SEED = 0
"""Every network meets the same corrupted images."""


def recipe_of(experiment: Experiment, cell: Cell) -> dict[str, Any]:
    """What, beside the cell's own name, has to be the same in all results that are compared."""
    return {
        "training": asdict(experiment.training_of(cell)),
        "corruptions": experiment.corruptions,
        "severities": experiment.severities,
        "probe_images": experiment.probe_images,
        "samples": SAMPLES if cell.dropout > 0 else None,
    }


def refuse_other_recipe(experiment: Experiment, cells: Iterable[Cell], results: Path) -> None:
    """Raise if results of these cells were made in another way: they are neither mixed with new ones nor overwritten."""
    differences = {cell: describe_differences(results, cell, recipe_of(experiment, cell)) for cell in cells}
    others = [cell for cell, difference in differences.items() if difference]
    if others:
        were = f", and {len(others) - 1} more, were" if len(others) > 1 else " was"
        raise OtherRecipeError(
            f"{results_path(results, others[0])}{were} made by another recipe: {differences[others[0]]}. Choose another "
            f"--results, or remove what is there: {results / experiment.name}."
        )


def multiply_in_full() -> None:
    """The one rule for all that fits or measures: float32 matrix products are float32, as the library's own, whatever
    training has left behind. Results of before ec3f453 multiplied in TensorFloat-32 ("high") on GPUs, and do not say so."""
    torch.set_float32_matmul_precision("highest")


def describe_surroundings(device: torch.device) -> dict[str, Any]:
    """Under what the numbers were made: commit, device, versions, settings."""
    return {
        "commit": current_commit(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else f"cpu {platform.machine()}",
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": np.__version__,
            "lates": lates.__version__,
        },
        "settings": {
            "default": asdict(lates.DEFAULT),
            "paper": asdict(lates.PAPER),
            "budgets": dict(BUDGETS),
            "corruption_seed": CORRUPTION_SEED,
            "matmul_precision": torch.get_float32_matmul_precision(),
        },
    }


def further_versions() -> dict[str, str | None]:
    """Beside those that every evaluation names; None for what is not there."""
    installed = {name: _installed_version(name) for name in ("scipy", "pillow")}
    return {**installed, "cuda": torch.version.cuda}


def _installed_version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def current_commit() -> str:
    """The commit of this code, marked where files differ from it; of a copy outside of a repository, $LATES_COMMIT."""
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return os.environ.get("LATES_COMMIT", "unknown")
