"""What a calibration's file says, as records whose parts fit one another.

The digest of a file detects damage. It is no signature: a file made by hand can carry the right one. So every part is checked
against the others before anything is computed with it.
"""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import torch
from torch import Tensor

from lates.model.stacked import NetworkCalibration
from lates.model.storage import read_calibration
from lates.network import HEAD, Pooling
from lates.probes import Probe
from lates.runtime import FLOATS, check_integer, check_seed
from lates.stack import Stack, member_names

T = TypeVar("T")

FITTED = "fitted"
"""In the metadata of what `lates fit` wrote: weights for saved logits, without a network."""
RENAMED = {"bounded": "unbounded", "nll_before": "nll_network"}
"""Fields of records that files of earlier versions have by another name."""
PAPER_METHODS = ("spatial", "flat")
METHODS = {
    "vector": ("none", *PAPER_METHODS),
    "tokens": ("class", "mean", *PAPER_METHODS),
    "raster": ("grid", *PAPER_METHODS),
}
"""The paper's poolings take any layout."""


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


def parse_saved(tensors: Mapping[str, Tensor], metadata: Mapping[str, Any], path: str | PathLike[str]) -> SavedCalibration:
    with naming_damaged_file(path, "Save the calibration again."):
        classes = metadata["fit"]["classes"]
        networks = tuple(
            _network(saved, _with_prefix(f"{number}.", tensors), classes) for number, saved in enumerate(metadata["voters"])
        )
        probes = [probe for network in networks for probe in network.probes.values()]
        parts = 2 * len(networks) + sum(part is not None for probe in probes for part in vars(probe).values())
        _require(len(tensors) == parts, "tensors", list(tensors))
        members = {
            "names": member_names([network.names for network in networks]),
            "weights": torch.cat([network.weights.double() for network in networks]),
            "deviations": torch.cat([tensors[f"{number}.deviations"].double() for number in range(len(networks))]),
        }
        fit = read_stack({**metadata["fit"], **members})
        _require(len(fit.temperature_weights) == len(networks), "temperature_weights", fit.temperature_weights)
        _require(len(fit.budgets) == len(fit.budget_nll), "budget_nll", fit.budget_nll)
        samples = check_integer(metadata["samples"], "samples", least=1)
        return SavedCalibration(samples, check_seed(metadata["seed"]), fit, networks)


@contextmanager
def naming_damaged_file(path: str | PathLike[str], cure: str) -> Iterator[None]:
    """Whatever is missing or does not fit within becomes one error that names the file."""
    try:
        yield
    except (LookupError, TypeError, AttributeError, ValueError, ArithmeticError, RuntimeError) as fault:
        raise ValueError(f"The contents of {path} are damaged ({fault!r:.400}). {cure}") from fault


def read_record(kind: type[T], fields: Mapping[str, Any]) -> T:
    """A dataclass from its JSON form, each value of the declared type: plain, `Literal` or a tuple. Fields that have a default
    may be missing."""
    values = {RENAMED.get(name, name): tuple(v) if isinstance(v, list) else v for name, v in fields.items()}
    for name, hint in get_type_hints(kind).items():
        if name not in values and hasattr(kind, name):
            continue
        value, form = values[name], get_origin(hint)
        if form is tuple:
            fits = type(value) is tuple and all(type(item) is get_args(hint)[0] for item in value)
        else:
            fits = value in get_args(hint) if form is Literal else type(value) is hint
        _require(fits, f"{kind.__name__}.{name}", value)
    return kind(**values)


def read_stack(fields: Mapping[str, Any]) -> Stack:
    """A fit from its JSON form and its members' tensors."""
    fit = read_record(Stack, fields)
    _require(fit.rows > 0, "rows", fit.rows)
    _require(fit.classes > 0, "classes", fit.classes)
    _require(len(set(fit.names)) == len(fit.names) > 0, "names", fit.names)
    for name, weights in {"weights": fit.weights, "temperature_weights": torch.tensor(fit.temperature_weights)}.items():
        _require(bool(((weights >= 0) & weights.isfinite()).all()), name, weights)
    _require(fit.weights.shape == fit.deviations.shape == (len(fit.names),), "weights", fit.weights)
    return fit


def _network(saved: Mapping[str, Any], tensors: Mapping[str, Tensor], classes: int) -> NetworkCalibration:
    names, accuracies = tuple(saved["names"]), tuple(saved.get("accuracies", ()))
    _require(names[-1] == HEAD, "names", names)
    _require(len(accuracies) in (0, len(names)), "accuracies", accuracies)
    _require(all(type(value) is float and 0 <= value <= 1 for value in accuracies), "accuracies", accuracies)
    for part in ("weights", "deviations"):
        _check_tensor(part, tensors[part], (len(names),))
        _require(bool((tensors[part] >= 0).all()), part, tensors[part])
    poolings = {name: read_record(Pooling, fields) for name, fields in saved["poolings"].items()}
    probes = {name: _probe(_with_prefix(f"probes.{number}.", tensors), classes) for number, name in enumerate(poolings)}
    for name, probe in probes.items():
        _check_pooling(poolings[name], probe.down.shape[1])
    votes = {name for name, weight in zip(names[:-1], tensors["weights"].tolist(), strict=False) if weight > 0}
    _require([name for name in names[:-1] if name in probes] == list(probes), "probes on", list(probes))
    _require(votes <= {*probes}, "members without a probe", votes - {*probes})
    for name, (shape, digest) in saved["network"].items():
        _require({*map(type, shape)} <= {int} and type(digest) is str, f"network.{name}", shape)
    return NetworkCalibration(names, tensors["weights"], poolings, probes, accuracies, saved["network"])


def _probe(parts: Mapping[str, Tensor], classes: int) -> Probe:
    probe = Probe(parts["down"], parts.get("up"), parts["bias"], parts.get("unseen"), parts.get("cap"))
    rank, width = classes if probe.up is None else len(probe.down), probe.down.shape[-1]
    for name, shape in {"down": (rank, width), "bias": (classes,), "up": (classes, rank)}.items():
        if name in parts:
            _check_tensor(name, parts[name], shape)
            _require(parts[name].dtype == probe.bias.dtype, f"{name} of {parts[name].dtype}", probe.bias.dtype)
    if (unseen := probe.unseen) is not None:
        fits = unseen.dtype == torch.bool and unseen.shape == (classes,) and not bool(unseen.all())
        _require(fits, f"unseen of {unseen.dtype}", unseen)
    if probe.cap is not None:
        _check_tensor("cap", probe.cap, ())
        _require(float(probe.cap) >= 0, "cap", probe.cap)
    return probe


def _check_tensor(name: str, values: Tensor, shape: tuple[int, ...]) -> None:
    _require(values.dtype in FLOATS and values.shape == shape, f"{name} of {values.dtype}", list(values.shape))
    _require(bool(values.isfinite().all()), name, "values that are not finite")


def _check_pooling(pooling: Pooling, width: int) -> None:
    """That it can give this many features, and takes no more memory than they do: a grid's cells are part of the width."""
    is_papers = pooling.method in PAPER_METHODS
    cells = pooling.size[:-1] if is_papers else pooling.size
    on_raster = pooling.layout == "raster" and pooling.method != "flat"
    fits = (
        pooling.method in METHODS[pooling.layout]
        and (not is_papers or pooling.size[-1:] == (width,))
        and (1 <= len(cells) <= 3 if on_raster else not cells)
        and all(side > 0 for side in cells)
        and (math.prod(cells) <= width if is_papers else width % math.prod(cells) == 0 < width)
        and pooling.rows_axis in (0, 1)
        and pooling.channels_axis in (1, -1)
    )
    _require(fits, f"pooling to {width} features", pooling)


def _with_prefix(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def _require(fits: bool, what: str, found: object) -> None:
    if not fits:
        raise ValueError(f"{what}: {found}")
