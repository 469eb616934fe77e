"""What a loader yields and a network returns: inputs, labels, logits. Checked once, here."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Subset, TensorDataset

from lates.runtime import as_tensor, form_of, plain_tensor

IGNORED = -100
"""Rows with this label are left out, as in `torch.nn.functional.cross_entropy`."""

LABEL_KEYS = ("labels", "label")

INPUT_KEYS = ("image", "images", "input", "inputs", "x")
"""What data sets call their only input: beside labels alone, it is passed by position, whatever the network calls it."""


@dataclass(frozen=True)
class Batch:
    """Inputs in the form in which the loader gave them, and their labels [n] (int64, `IGNORED` included).

    Labels are on the CPU, where they are checked: each check on a GPU would wait for all its work.
    """

    inputs: Any
    labels: Tensor

    @property
    def rows(self) -> int:
        return len(self.labels)


def read_batches(loader: Iterable[Any], device: torch.device, role: str = "loader") -> Iterator[Batch]:
    """The batches of a loader, their inputs on `device`. `role` names the loader in errors ("train", "holdout")."""
    check_loader(loader, role)
    empty = True
    for item in loader:
        empty = False
        yield _read_batch(item, device, role)
    if empty:
        raise ValueError(
            f"The {role} loader yielded no batch. Expected (inputs, labels) batches; is its dataset empty, or can it be read "
            "only once?"
        )


def inputs_of(item: Any) -> Any:
    """What a network is called with, of a mapping that may hold labels too; all else as it is."""
    if not isinstance(item, Mapping):
        return item
    inputs = {name: value for name, value in item.items() if name not in LABEL_KEYS}
    return next(iter(inputs.values())) if len(inputs) == 1 and next(iter(inputs)) in INPUT_KEYS else inputs


def count_batches(loader: Iterable[Any]) -> int | None:
    """How many batches a loader has; a loader of an `IterableDataset` has `__len__` and yet may not know."""
    try:
        return len(loader) if isinstance(loader, Sized) else None
    except TypeError:
        return None


def call_arguments(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """How a network is called with such inputs: a tuple as `*inputs`, a mapping as `**inputs`, all else (a tensor, a tuple
    of texts) as it is."""
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    # no union of types: torch 2.9 would not compile it
    if isinstance(inputs, (tuple, list)) and not all(isinstance(item, str) for item in inputs):
        return tuple(inputs), {}
    return (inputs,), {}


def count_rows(inputs: Any) -> int:
    """The length of the first tensor that has one; 0 where there is none."""
    first = _first_tensor(inputs)
    return 0 if first is None else len(first)


def take_rows(inputs: Any, rows: int, taken: int) -> Any:
    """The first `taken` of a batch's `rows` rows, or, where that is more, all and then the first again."""
    places = slice(taken) if taken <= rows else [place % rows for place in range(taken)]
    return each_tensor(inputs, lambda values: values[places] if values.dim() and len(values) == rows else values)


def move_inputs(inputs: Any, device: torch.device) -> Any:
    """A copy to the host must be awaited; one to an accelerator is ordered before the kernels that read it."""
    return each_tensor(inputs, lambda values: values.to(device, non_blocking=device.type != "cpu"))


def copy_inputs(inputs: Any) -> Any:
    """The same inputs in tensors of their own: a network may write into what it is given, and inputs are read again."""
    return each_tensor(inputs, Tensor.clone)


def read_logits(output: Any) -> Tensor:
    """The logits [n, classes] in what a classifier returned: a tensor, a tuple, or an object or mapping with `logits`.

    A single logit z, as a binary classifier with a sigmoid gives it, becomes the two columns (0, z); its row may have lost
    its dimensions to `squeeze`.
    """
    logits = _find_logits(output)
    if (form := form_of(logits)) not in ("", "meta"):  # on the meta device a network may be run for its shapes
        raise TypeError(f"The network returned a {form} tensor; expected plain logits [n, classes].")
    if not logits.is_floating_point():
        raise TypeError(f"The network returned {logits.dtype} values; expected floating-point logits.")
    if logits.dim() < 2:
        logits = logits.reshape(-1, 1)
    if logits.dim() > 2:
        raise ValueError(
            f"The network returned logits of shape {list(logits.shape)}: a prediction per pixel or token. Only one "
            "prediction per input, [n, classes], can be calibrated; pool or flatten the output to that first."
        )
    if logits.shape[1] == 1:
        logits = torch.cat([torch.zeros_like(logits), logits], dim=1)
    return logits


def check_loader(loader: Iterable[Any], role: str) -> None:
    """Refuse what is no loader of batches, by its type alone, and what can be read only once."""
    readable = hasattr(loader, "__iter__") or hasattr(loader, "__getitem__")
    if not readable or isinstance(loader, Tensor | np.ndarray | Mapping | str):
        raise TypeError(
            f"The {role} loader is {'None' if loader is None else f'a {type(loader).__name__}'}; expected an iterable of "
            "(inputs, labels) batches. Two tensors make one: DataLoader(TensorDataset(inputs, labels), batch_size=100)."
        )
    if isinstance(loader, Iterator):  # a second reading would find nothing
        raise TypeError(
            f"The {role} loader is a {type(loader).__name__}, which can be read only once. Pass a DataLoader, a list of "
            "batches, or an object whose __iter__ starts again."
        )


def refuse_overlap(train: Iterable[Any], holdout: Iterable[Any]) -> None:
    """Refuse a hold-out that shares rows with the training split: weights fitted on memorised rows mean nothing."""
    (base, rows), (other_base, other_rows) = _rows_of(train), _rows_of(holdout)
    if base is not other_base:
        same = np.intersect1d(_addresses(base, rows, "train"), _addresses(other_base, other_rows, "holdout"))
        if len(same):
            raise ValueError(
                f"train and holdout share {len(same)} rows: their tensors lie in the same memory. The stack must be fitted on "
                "rows that trained neither network nor probes."
            )
        return
    if rows is None or other_rows is None:
        raise ValueError(
            f"train and holdout read the same {type(base).__name__}. The stack must be fitted on rows that trained neither "
            "network nor probes; split them, e.g. with torch.utils.data.random_split."
        )
    shared = rows & other_rows
    if shared:
        raise ValueError(
            f"train and holdout share {len(shared)} rows of one {type(base).__name__} (row {min(shared)}, for one). The "
            "stack must be fitted on rows that trained neither network nor probes."
        )


def _read_batch(item: Any, device: torch.device, role: str) -> Batch:
    inputs, labels = _split(item, role)
    return Batch(move_inputs(inputs, device), _read_labels(labels, role).cpu())


def _split(item: Any, role: str) -> tuple[Any, Any]:
    if isinstance(item, Mapping):
        labels = [item[key] for key in LABEL_KEYS if item.get(key) is not None]
        if len(labels) > 1:
            raise ValueError(f"A {role} batch holds labels twice, under {' and '.join(LABEL_KEYS)}. Keep one.")
        if labels:
            return inputs_of(item), labels[0]
        keys = ", ".join(map(str, item))
        raise ValueError(f'A {role} batch holds no labels: its keys are {keys}. Expected a key "labels" or "label".')
    if isinstance(item, Sequence) and not isinstance(item, str) and len(item) >= 2 and item[-1] is not None:
        inputs = item[0] if len(item) == 2 else tuple(item[:-1])
        return inputs, item[-1]
    form = f"a {type(item).__name__}" + (f" of {len(item)}" if isinstance(item, tuple | list) else "")
    raise ValueError(
        f"A {role} batch holds no labels: it is {form}. Expected (inputs, labels) or a mapping with labels."
    )


def _read_labels(labels: Any, role: str) -> Tensor:
    if isinstance(labels, Tensor | np.ndarray):
        labels = plain_tensor(labels, f"The {role} labels")
    try:
        labels = torch.as_tensor(labels)
    except (TypeError, ValueError, RuntimeError) as fault:
        raise TypeError(
            f"The {role} labels are a {type(labels).__name__} that makes no tensor ({fault}); expected integer class numbers."
        ) from fault
    if labels.dim() == 2 and labels.shape[1] > 1:
        raise ValueError(
            f"The {role} labels have shape {list(labels.shape)}: several labels per row (multi-label) or one-hot. Only one "
            "class per row can be calibrated; pass class numbers [n], e.g. labels.argmax(1) of one-hot rows."
        )
    if labels.dim() != 1:
        cast = ".long()" if labels.is_floating_point() else ""
        hint = {
            0: "A row, not a batch: is the loader a Dataset? Wrap it in a DataLoader.",
            2: f"Pass labels.squeeze(1){cast}.",
        }.get(labels.dim(), "A label per pixel or token cannot be calibrated.")
        raise ValueError(
            f"The {role} labels have shape {list(labels.shape)}; expected [n], one whole class number per row. {hint}"
        )
    if labels.is_floating_point() or labels.is_complex():
        raise TypeError(f"The {role} labels are {labels.dtype}; expected integer class numbers: pass labels.long().")
    return labels.long()


def each_tensor(inputs: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """`inputs` with every tensor in it changed: arrays become tensors, mappings dicts, sequences tuples."""
    if isinstance(inputs, Tensor | np.ndarray):
        values = as_tensor(inputs, "inputs")  # sparse or nested ones too: that is the network's business
        return change(plain_tensor(values, "inputs") if values.is_meta else values)
    if isinstance(inputs, Mapping):
        return {name: each_tensor(value, change) for name, value in inputs.items()}
    if isinstance(inputs, tuple | list):
        return tuple(each_tensor(value, change) for value in inputs)
    return inputs


def _first_tensor(inputs: Any) -> Tensor | None:
    positional, named = call_arguments(inputs)
    arrays = (
        value for value in (*positional, *named.values()) if isinstance(value, Tensor | np.ndarray) and value.ndim
    )
    return next((as_tensor(array, "inputs") for array in arrays), None)


def _find_logits(output: Any) -> Tensor:
    if isinstance(output, Mapping) and "logits" in output:
        output = output["logits"]
    elif (logits := getattr(output, "logits", None)) is not None:
        output = logits
    elif isinstance(output, (tuple, list)) and output:  # no union: torch 2.9 would not compile it
        output = output[0]
    if not isinstance(output, Tensor):
        raise TypeError(
            f"The network returned a {type(output).__name__} without logits. Expected a tensor [n, classes], a tuple that "
            "begins with one, or an object with `.logits`."
        )
    return output


def _rows_of(loader: Any) -> tuple[Any, set[int] | None]:
    """The dataset at the bottom of a loader and which of its rows are read (None: all)."""
    base = getattr(loader, "dataset", loader)
    by_batch = getattr(loader, "batch_sampler", None)
    sampler = getattr(loader, "sampler", None) if by_batch is None else getattr(by_batch, "sampler", None)
    chosen = sampler if isinstance(sampler, list | tuple | range) else getattr(sampler, "indices", None)
    rows = None if chosen is None else [int(i) for i in chosen]
    while isinstance(base, Subset):
        indices = [int(i) for i in base.indices]
        rows = indices if rows is None else [indices[i] for i in rows]
        base = base.dataset
    return base, None if rows is None else set(rows)


def _addresses(base: Any, rows: set[int] | None, role: str) -> np.ndarray:
    """Where the inputs of the rows lie in memory, as far as that shows without reading: in a `TensorDataset` and in a list of
    batches."""
    if isinstance(base, TensorDataset):
        inputs = [base.tensors[0]]
    else:
        inputs = [_first_tensor(_split(batch, role)[0]) for batch in base] if isinstance(base, list | tuple) else []
    starts = [np.empty(0, np.int64)]
    for values in inputs:
        if values is not None and not form_of(values) and values.data_ptr():
            places = np.arange(len(values)) if rows is None else np.array(sorted(rows), np.int64)
            starts.append(values.data_ptr() + places * values.stride(0) * values.element_size())
    return np.concatenate(starts)
