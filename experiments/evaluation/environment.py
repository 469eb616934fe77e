"""Where numbers were measured: commit, device, versions, settings."""

import os
import platform
import subprocess
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

import lates
from experiments.evaluation.measuring import CORRUPTION_SEED
from experiments.evaluation.methods import BUDGETS

UNKNOWN = "unknown"


def multiply_in_float32() -> None:
    """For all that fits or measures, whatever training has set. Results from before ec3f453 multiplied in TensorFloat-32
    ("high") on GPUs, and do not say so."""
    torch.set_float32_matmul_precision("highest")


def describe_environment(device: torch.device) -> dict[str, Any]:
    return {
        "commit": current_commit(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else f"cpu {platform.machine()}",
        "versions": {
            "python": platform.python_version(),
            "lates": lates.__version__,
            **{package: _installed_version(package) for package in ("torch", "numpy", "scipy", "pillow")},
            "cuda": torch.version.cuda,
        },
        "settings": {
            "default": asdict(lates.DEFAULT),
            "paper": asdict(lates.PAPER_LITERAL),
            "budgets": dict(BUDGETS),
            "corruption_seed": CORRUPTION_SEED,
            "matmul_precision": torch.get_float32_matmul_precision(),
        },
    }


def _installed_version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def require_commit(device: torch.device) -> None:
    """Results of a GPU are costly, and those of unknown code would be worth nothing."""
    if device.type == "cuda" and current_commit() == UNKNOWN:
        raise ValueError(
            "This copy of the code has no repository, so results could not say which code made them. Set LATES_COMMIT to its "
            "commit: LATES_COMMIT=$(git rev-parse --short=12 HEAD), as the repository says it."
        )


def current_commit() -> str:
    """The commit of this code, marked where files differ from it; of a copy outside of a repository, $LATES_COMMIT."""
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return os.environ.get("LATES_COMMIT", UNKNOWN)
