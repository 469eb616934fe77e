"""A network's weights from a file: tensors only. A file that holds other Python objects is refused, never unpickled."""

import pickle
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from lates.model import differences
from lates.runtime import abbreviate, plain_tensor

NESTS = ("state_dict", "model_state_dict", "model")
"""Keys under which training scripts save the state_dict among other things."""

PREFIXES = ("module.", "_orig_mod.", "model.")
"""What DataParallel, torch.compile and Lightning put before each name."""

ZIP = b"PK\x03\x04"
MAGIC = (ZIP, b"\x80")
"""First bytes of a file written by torch.save: a zip archive, or, before PyTorch 1.6, a pickle."""


def load_checkpoint(network: nn.Module, path: Path) -> None:
    """Load the weights of a file into the network; names and shapes must be the network's."""
    if not path.is_file():
        raise FileNotFoundError(f"There is no checkpoint {path}.")
    expected = network.state_dict()
    state = strip_prefixes(find_state(read_tensors(path), path), expected)
    check_names(state, expected, path)
    network.load_state_dict(state, strict=False)  # names were checked; of tied weights one name is enough


def read_tensors(path: Path) -> Any:
    safe = path.suffix == ".safetensors"
    with path.open("rb") as file:
        start = file.read(4)
    if not safe and not start.startswith(MAGIC):
        raise ValueError(f"{path} is no checkpoint: expected a state_dict saved by torch.save, or a .safetensors file.")
    try:
        if safe:
            return load_file(path)
        if start.startswith(ZIP):
            _refuse_compressed(path)
        return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise ValueError(
            f"{path} holds more than weights, or is damaged, and reading that could run code: refused. Save the weights alone, "
            "by torch.save(model.state_dict(), …) or as .safetensors."
        ) from error
    except Exception as error:  # a damaged file may break the readers in any way
        reason = f"{type(error).__name__}: {error}".partition("\n")[0]
        raise ValueError(
            f"{path} is damaged, or no checkpoint ({reason}). Copy it anew from where it is whole, or save it again."
        ) from error


def _refuse_compressed(path: Path) -> None:
    """torch.save does not compress: what would unpack to more than the file holds is not by it, and might fill the memory."""
    with zipfile.ZipFile(path) as archive:
        unpacked = sum(entry.file_size for entry in archive.infolist())
    if unpacked > path.stat().st_size:
        raise ValueError(f"it unpacks to {unpacked:,} bytes")


def find_state(content: Any, path: Path) -> dict[str, Any]:
    """The state_dict in a file's content: all of it, or what lies under one of the usual keys."""
    for _ in NESTS:  # at most one in the other, for a mapping may hold itself
        if isinstance(content, Mapping):
            content = next((content[key] for key in NESTS if isinstance(content.get(key), Mapping)), content)
    if isinstance(content, Mapping) and any(isinstance(value, Tensor) for value in content.values()):
        return {str(name): value for name, value in content.items()}
    received = f"keys {abbreviate([*content], 4)}" if isinstance(content, Mapping) else f"a {type(content).__name__}"
    raise ValueError(
        f"{path} holds {received}; expected a state_dict, name -> tensor, alone or under one of {', '.join(NESTS)}."
    )


def strip_prefixes(state: dict[str, Any], expected: Mapping[str, Any]) -> dict[str, Any]:
    """The names as the network has them, where wrappers put a prefix before all of them."""
    while expected.keys().isdisjoint(state):
        prefix = next((prefix for prefix in PREFIXES if all(name.startswith(prefix) for name in state)), None)
        if prefix is None:
            break
        state = {name.removeprefix(prefix): value for name, value in state.items()}
    return state


def check_names(state: Mapping[str, Any], expected: Mapping[str, Any], path: Path) -> None:
    """Refuse missing names, unexpected names, other shapes and kinds of numbers; a weight tied to one that is there is not
    missing."""
    loaded = {value.data_ptr() for name, value in expected.items() if name in state and isinstance(value, Tensor)}
    needed = {
        name: value.shape
        for name, value in expected.items()
        if isinstance(value, Tensor) and (name in state or not value.numel() or value.data_ptr() not in loaded)
    }
    others = expected.keys() - needed.keys()
    given = {
        name: value.shape if isinstance(value, Tensor) and not value.is_nested else needed.get(name, ())
        for name, value in state.items()
        if name not in others
    }
    if listed := differences(given, needed):
        raise ValueError(f"{path} belongs to another network than --model makes. {listed}.")
    for name in filter(state.__contains__, needed):
        value, tensor = plain_tensor(state[name], f"{path}: {name}"), expected[name]
        if (value.is_floating_point(), value.is_complex()) != (tensor.is_floating_point(), tensor.is_complex()):
            raise TypeError(f"{path}: {name} is {value.dtype}, expected {tensor.dtype}, as in the network's state_dict().")
