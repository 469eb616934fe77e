"""What a loader yields and a network returns: inputs, labels, logits. Checked once, here."""

import inspect
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lates.runtime import as_tensor, plain_tensor

IGNORED = -100
"""Rows with this label are left out, as in `torch.nn.functional.cross_entropy`."""

LABEL_KEYS = ("labels", "label")

INPUT_KEYS = ("image", "images", "input", "inputs", "x")
"""What data sets call their only input: beside labels alone, it is passed by position, whatever the network calls it."""


def read_batches(loader: Iterable[Any], device: torch.device, role: str = "loader") -> Iterator[tuple[Any, Tensor]]:
    """Yield (inputs, labels) of each batch: inputs as the loader gave them, on `device`; labels [n] (int64, `IGNORED` included)
    on the CPU, where they are checked, since each check on a GPU would wait for all its work.

    `role` names the loader in errors ("train", "holdout").
    """
    check_loader(loader, role)
    empty = True
    for item in loader:
        empty = False
        inputs, labels = _split_batch(item, role)
        yield move_inputs(inputs, device), _read_labels(labels, role).cpu()
    if empty:
        raise ValueError(
            f"The {role} loader yielded no batch. Expected (inputs, labels) batches; is its dataset empty, or can it be read "
            "only once?"
        )


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


def inputs_of(item: Any) -> Any:
    """What a network is called with, of a mapping that may hold labels too; all else as it is."""
    if not isinstance(item, Mapping):
        return item
    inputs = {name: value for name, value in item.items() if name not in LABEL_KEYS}
    return next(iter(inputs.values())) if len(inputs) == 1 and next(iter(inputs)) in INPUT_KEYS else inputs


def count_batches(loader: Iterable[Any]) -> int | None:
    """How many batches a loader has, if it knows: that of an `IterableDataset` has `__len__`, which may fail."""
    return operator.length_hint(loader) or None


def call_arguments(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """A tuple is passed to a network as `*inputs`, a mapping as `**inputs`, all else (a tensor, texts) as it is."""
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    # no union of types: torch 2.9 would not compile it
    if isinstance(inputs, (tuple, list)) and not all(isinstance(item, str) for item in inputs):
        return tuple(inputs), {}
    return (inputs,), {}


LOADER_ADVICE = "Let the loader give what the network takes, then the labels; of (inputs, labels, index) leave the index out."


def check_call(network: nn.Module, inputs: Any, role: str, advice: str = LOADER_ADVICE) -> None:
    """Refuse inputs that the network's `forward` has no place for, by the name of their loader."""
    positional, named = call_arguments(inputs)
    signature = inspect.signature(network.forward)
    try:
        signature.bind(*positional, **named)
    except TypeError as fault:
        received = f"the keys {', '.join(named)}" if named else f"{len(positional)} inputs"
        raise TypeError(
            f"A {role} batch holds {received} beside the labels; {type(network).__name__}.forward takes {signature}: {fault}. "
            f"{advice}"
        ) from fault


def count_rows(inputs: Any) -> int:
    """The length of the first tensor that has one; 0 where there is none."""
    positional, named = call_arguments(inputs)
    arrays = [value for value in (*positional, *named.values()) if isinstance(value, Tensor | np.ndarray)]
    return next((len(array) for array in arrays if array.ndim), 0)


def take_rows(inputs: Any, rows: int, taken: int) -> Any:
    """The first `taken` of a batch's `rows` rows, or, where that is more, all and then the first again."""
    indices = [index % rows for index in range(taken)]
    return each_tensor(inputs, lambda values: values[indices] if values.dim() and len(values) == rows else values)


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
    logits = output
    if isinstance(output, Mapping) and "logits" in output:
        logits = output["logits"]
    elif (attribute := getattr(output, "logits", None)) is not None:
        logits = attribute
    elif isinstance(output, (tuple, list)) and output:  # no union: torch 2.9 would not compile it
        logits = output[0]
    if not isinstance(logits, Tensor):
        raise TypeError(
            f"The network returned a {type(logits).__name__} without logits. Expected a tensor [n, classes], a tuple that "
            "begins with one, or an object with `.logits`."
        )
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


def _split_batch(item: Any, role: str) -> tuple[Any, Any]:
    """Inputs and labels."""
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
    raise ValueError(f"A {role} batch holds no labels: it is {form}. Expected (inputs, labels) or a mapping with labels.")


def _read_labels(labels: Any, role: str) -> Tensor:
    name = f"The {role} labels"
    if isinstance(labels, Tensor | np.ndarray):
        labels = plain_tensor(labels, name)
    try:
        labels = torch.as_tensor(labels)
    except (TypeError, ValueError, RuntimeError) as fault:
        raise TypeError(
            f"{name} are a {type(labels).__name__} that makes no tensor ({fault}); expected integer class numbers."
        ) from fault
    if labels.dim() != 1:
        hint = "A label per pixel or token cannot be calibrated."
        if labels.dim() == 0:
            hint = "A row, not a batch: is the loader a Dataset? Wrap it in a DataLoader."
        elif labels.dim() == 2 and labels.shape[1] == 1:
            hint = "Pass labels.squeeze(1)."
        elif labels.dim() == 2:
            hint = "Several labels per row (multi-label) cannot be calibrated; of one-hot rows pass labels.argmax(1)."
        raise ValueError(f"{name} have shape {list(labels.shape)}; expected [n], one whole class number per row. {hint}")
    if labels.is_floating_point() or labels.is_complex():
        raise TypeError(f"{name} are {labels.dtype}; expected integer class numbers: pass labels.long().")
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


def is_dense(value: Tensor) -> bool:
    """Whether it is a plain strided tensor: neither sparse nor nested, nor of a subclass that packs its values."""
    return type(value) is Tensor and value.layout == torch.strided and not value.is_nested
