"""Saved logits: .npz, .npy, .safetensors or .csv -> members and labels. Nothing is unpickled.

Labels are the array, or column, named "labels" or "label", or a separate file. Everything else is logits: one array
[n, classes]; one array [n, classes, members], the head last; or one array [n, classes] per member. Not every format keeps
an order, so among several arrays the head is the one named "head" or "logits".
"""

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.torch import load_file
from torch import Tensor

from lates.network import HEAD, LABEL_KEYS
from lates.runtime import as_tensor, check_labels, check_logits, default_names

HEADS = (HEAD, "logits")
INDEX_COLUMNS = ("", "id", "index")
FORMS = 'Save logits [n, classes] and labels [n], e.g. np.savez("logits.npz", logits=logits, labels=labels).'


def read_logits(path: Path, labels_path: Path | None = None) -> tuple[dict[str, Tensor], Tensor]:
    """Members, name -> logits [n, classes], the head last; and the file's labels [n], or a separate file's. All is checked."""
    arrays = read_arrays(path)
    labels = [arrays.pop(key) for key in LABEL_KEYS if key in arrays]
    if len(labels) + (labels_path is not None) > 1:
        raise ValueError(f"There are labels in {path}{f' and in {labels_path}' if labels_path else ' twice'}. Keep one.")
    if labels_path is not None:
        labels = [read_labels(labels_path)]
    if not labels:
        raise ValueError(
            f'{path} holds no labels: expected an array or column named "labels". Or pass --labels with a file of them.'
        )
    members = members_in_file(arrays, path)
    for name, logits in members.items():
        check_logits(logits, f'{path}: logits of member "{name}"')
        if logits.shape != members[HEAD].shape:
            raise ValueError(
                f'{path}: member "{name}" has shape {list(logits.shape)}, the head {list(members[HEAD].shape)}; expected '
                "the same rows and classes."
            )
    checked = check_labels(labels[0], *members[HEAD].shape, name=f"{labels_path or path}: labels")
    if path.suffix == ".csv":
        refuse_label_column(members[HEAD], checked, path)
    return members, checked


def refuse_label_column(logits: Tensor, labels: Tensor, path: Path) -> None:
    """A column of labels without that name would count as one more class."""
    same = (logits == labels[:, None]).all(dim=0)
    if labels.unique().numel() > 1 and bool(same.any()):
        raise ValueError(
            f"{path}: column {int(same.nonzero()[0, 0]) + 1} holds the labels, not logits. Give the file a header that "
            'names it "label", and leave out --labels.'
        )


def members_in_file(arrays: Mapping[str, Tensor], path: Path) -> dict[str, Tensor]:
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
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels.squeeze(1)
    return _to_integers(labels, path) if path.suffix == ".csv" else labels


def read_arrays(path: Path) -> dict[str, Tensor]:
    """All arrays of a file by name."""
    if not path.is_file():
        raise FileNotFoundError(f"There is no file {path}.")
    if path.suffix not in READERS:
        raise ValueError(f"{path}: cannot read {path.suffix or 'a file without suffix'}. Known: {', '.join(READERS)}.")
    kind, load = READERS[path.suffix]
    try:
        content = load(path)
    except PermissionError:
        raise
    except Exception as error:  # a damaged file may break the readers in any way
        reason = f"{type(error).__name__}: {error}".partition("\n")[0]
        raise ValueError(f"{path} is damaged, or no {kind} ({reason}). {FORMS}") from error
    if isinstance(content, tuple):
        text, first = content
        return parse_table(text, first, path)
    return {name: as_tensor(values, f"{path}: {name}") for name, values in content.items()}


def load_numpy(path: Path) -> dict[str, np.ndarray]:
    """In the byte order of this machine."""
    loaded = np.load(path, allow_pickle=False)
    arrays = {"logits": loaded} if isinstance(loaded, np.ndarray) else dict(loaded.items())
    return {name: values.astype(values.dtype.newbyteorder("="), copy=False) for name, values in arrays.items()}


def load_text(path: Path) -> tuple[str, list[str]]:
    """The text and the cells of its first line."""
    text = path.read_text("utf-8-sig").strip()
    if "\0" in text:
        raise ValueError("there are NUL characters in it")
    return text, next(csv.reader(io.StringIO(text)), [])


READERS: dict[str, tuple[str, Callable[[Path], Any]]] = {
    ".npz": ("archive of plain arrays", load_numpy),
    ".npy": ("plain array", load_numpy),
    ".safetensors": (".safetensors file", load_file),
    ".csv": ("text in UTF-8", load_text),
}
"""suffix -> what such a file is, and what reads it"""


def parse_table(text: str, first: Sequence[str], path: Path) -> dict[str, Tensor]:
    """One column per class, in the order of the classes, and one named "label"; without a header, all are classes."""
    if not text:
        raise ValueError(f"{path} is empty. {FORMS}")
    try:
        list(map(float, first))
        header = []
    except ValueError:
        header = [cell.strip() for cell in first]
    if header and "\n" not in text:
        raise ValueError(f"{path} is empty below its header. {FORMS}")
    for name in header:
        if name.lower() in INDEX_COLUMNS:
            column = name or "a column without name"
            raise ValueError(f"{path} has {column}: a row number is no logit. Save without it (pandas: index=False).")
    try:
        values = np.loadtxt(io.StringIO(text), delimiter=",", skiprows=int(bool(header)), ndmin=2, dtype=np.float64)
    except ValueError as error:
        raise ValueError(f"{path}: not a table of numbers ({error}).") from error
    table = as_tensor(values, "the table")
    labelled = {column: name.lower() for column, name in enumerate(header) if name.lower() in LABEL_KEYS}
    if len(labelled) > 1:
        raise ValueError(f"There are labels in {path} twice. Keep one.")
    labels = {name: _to_integers(table[:, column], path) for column, name in labelled.items()}
    classes = [column for column in range(values.shape[1]) if column not in labelled]
    return {**labels, **({"logits": table[:, classes]} if classes else {})}


def _to_integers(values: Tensor, path: Path) -> Tensor:
    """Labels of a text file, where every number was read as a float."""
    fractions = ((values != values.round()) | (values.abs() > 2**53)).nonzero()
    if len(fractions):
        row = int(fractions[0, 0])
        raise ValueError(f"{path}: label {float(values.reshape(-1)[row])} in row {row}; expected whole class numbers.")
    return values.long()
