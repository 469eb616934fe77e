"""The stack that `lates fit` fitted on saved logits, as a small file."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lates.model import FITTED, naming_damage, read_calibration, read_stack, write_calibration
from lates.network import HEAD
from lates.stack import Stack, combine

SAVED = ("loss", "prior", "regularise", "rows", "classes", "nll", "certified", "unbounded", "residual")


def fit_record(stack: Stack) -> dict[str, Any]:
    """What is saved of a fit besides its members; `nll_before` is the log-loss of the head alone."""
    numbers = {name: value for name, value in stack.numbers.items() if name in SAVED}
    return {**numbers, "nll_before": stack.nll_network}


def save_fitted(stack: Stack, path: Path) -> None:
    """The weights are also saved as a tensor, for readers that know only safetensors."""
    members = {"names": stack.names, "weights": stack.weights.tolist()}
    write_calibration(path, {"weights": stack.weights}, {FITTED: {**members, **fit_record(stack)}})


def parse_fitted(metadata: dict[str, Any], path: Path) -> Stack:
    with naming_damage(path, "Fit again."):
        saved = {**metadata[FITTED]}
        saved["weights"] = torch.tensor(saved["weights"], dtype=torch.float64)
        saved["nll_network"] = saved.pop("nll_before")
        unknown = {"deviations": torch.full_like(saved["weights"], math.nan), "nll_temperature": math.nan}
        return read_stack({**saved, **unknown, "temperature_weights": []})


def read_fitted(path: Path) -> Stack:
    _, metadata = read_calibration(path)
    if FITTED not in metadata:
        raise ValueError(f"{path} calibrates a network; expected a file written by `lates fit`.")
    return parse_fitted(metadata, path)


def apply_fitted(stack: Stack, members: Mapping[str, Tensor]) -> Tensor:
    """The calibrated logits [n, classes] of the same members, on any rows."""
    if not set(stack.names) <= set(members):
        raise ValueError(
            f"The weights are for the members {', '.join(stack.names)}; the logits have {', '.join(members)}."
        )
    if (classes := members[HEAD].shape[1]) != stack.classes:
        raise ValueError(f"The weights are for {stack.classes} classes; the logits have {classes}.")
    return combine(tuple(members[name].double() for name in stack.names), stack.weights)
