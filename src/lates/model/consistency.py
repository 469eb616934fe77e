"""What a calibration's file says, as records whose parts fit one another.

The digest of a file detects damage. It is no signature: a file made by hand can carry the right one. So its tensors are checked
against one another, and what would take memory out of all proportion is refused.
"""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from typing import Any, TypeVar

import torch
from torch import Tensor

from lates.model.stacked import NetworkCalibration
from lates.model.storage import read_calibration
from lates.network import HEAD, Pooling
from lates.probes import Probe
from lates.runtime import check_integer, check_seed
from lates.stack import Stack, member_names

T = TypeVar("T")

FITTED = "fitted"
"""In the metadata of what `lates fit` wrote: weights for saved logits, without a network."""
RENAMED = {"bounded": "unbounded"}
"""Fields of records that files of earlier versions have by another name."""


@dataclass(frozen=True, eq=False)
class SavedCalibration:
    samples: int
    seed: int
    fit: Stack
    networks: tuple[NetworkCalibration, ...]


def read_saved(path: str | PathLike[str]) -> SavedCalibration:
    """The calibration of a network, or networks, in a file."""
    tensors, metadata = read_calibration(path)
    if FITTED in metadata:
        raise ValueError(
            f"{path} holds weights for saved logits, by `lates fit`; expected a file written by `lates calibrate` or by `save`."
        )
    return parse_saved(tensors, metadata, path)


def parse_saved(
    tensors: Mapping[str, Tensor], metadata: Mapping[str, Any], path: str | PathLike[str]
) -> SavedCalibration:
    with naming_damage(path, "Save the calibration again."):
        classes = metadata["fit"]["classes"]
        networks = tuple(
            _network(saved, _under(f"{place}.", tensors), classes) for place, saved in enumerate(metadata["voters"])
        )
        members = {
            "names": member_names([network.names for network in networks]),
            "weights": torch.cat([network.weights.double() for network in networks]),
            "deviations": torch.cat([tensors[f"{place}.deviations"].double() for place in range(len(networks))]),
        }
        fit = read_stack({**metadata["fit"], **members})
        samples = check_integer(metadata["samples"], "samples", least=1)
        return SavedCalibration(samples, check_seed(metadata["seed"]), fit, networks)


@contextmanager
def naming_damage(path: str | PathLike[str], cure: str) -> Iterator[None]:
    """Whatever is missing or does not fit within becomes one error that names the file."""
    try:
        yield
    except (LookupError, TypeError, AttributeError, ValueError, ArithmeticError, RuntimeError) as fault:
        raise ValueError(f"The contents of {path} are damaged ({fault!r:.400}). {cure}") from fault


def read_stack(fields: Mapping[str, Any]) -> Stack:
    """A fit from its JSON form and its members' tensors."""
    fit = _record(Stack, fields)
    _demand(len(set(fit.names)) == len(fit.names) > 0, "names", fit.names)
    _demand(bool(((fit.weights >= 0) & fit.weights.isfinite()).all()), "weights", fit.weights)
    _demand(fit.weights.shape == fit.deviations.shape == (len(fit.names),), "weights", fit.weights)
    return fit


def _record(kind: type[T], fields: Mapping[str, Any]) -> T:
    """A dataclass from its JSON form, in which tuples are lists."""
    plain = {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}
    return kind(**{RENAMED.get(name, name): value for name, value in plain.items()})


def _network(saved: Mapping[str, Any], tensors: Mapping[str, Tensor], classes: int) -> NetworkCalibration:
    names, weights = tuple(saved["names"]), tensors["weights"]
    poolings = {name: _record(Pooling, fields) for name, fields in saved["poolings"].items()}
    probes = {name: _probe(_under(f"probes.{place}.", tensors), classes) for place, name in enumerate(poolings)}
    for name, probe in probes.items():
        _check_pooling(poolings[name], probe.down.shape[1])
    votes = {name for name, weight in zip(names[:-1], weights.tolist(), strict=False) if weight > 0}
    _demand(names[-1] == HEAD and votes <= {*probes} <= {*names}, "members", names)
    return NetworkCalibration(names, weights, poolings, probes, tuple(saved.get("accuracies", ())), saved["network"])


def _probe(parts: Mapping[str, Tensor], classes: int) -> Probe:
    probe = Probe(parts["down"], parts.get("up"), parts["bias"], parts.get("unseen"), parts.get("cap"))
    rank, width = probe.down.shape
    outputs = classes if probe.up is None else rank
    shapes = {"down": (outputs, width), "up": (classes, rank), "bias": (classes,), "unseen": (classes,), "cap": ()}
    for name, values in parts.items():
        fits = values.shape == shapes[name] and bool(values.isfinite().all())
        _demand(fits, f"{name} of {values.dtype}", list(values.shape))
    return probe


def _check_pooling(pooling: Pooling, width: int) -> None:
    """That it takes no more memory than features of this width: a grid's cells are part of the width."""
    cells = pooling.size[:-1] if pooling.method in ("spatial", "flat") else pooling.size
    fits = all(0 < side <= width for side in pooling.size) and math.prod(cells) <= width
    _demand(fits, f"pooling to {width} features", pooling)


def _under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def _demand(fits: bool, what: str, came: object) -> None:
    if not fits:
        raise ValueError(f"{what}: {came}")
