"""A network's weights from a file: tensors only. A file that holds other Python objects is refused, never unpickled."""

import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from lates.storage import some_of

NESTS = ("state_dict", "model_state_dict", "model")
"""Under which keys training scripts keep the state_dict among other things."""

PREFIXES = ("module.", "_orig_mod.", "model.")
"""What DataParallel, torch.compile and Lightning put before each name."""

BEGINNINGS = (b"PK\x03\x04", b"\x80")
"""Of what torch.save wrote: a zip archive, or, before PyTorch 1.6, a pickle."""


def load_checkpoint(network: nn.Module, path: Path) -> None:
    """Fill the network with the weights of a file; names and shapes must be the network's."""
    if not path.is_file():
        raise FileNotFoundError(f"There is no checkpoint {path}.")
    expected = network.state_dict()
    state = without_prefix(find_state(read_tensors(path), path), expected)
    check_names(state, expected, path)
    network.load_state_dict(state, strict=False)  # names were checked; tied weights may stand under one of theirs


def read_tensors(path: Path) -> Any:
    if path.suffix != ".safetensors":
        with open(path, "rb") as file:
            beginning = file.read(4)
        if beginning and not beginning.startswith(BEGINNINGS):
            raise ValueError(
                f"{path} is no checkpoint: expected what torch.save wrote of a state_dict, or a .safetensors file."
            )
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        return torch.load(path, map_location="cpu", weights_only=True)
    except OSError:
        raise
    except pickle.UnpicklingError as fault:
        raise ValueError(
            f"{path} holds more than weights, and reading that could run code: refused. Save the weights alone, by "
            "torch.save(model.state_dict(), …) or as .safetensors."
        ) from fault
    except Exception as fault:  # what is damaged may break the readers anywhere
        reason = f"{type(fault).__name__}: {fault}".partition("\n")[0]
        raise ValueError(f"{path} is damaged, or no checkpoint ({reason}).") from fault


def find_state(content: Any, path: Path) -> dict[str, Any]:
    """The state_dict in what a file held: all of it, or what lies under one of the usual keys."""
    while isinstance(content, Mapping):
        nest = next((key for key in NESTS if isinstance(content.get(key), Mapping)), None)
        if nest is None:
            break
        content = content[nest]
    if isinstance(content, Mapping) and any(isinstance(value, Tensor) for value in content.values()):
        return {str(name): value for name, value in content.items()}
    came = f"keys {some_of(list(map(str, content)))}" if isinstance(content, Mapping) else f"a {type(content).__name__}"
    raise ValueError(
        f"{path} holds {came}; expected a state_dict, name -> tensor, alone or under one of {', '.join(NESTS)}."
    )


def without_prefix(state: dict[str, Any], expected: Mapping[str, Any]) -> dict[str, Any]:
    """The names as the network has them, where wrappers put a prefix before all of them."""
    while expected.keys().isdisjoint(state):
        prefix = next((prefix for prefix in PREFIXES if all(name.startswith(prefix) for name in state)), None)
        if prefix is None:
            break
        state = {name.removeprefix(prefix): value for name, value in state.items()}
    return state


def check_names(state: Mapping[str, Any], expected: Mapping[str, Any], path: Path) -> None:
    """Missing, unknown or otherwise shaped entries are an error; a weight tied to one that came is not missing."""
    shapes = {name: list(value.shape) for name, value in expected.items() if isinstance(value, Tensor)}
    came = {_place(expected[name]) for name in state if name in shapes}
    faults = {
        "missing": [name for name in shapes if name not in state and _place(expected[name]) not in came],
        "unknown": [name for name in state if name not in expected],
        "other shape": [
            f"{name} is {list(state[name].shape)}, expected {shape}"
            for name, shape in shapes.items()
            if name in state and list(state[name].shape) != shape
        ],
    }
    told = "; ".join(f"{what}: {some_of(names)}" for what, names in faults.items() if names)
    if told:
        raise ValueError(f"{path} is of another network than --model makes. {told}.")


def _place(value: Tensor) -> tuple[int, ...]:
    """Equal for two names of one tensor; an empty one has no place and is like no other."""
    return (value.data_ptr(), *value.shape) if value.numel() else (id(value),)
