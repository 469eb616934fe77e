"""Whether the parts of a saved calibration fit one another: the digest detects damage, not a file made by hand."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import torch
from torch import Tensor

from lates.network import HEAD, Pooling
from lates.probes import Probe

T = TypeVar("T")

RENAMED = {"bounded": "unbounded"}
"""Fields of records that files of earlier versions have by another name."""
LARGEST_GRID = 64
"""Cells per dimension of a pooling; more would only fill the memory."""


def read_record(kind: type[T], fields: Mapping[str, Any]) -> T:
    """A dataclass from its JSON form, each value of the declared type: plain, `Literal` or a tuple. Fields that have a default
    may be missing."""
    plain = {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}
    values = {RENAMED.get(name, name): value for name, value in plain.items()}
    for name, hint in get_type_hints(kind).items():
        if name not in values and hasattr(kind, name):
            continue
        value, form = values[name], get_origin(hint)
        if form is tuple:
            fits = type(value) is tuple and all(type(item) is get_args(hint)[0] for item in value)
        else:
            fits = value in get_args(hint) if form is Literal else type(value) is hint
        if not fits:
            raise TypeError(f"{name}={value!r} in {kind.__name__}")
    return kind(**values)


def check_members(names: Sequence[str], accuracies: Sequence[float], weights: Tensor, deviations: Tensor) -> None:
    """One finite weight and deviation >= 0 for each member, the head last; the accuracies of all members or of none."""
    if list(names[-1:]) != [HEAD] or len(set(names)) < len(names):
        raise TypeError(f"names={names!r}")
    for what, values in {"weights": weights, "deviations": deviations}.items():
        if values.shape != (len(names),) or not bool(((values >= 0) & values.isfinite()).all()):
            raise TypeError(f"{what}={values.tolist()} for members {names!r}")
    if accuracies and (len(accuracies), {type(value) for value in accuracies}) != (len(names), {float}):
        raise TypeError(f"accuracies={accuracies!r}")


def check_probes(
    probes: Mapping[str, Probe], poolings: Mapping[str, Pooling], names: Sequence[str], classes: int
) -> None:
    """Probes in the order of the members, with finite values and shapes that fit the classes."""
    if [name for name in names if name in probes] != list(probes):
        raise TypeError(f"probes on {list(probes)!r} for members {names!r}")
    for name, probe in probes.items():
        rank = classes if probe.up is None else len(probe.down)
        parts = {"down": probe.down, "bias": probe.bias} | ({} if probe.up is None else {"up": probe.up})
        expected = {"down": (rank, probe.down.shape[-1]), "bias": (classes,), "up": (classes, rank)}
        for part, values in parts.items():
            if values.shape != expected[part] or not bool(values.isfinite().all()):
                raise TypeError(
                    f'{part} of the probe on "{name}" has shape {list(values.shape)} or values that are not finite'
                )
        unseen = probe.unseen
        if unseen is not None and (unseen.dtype, unseen.shape, bool(unseen.all())) != (torch.bool, (classes,), False):
            raise TypeError(f'unseen classes of the probe on "{name}"')
        pooling = poolings[name]
        if pooling.method == "grid" and not all(1 <= side <= LARGEST_GRID for side in pooling.size):
            raise TypeError(f'size={pooling.size} of the pooling of "{name}"')
