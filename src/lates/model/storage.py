"""A calibration on disk: safetensors with JSON metadata. Written whole or not at all, verified on reading, never a pickle."""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as serialise
from torch import Tensor, nn

from lates.network import is_dense
from lates.runtime import abbreviate, warn_caller, write_whole

FORMAT, READ = 3, (2, 3)
"""Of files that are written, and of those that are read."""
KEY = "lates"
"""The key of the safetensors metadata that holds ours, as JSON."""
DIGEST = "sha256"
"""The key, in the JSON, of a digest of all that the file holds. In files of format 2 it lay beside the JSON, or was missing."""


class OtherWeightsWarning(UserWarning):
    """The network's weights are not those that it was calibrated with."""


def write_calibration(path: str | os.PathLike[str], tensors: Mapping[str, Tensor], metadata: Mapping[str, Any]) -> None:
    """One safetensors file: the tensors, and the metadata as JSON beside them."""
    content = {"format": FORMAT, **metadata}
    plain = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    # under one key alone: of several, safetensors writes them in any order
    write_whole(path, serialise(plain, {KEY: json.dumps({**content, DIGEST: _digest_of_all(plain, content)})}))


def read_calibration(path: str | os.PathLike[str]) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and metadata of a file that `write_calibration` wrote; anything else is refused."""
    source = Path(path)
    if not source.is_file():
        raise FileNotFoundError(f"There is no file {source}.")
    try:
        with safe_open(str(source), framework="pt") as file:
            metadata, names = file.metadata() or {}, file.keys()
            tensors = {name: file.get_tensor(name) for name in names}
    except SafetensorError as fault:
        raise ValueError(
            f"{source} is no calibration, or a damaged one: it is not a whole safetensors file ({fault}). "
            "Save the calibration again."
        ) from fault
    if KEY not in metadata:
        raise ValueError(f"{source} holds tensors but no calibration: expected a file written by CalibratedModel.save.")
    try:
        content = json.loads(metadata[KEY])
    except (ValueError, RecursionError) as fault:
        raise ValueError(f"The metadata of {source} are damaged ({fault}). Save the calibration again.") from fault
    known = content.get("format") if isinstance(content, dict) else type(content).__name__
    if known not in READ:
        raise ValueError(
            f"{source} has format {known}; this version of lates reads format {' and '.join(map(str, READ))}. "
            "Update lates, or calibrate and save again."
        )
    digest = content.pop(DIGEST, metadata.get(DIGEST))
    if digest != _digest_of_all(tensors, content) and not (known < FORMAT and digest is None):
        raise ValueError(
            f"{source} is damaged: what it holds is not what was written, by its digest. Copy it anew from where it is whole, "
            "or save the calibration again."
        )
    return tensors, content


def fingerprint(network: nn.Module) -> dict[str, list[Any]]:
    """Every plain tensor of the network's state: name -> [shape, digest of the values]."""
    return {name: [list(value.shape), _digest(value)] for name, value in tensors_of(network).items()}


def tensors_of(network: nn.Module) -> dict[str, Tensor]:
    return {name: value for name, value in network.state_dict().items() if is_dense(value)}


def check_fingerprint(saved: Mapping[str, Sequence[Any]], network: nn.Module, source: str) -> None:
    """Other names or shapes: an error that says what differs. Other values: a warning."""
    now = fingerprint(network)
    shapes, expected = ({name: shape for name, (shape, _) in one.items()} for one in (now, saved))
    if listed := differences(shapes, expected):
        raise ValueError(f"{source} was made for another network. {listed}. Load it with the model that was calibrated.")
    warn_of_changes(
        [name for name in saved if now[name][1] != saved[name][1]],
        len(saved),
        "cast or trained on since, or its trained weights were never loaded. The calibration may no longer hold: load them, "
        "or calibrate again.",
    )


def differences(shapes: Mapping[str, Sequence[int]], expected: Mapping[str, Sequence[int]]) -> str:
    """Which tensors are missing, unexpected or of another shape; "" where all agree."""
    parts = {
        "missing": [name for name in expected if name not in shapes],
        "unexpected": [name for name in shapes if name not in expected],
        "other shape": [
            f"{name} is {list(shape)}, expected {list(expected[name])}"
            for name, shape in shapes.items()
            if name in expected and list(shape) != list(expected[name])
        ],
    }
    return "; ".join(f"{what}: {abbreviate(names, 4)}" for what, names in parts.items() if names)


def warn_of_changes(changed: Sequence[str], tensors: int, advice: str) -> None:
    """Warn where some of a network's tensors have changed; `tensors` is how many it has."""
    if changed:
        warn_caller(
            f"{len(changed)} of {tensors} tensors of this network have other values than when it was calibrated "
            f"({abbreviate(changed, 4)}): {advice}",
            OtherWeightsWarning,
        )


def _digest_of_all(tensors: Mapping[str, Tensor], content: Mapping[str, Any]) -> str:
    """Against damage, not against forgery: whoever makes a file can make its digest."""
    entries = [[name, str(value.dtype), list(value.shape), _digest(value)] for name, value in sorted(tensors.items())]
    return hashlib.sha256(json.dumps([json.dumps(content), entries]).encode()).hexdigest()


def _digest(value: Tensor) -> str:
    flat = value.detach().cpu().resolve_conj().resolve_neg().contiguous().reshape(-1)
    data = flat.view(torch.uint8).numpy().data if flat.numel() else b""
    return hashlib.sha256(data).hexdigest()[:16]
