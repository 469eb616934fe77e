"""Checks of logits, labels and arguments, for every function that takes them.

Logits are any real numbers whose softmax is a distribution. A logit of -inf is the log of a zero probability, and the
metrics take it; NaN, +inf and a row of nothing but -inf have no softmax. What is fitted is a weighted sum of logits, for
which no weight could undo an infinite one: fits need finite logits, `FINITE` says how to get them. Nothing here copies or
casts logits: what is returned shares memory with the argument.
"""

import math
import operator
import sys
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, SupportsFloat, SupportsIndex

import numpy as np
import torch
from torch import Tensor

from lates.runtime.threads import on_one_core

Array = Tensor | np.ndarray

FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
"""With these torch can compute; the others only store."""
FINITE = "probabilities.clamp(min=1e-12).log() for logs of probabilities, logits.clamp(min=-100) for masked classes"
"""Finite logits with the same softmax, to the last digit of float32, under weights near 1; and not so large that they alone
make up a member's scale."""
SMALLEST = 1e-100
"""Below this no sum of squared logits is left; a member that is 0 throughout says nothing and is fine."""


def as_tensor(values: Tensor | np.ndarray, name: str) -> Tensor:
    """The same numbers as a tensor; an array is viewed, not copied, where its strides allow it."""
    if isinstance(values, Tensor):
        return values
    if not isinstance(values, np.ndarray) or isinstance(values, np.ma.MaskedArray):
        hint = " Drop the masked rows first." if isinstance(values, np.ma.MaskedArray) else ""
        raise TypeError(f"{name} came as {type(values).__name__}; expected a torch tensor or a numpy array.{hint}")
    if values.dtype.kind not in "biufc" or values.dtype.itemsize > 8 << (values.dtype.kind == "c"):
        raise TypeError(f"{name} have dtype {values.dtype}; expected numbers of at most 64 bits.")
    if any(stride < 0 for stride in values.strides):
        values = values.copy()
    return torch.from_numpy(values if values.flags.writeable else np.asarray(_Writable(values)))


class _Writable:
    """The memory of a read-only array, said to be writable: torch would warn of it, and we only read."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array  # which owns the memory
        interface = array.__array_interface__
        self.__array_interface__ = {**interface, "data": (interface["data"][0], False)}


def plain_tensor(values: Tensor | np.ndarray, name: str) -> Tensor:
    """As `as_tensor`; a tensor without a value at each place is refused."""
    tensor = as_tensor(values, name)
    if form := form_of(tensor):
        raise TypeError(f"{name} are a {form} tensor; expected a plain one, whose values are there.")
    return tensor


def form_of(values: Tensor) -> str:
    """What keeps a tensor from having one value at each place; "" where nothing does."""
    forms = {
        "meta": values.is_meta,
        "nested": values.is_nested,
        "sparse": values.layout != torch.strided,
        "quantised": values.is_quantized,
    }
    return next((form for form, it_is in forms.items() if it_is), "")


def check_logits(logits: Tensor | np.ndarray, name: str = "logits", least_rows: int = 1) -> Tensor:
    """Logits [n, classes] of a floating dtype, at least `least_rows` rows, each row with a softmax."""
    logits = check_form(logits, name, least_rows)
    check_peaks(on_one_core(Tensor.amax, logits.detach(), 1, device=logits.device), name)
    return logits


def check_form(logits: Tensor | np.ndarray, name: str = "logits", least_rows: int = 1) -> Tensor:
    """Logits [n, classes] of a floating dtype, at least `least_rows` rows; their values are not checked."""
    logits = plain_tensor(logits, name)
    if logits.ndim != 2:
        hint = " For two classes pass [n, 2], for example torch.stack([-z, z], 1) / 2." if logits.ndim == 1 else ""
        raise ValueError(f"{name} have shape {list(logits.shape)}; expected [n, classes].{hint}")
    if len(logits) < least_rows or logits.shape[1] == 0:
        raise ValueError(f"{name} are empty, of shape {list(logits.shape)}; expected at least one row and one class.")
    if logits.dtype not in FLOATS:
        hint = "Cast them by .float()." if logits.is_floating_point() else "Labels go second."
        raise TypeError(f"{name} have dtype {logits.dtype}; expected floating-point logits [n, classes]. {hint}")
    return logits


def check_peaks(peaks: Tensor, name: str = "logits") -> None:
    """Check by the rows' maxima [n] that every row of logits has a softmax.

    One number serves all three faults: it is NaN where the row holds NaN, +inf where it holds +inf, and -inf where it holds
    nothing else.
    """
    faulty = torch.nonzero(~torch.isfinite(peaks))
    if len(faulty):
        row = int(faulty[0])
        fault = {"nan": "NaN", "inf": "+inf", "-inf": "only -inf"}[str(float(peaks[row]))]
        raise ValueError(
            f"{name} hold {fault} in row {row} ({len(faulty)} of {len(peaks)} rows have no softmax); "
            "expected finite numbers. Look for such numbers in the row's inputs, then for overflow in the network."
        )


def check_finite(logits: Tensor, name: str = "logits") -> None:
    """Check that all logits [n, classes] are finite, and not too small to be squared."""
    if not logits.numel():
        return
    extremes = on_one_core(Tensor.aminmax, logits, device=logits.device)
    largest = max(abs(float(value)) for value in extremes)  # NaN if any logit is
    if 0 < largest < SMALLEST:
        raise ValueError(
            f"{name} are at most {largest:.1e}, whose squares float64 cannot hold. Scale them, e.g. logits / {largest:.0e}."
        )
    if not math.isfinite(largest):
        check_peaks(logits.amax(dim=1), name)
        row = int(logits.amin(dim=1).isinf().nonzero()[0])
        raise ValueError(f"{name} hold -inf in row {row}; a weighted sum of logits needs finite ones. Use {FINITE}.")


def check_labels(labels: Tensor | np.ndarray, rows: int, classes: int, *, name: str = "labels") -> Tensor:
    """Labels [n] as int64, one for each row of logits, each in 0 … classes - 1."""
    labels = plain_tensor(labels, name)
    if labels.ndim != 1 or len(labels) != rows:
        hint = " One-hot labels become indices by .argmax(1)." if tuple(labels.shape) == (rows, classes) else ""
        raise ValueError(f"{name} have shape {list(labels.shape)}; expected [{rows}], one label for each row.{hint}")
    if labels.dtype == torch.bool and classes != 2:
        raise TypeError(f"{name} have dtype torch.bool, but the logits have {classes} classes; expected integers.")
    if labels.is_floating_point() or labels.is_complex():
        raise TypeError(f"{name} have dtype {labels.dtype}; expected integers. If they are class indices, use .long().")
    labels = labels.long()
    smallest, largest = on_one_core(Tensor.aminmax, labels, device=labels.device) if rows else (0, 0)
    if int(smallest) < 0 or int(largest) >= classes:
        row = int(torch.nonzero((labels < 0) | (labels >= classes))[0])
        hint = "Drop rows without a label; let labels start at 0."
        if classes == 1:
            hint = "A single logit z, as a sigmoid takes it, stands for two classes: pass torch.cat([0 * z, z], 1)."
        raise ValueError(
            f"{name} hold {int(labels[row])} in row {row}; expected 0 to {classes - 1}, as the logits have {classes} "
            f"{'class' if classes == 1 else 'classes'}. {hint}"
        )
    return labels


def default_names(members: int) -> tuple[str, ...]:
    """Names of members that have none: "0", "1", …, "head"."""
    return (*map(str, range(members - 1)), "head")


def name_members(members: Array | Sequence[Array] | Mapping[str, Array]) -> Mapping[str, Array]:
    """Name -> logits of members: an array [n, classes, members], or a sequence or mapping of [n, classes]."""
    if isinstance(members, Array) or not isinstance(members, Iterable):
        if plain_tensor(members, "members").ndim != 3:
            raise ValueError(
                f"members have shape {list(members.shape)}; expected [n, classes, members]. "
                "For the head alone pass logits[:, :, None] or [logits]."
            )
        members = [members[:, :, column] for column in range(members.shape[2])]
    logits = [*members.values()] if isinstance(members, Mapping) else [*members]
    if not logits:
        raise ValueError("There are no members; expected at least the head's logits [n, classes].")
    return dict(zip(members if isinstance(members, Mapping) else default_names(len(logits)), logits, strict=True))


def check_members(
    members: Array | Sequence[Array] | Mapping[str, Array], labels: Array, least_rows: int = 1
) -> tuple[tuple[str, ...], tuple[Tensor, ...], Tensor]:
    """Names, logits and labels of members."""
    named = name_members(members)
    names = tuple(named)
    logits = tuple(check_form(member, f'logits of member "{name}"', least_rows).detach() for name, member in named.items())
    shape = logits[-1].shape
    for name, member in zip(names, logits, strict=True):
        if member.shape != shape:
            raise ValueError(
                f'Member "{name}" has shape {list(member.shape)}, but the head "{names[-1]}" has {list(shape)}; '
                "all members need the same rows and classes."
            )
        check_finite(member, f'logits of member "{name}"')
        warn_if_probabilities(member, f'logits of member "{name}"')
    return names, logits, check_labels(labels, *shape)


def warn_if_probabilities(logits: Tensor, name: str = "logits") -> None:
    """Warn where every row is non-negative and sums to one: a second softmax would flatten such rows unnoticed."""
    logits = logits.detach()
    if len(logits) == 0 or logits.shape[1] < 2 or bool((logits[0] < 0).any()) or bool(logits.amin() < 0):
        return
    tolerance = {torch.float64: 1e-6, torch.float32: 1e-4}.get(logits.dtype, 1e-2)
    sums = logits.sum(dim=1, dtype=torch.float64)
    if bool(((sums - 1).abs() <= tolerance).all()):
        warn_caller(
            f"{name} look like probabilities: every row is non-negative and sums to 1. They are treated as logits all the "
            "same. If they are probabilities, pass, or let the network return, what the softmax was taken of, or their "
            "logarithm: probabilities.clamp(min=1e-12).log() are valid logits."
        )


def warn_caller(text: str, category: type[Warning] = UserWarning) -> None:
    """A warning that points at the first line outside this package."""
    frame, level = sys._getframe(), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "lates":
        frame, level = frame.f_back, level + 1
    warnings.warn(text, category, stacklevel=level)


def check_integer(value: Any, name: str, least: int | None = None) -> int:
    """An argument that counts something: a whole number, numpy's and torch's included, but no truth value."""
    if isinstance(value, bool) or not isinstance(value, SupportsIndex):
        raise TypeError(f"{name}={value!r}: expected a whole number.")
    number = operator.index(value)
    if least is not None and number < least:
        raise ValueError(f"{name}={number}: expected at least {least}.")
    return number


def check_share(value: Any, name: str, open_ends: bool = False) -> float:
    """A share from 0 to 1, as a number or as text: 0.05, "0.05", "5%". With `open_ends`, neither 0 nor 1."""
    number = value
    if isinstance(value, str):
        text = value.strip()
        try:
            number = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
        except ValueError:
            raise ValueError(f'{name}="{value}": expected a share, such as 0.05 or "5%".') from None
    if isinstance(number, bool) or not isinstance(number, SupportsFloat):
        raise TypeError(f'{name}={value!r}: expected a share, such as 0.05 or "5%".')
    share = float(number)
    if not 0 <= share <= 1 or (open_ends and share in (0, 1)):
        in_percent = 1 <= share <= 100 and not str(value).endswith("%")
        hint = f" Did you mean {share:g} % = {share / 100:g}?" if in_percent else ""
        raise ValueError(f"{name}={value}: expected a share {'between 0 and 1' if open_ends else 'from 0 to 1'}.{hint}")
    return share


def check_budget(budget: Any) -> float | None:
    """A share of the network's parameters, such as 0.01 or "1%"; None: no limit. Values above 1 are refused."""
    return None if budget is None else check_share(budget, "budget")


def check_seed(seed: Any) -> int:
    """A seed that torch's generators take: 64 bits, signed or not."""
    seed = check_integer(seed, "seed")
    if not -(2**63) <= seed < 2**64:
        raise ValueError(f"seed={seed}: expected a whole number of at most 64 bits.")
    return seed
