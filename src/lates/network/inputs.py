"""Whether inputs fit the network, and inputs without labels: what prediction reads."""

import inspect
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lates.network.batches import call_arguments, inputs_of, move_inputs


def check_call(network: nn.Module, inputs: Any, role: str) -> None:
    """Refuse inputs that the network's `forward` has no place for, by the name of their loader."""
    positional, named = call_arguments(inputs)
    try:
        signature = inspect.signature(network.forward)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*positional, **named)
    except TypeError as fault:
        came = f"the keys {', '.join(named)}" if named else f"{len(positional)} inputs"
        hint = "Let the loader give what the network takes, and labels."
        if not named:
            hint = "The last part of a batch is taken for the labels: of (inputs, labels, index) leave the index out."
        raise TypeError(
            f"A {role} batch holds {came} beside the labels; {type(network).__name__}.forward takes {signature}: {fault}. "
            f"{hint}"
        ) from fault


def is_loader(inputs: Any) -> bool:
    """Whether these are many batches, not one: an iterable that is no array, mapping, text or tuple, and that cannot be moved
    to a device as a batch can; a list only if it holds batches, that is tuples, lists or mappings."""
    if isinstance(inputs, list):
        return len(inputs) > 0 and all(isinstance(item, tuple | list | Mapping) for item in inputs)
    batch = isinstance(inputs, Tensor | np.ndarray | Mapping | str | tuple) or hasattr(inputs, "to")
    return hasattr(inputs, "__iter__") and not batch


def read_inputs(loader: Iterable[Any], device: torch.device) -> Iterator[Any]:
    """The inputs of each batch of a loader, on `device`. Labels are left out; there need not be any."""
    for item in loader:
        alone = isinstance(item, Tensor | np.ndarray | Mapping)
        inputs = inputs_of(item) if alone else item[0] if len(item) <= 2 else tuple(item[:-1])
        yield move_inputs(inputs, device)
