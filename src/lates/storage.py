"""A calibration on disk: safetensors with JSON metadata. Written whole or not at all, verified on reading, never a pickle."""

import hashlib
import json
import os
import secrets
import stat
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as serialise
from torch import Tensor, nn

from lates.checks import level_of_the_caller

T = TypeVar("T")

FORMAT = 2
KEY = "lates"
"""The key of the safetensors metadata under which ours lies, as JSON."""
DIGEST = "sha256"
"""The key of a digest of all that the file holds; files of earlier versions lack it."""
KINDS = {stat.S_IFIFO: "a pipe", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device", stat.S_IFSOCK: "a socket"}
"""What a path may lead to that is neither a file nor a folder."""


class OtherWeightsWarning(UserWarning):
    """The network's weights are not those that it was calibrated with."""


def write_calibration(path: str | os.PathLike[str], tensors: Mapping[str, Tensor], metadata: Mapping[str, Any]) -> None:
    """One safetensors file: the tensors, and the metadata as JSON beside them."""
    text = json.dumps({"format": FORMAT, **metadata})
    plain = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    write_whole(path, serialise(plain, {KEY: text, DIGEST: _digest_of_all(plain, text)}))


def write_whole(path: str | os.PathLike[str], content: bytes) -> None:
    """Write to a temporary file beside `path`, flush it to disk, then rename: a crash leaves the old file or the new."""
    target = check_target(path)
    temporary = target.with_name(f".lates-{secrets.token_hex(8)}")
    try:
        with open(temporary, "xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except OSError as fault:
        raise OSError(
            fault.errno,
            f"Cannot save {len(content):,} bytes to {path}: {fault.strerror or fault}. Nothing there has changed. Make room "
            "or gain access there, or save elsewhere.",
        ) from fault
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def check_target(path: str | os.PathLike[str]) -> Path:
    """The file that a path leads to, links followed; one at which no file can be written is refused, before any work is done.

    Only a file may be replaced: a rename over a device or a pipe would put a file in its place.
    """
    target = Path(os.path.realpath(path))
    if not target.parent.is_dir():
        raise FileNotFoundError(f"Cannot save to {path}: there is no folder {target.parent}.")
    try:
        kind = stat.S_IFMT(os.stat(path).st_mode)
    except FileNotFoundError:
        return target
    if kind == stat.S_IFDIR:
        raise IsADirectoryError(f"Cannot save to {path}: it is a folder. Name a file in it.")
    if kind != stat.S_IFREG:
        raise FileExistsError(
            f"Cannot save to {path}: it is {KINDS.get(kind, 'no file')}, which a file would replace. Name a file, or a path "
            "where nothing is yet."
        )
    return target


def read_calibration(path: str | os.PathLike[str]) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and metadata of a file that `write_calibration` wrote; anything else is refused."""
    source = Path(path)
    if not source.is_file():
        raise FileNotFoundError(f"There is no file {source}.")
    try:
        with safe_open(str(source), framework="pt") as file:
            found = file.metadata() or {}
            names = file.keys()
            tensors = {name: file.get_tensor(name) for name in names}
    except SafetensorError as fault:
        raise ValueError(
            f"{source} is no calibration, or a damaged one: it is not a whole safetensors file ({fault}). Save the calibration "
            "again."
        ) from fault
    text, digest = found.get(KEY), found.get(DIGEST)
    if text is None:
        raise ValueError(f"{source} holds tensors but no calibration: expected a file written by CalibratedModel.save.")
    if digest is not None and digest != _digest_of_all(tensors, text):
        raise ValueError(
            f"{source} is damaged: what it holds is not what was written, by its digest. Copy it anew from where it is whole, "
            "or save the calibration again."
        )
    try:
        metadata = json.loads(text)
    except json.JSONDecodeError as fault:
        raise ValueError(f"The metadata of {source} are damaged ({fault}). Save the calibration again.") from fault
    if not isinstance(metadata, dict) or metadata.get("format") != FORMAT:
        came = metadata.get("format") if isinstance(metadata, dict) else type(metadata).__name__
        raise ValueError(
            f"{source} has format {came}; this version of lates reads format {FORMAT}. "
            "Update lates, or calibrate and save again."
        )
    return tensors, metadata


def read_record(kind: type[T], fields: Mapping[str, Any]) -> T:
    """A dataclass from its JSON form, each value checked against the type declared: plain, `Literal` or a tuple."""
    values = {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}
    for name, hint in get_type_hints(kind).items():
        value, form = values[name], get_origin(hint)
        if form is tuple:
            fits = type(value) is tuple and all(type(item) is get_args(hint)[0] for item in value)
        else:
            fits = value in get_args(hint) if form is Literal else type(value) is hint
        if not fits:
            raise TypeError(f"{name}={value!r} in {kind.__name__}")
    return kind(**values)


def fingerprint(network: nn.Module) -> dict[str, list[Any]]:
    """Every plain tensor of the network's state: name -> [shape, digest of the values]."""
    return {name: [list(value.shape), _digest(value)] for name, value in tensors_of(network).items()}


def tensors_of(network: nn.Module) -> dict[str, Tensor]:
    """Those with values of their own, one after the other: no sparse or nested ones, none of a subclass that packs them."""
    state = network.state_dict()
    return {
        name: value
        for name, value in state.items()
        if type(value) is Tensor and value.layout == torch.strided and not value.is_nested
    }


def check_fingerprint(saved: Mapping[str, Sequence[Any]], network: nn.Module, source: str) -> None:
    """Other names or shapes: an error that says what differs. Other values: a warning."""
    found = fingerprint(network)
    missing = [name for name in saved if name not in found]
    added = [name for name in found if name not in saved]
    reshaped = [
        f"{name} is {found[name][0]}, was {saved[name][0]}"
        for name in saved
        if name in found and found[name][0] != saved[name][0]
    ]
    if missing or added or reshaped:
        parts = [("missing", missing), ("new", added), ("other shape", reshaped)]
        listed = "; ".join(f"{what}: {some_of(names)}" for what, names in parts if names)
        raise ValueError(
            f"{source} was made for another network. {listed}. Load it with the model that was calibrated."
        )
    warn_of_changes(
        [name for name in saved if found[name][1] != saved[name][1]],
        len(saved),
        "cast or trained on since, or its trained weights were never loaded. The calibration may no longer hold: load them, "
        "or calibrate again.",
    )


def warn_of_changes(changed: Sequence[str], tensors: int, advice: str) -> None:
    """Where tensors of a network, so many in all, have changed."""
    if changed:
        warnings.warn(
            f"{len(changed)} of {tensors} tensors of this network have other values than when it was calibrated "
            f"({some_of(changed)}): {advice}",
            OtherWeightsWarning,
            stacklevel=level_of_the_caller(),
        )


def _digest_of_all(tensors: Mapping[str, Tensor], text: str) -> str:
    entries = [[name, str(value.dtype), list(value.shape), _digest(value)] for name, value in sorted(tensors.items())]
    return hashlib.sha256(json.dumps([text, entries]).encode()).hexdigest()


def _digest(value: Tensor) -> str:
    flat = value.detach().cpu().resolve_conj().resolve_neg().contiguous().reshape(-1)
    data = flat.view(torch.uint8).numpy().data if flat.numel() else b""
    return hashlib.sha256(data).hexdigest()[:16]


def some_of(names: Sequence[str]) -> str:
    """The first four, and how many more there are."""
    return ", ".join(names) if len(names) <= 4 else f"{', '.join(names[:4])} and {len(names) - 4} more"
