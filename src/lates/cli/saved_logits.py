"""Saved logits: .npz, .npy or .safetensors -> members and labels. Nothing is unpickled.

Labels are the array named "labels" or "label", or a separate file. Everything else is logits: one array [n, classes]; one
array [n, classes, members], the head last; or one array [n, classes] per member. Not every format keeps an order, so among
several arrays the head is the one named "head" or "logits".
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors.torch import load_file
from torch import Tensor

from lates.network import HEAD, LABEL_KEYS
from lates.runtime import as_tensor, check_labels, check_logits, default_names

HEADS = (HEAD, "logits")
SUFFIXES = (".npz", ".npy", ".safetensors")
FORMS = 'Save logits [n, classes] and labels [n], e.g. np.savez("logits.npz", logits=logits, labels=labels).'


@dataclass(frozen=True)
class SavedLogits:
    """Members, name -> logits [n, classes], the head last; and labels [n]."""

    members: dict[str, Tensor]
    labels: Tensor

    @property
    def head(self) -> Tensor:
        return self.members[HEAD]


def read_logits(path: Path, labels_path: Path | None = None) -> SavedLogits:
    """The logits of a file with its labels, or those of a separate file; everything is checked."""
    arrays = read_arrays(path)
    labels = [arrays.pop(key) for key in LABEL_KEYS if key in arrays]
    if len(labels) + (labels_path is not None) > 1:
        raise ValueError(
            f"There are labels in {path}{f' and in {labels_path}' if labels_path else ' twice'}. Keep one."
        )
    if labels_path is not None:
        labels = [read_labels(labels_path)]
    if not labels:
        raise ValueError(
            f'{path} holds no labels: expected an array named "labels". Or pass --labels with a file of them.'
        )
    members = name_members(arrays, path)
    for name, logits in members.items():
        check_logits(logits, f'{path}: logits of member "{name}"')
        if logits.shape != members[HEAD].shape:
            raise ValueError(
                f'{path}: member "{name}" has shape {list(logits.shape)}, the head {list(members[HEAD].shape)}; expected '
                "the same rows and classes."
            )
    return SavedLogits(members, check_labels(labels[0], *members[HEAD].shape, name=f"{labels_path or path}: labels"))


def name_members(arrays: Mapping[str, Tensor], path: Path) -> dict[str, Tensor]:
    """Which array is which member; the head comes last."""
    if not arrays:
        raise ValueError(f"{path} holds no logits. {FORMS}")
    if len(arrays) == 1:
        [(name, values)] = arrays.items()
        if values.ndim == 3 and values.shape[2] > 0:
            return dict(zip(default_names(values.shape[2]), values.unbind(dim=2), strict=True))
        if values.ndim != 2:
            raise ValueError(
                f'{path}: "{name}" has shape {list(values.shape)}; expected logits [n, classes] or [n, classes, members].'
            )
        return {HEAD: values}
    others = [f"{name} {list(values.shape)}" for name, values in arrays.items() if values.ndim != 2]
    if others:
        raise ValueError(
            f"{path} holds {', '.join(others)} among several arrays; expected labels, and logits [n, classes] per member."
        )
    heads = [name for name in HEADS if name in arrays]
    if len(heads) != 1:
        raise ValueError(
            f'{path} holds {", ".join(arrays)}. Name the logits of the network itself "head", so that it is clear which '
            "they are."
        )
    members = {name: values for name, values in arrays.items() if name != heads[0]}
    return {**members, HEAD: arrays[heads[0]]}


def read_labels(path: Path) -> Tensor:
    """The only array of a file, or the one named "labels"; a single column counts as [n]."""
    arrays = read_arrays(path)
    candidates = [arrays[key] for key in LABEL_KEYS if key in arrays] or list(arrays.values())
    if len(candidates) != 1:
        raise ValueError(f'{path} holds {", ".join(arrays) or "nothing"}; expected one array, or one named "labels".')
    [labels] = candidates
    return labels.squeeze(1) if labels.ndim == 2 and labels.shape[1] == 1 else labels


def read_arrays(path: Path) -> dict[str, Tensor]:
    """All arrays of a file by name."""
    if not path.is_file():
        raise FileNotFoundError(f"There is no file {path}.")
    if path.suffix not in SUFFIXES:
        raise ValueError(f"{path}: cannot read {path.suffix or 'a file without suffix'}. Known: {', '.join(SUFFIXES)}.")
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        loaded = np.load(path, allow_pickle=False)
        arrays = {"logits": loaded} if isinstance(loaded, np.ndarray) else dict(loaded.items())
    except PermissionError:
        raise
    except Exception as error:  # a damaged file may break the readers in any way
        reason = f"{type(error).__name__}: {error}".partition("\n")[0]
        raise ValueError(f"{path} is damaged, or no {path.suffix} file of plain arrays ({reason}). {FORMS}") from error
    return {
        name: as_tensor(np.ascontiguousarray(values, dtype=values.dtype.newbyteorder("=")), f"{path}: {name}")
        for name, values in arrays.items()
    }
