"""Files that `lates calibrate` and `lates fit` write: as plain data, as text, and applied to saved logits."""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from lates.cli.saved_logits import read_logits
from lates.model import (
    FITTED,
    KEY,
    SavedCalibration,
    fit_lines,
    member_table,
    naming_damaged_file,
    parse_saved,
    read_calibration,
    read_stack,
    write_calibration,
)
from lates.network import HEAD
from lates.report import Predictions
from lates.stack import Stack, apply_stack

CALIBRATION, FITTED_WEIGHTS = "calibration of a network", "weights for saved logits"


def read_contents(path: Path) -> tuple[Stack, dict[str, Any]]:
    """The stack of a file, and everything the file says without its network, ready for JSON."""
    tensors, metadata = read_calibration(path)
    file = {"file": str(path), "bytes": path.stat().st_size}
    if FITTED in metadata:
        stack = parse_fitted(tensors, metadata, path)
        return stack, {**file, **fitted_contents(stack)}
    saved = parse_saved(tensors, metadata, path)
    return saved.fit, {**file, **_calibration_contents(saved)}


def fitted_contents(stack: Stack) -> dict[str, Any]:
    return {
        "kind": FITTED_WEIGHTS,
        "members": _members(stack),
        "temperature": stack.temperature if len(stack.names) == 1 else None,
        "fit": {**stack.numbers, "nll_before": stack.nll_network, "outcome": stack.outcome},
    }


def _members(stack: Stack) -> list[dict[str, Any]]:
    return [
        {"name": name, "weight": weight, "contribution": stack.contributions[name]}
        for name, weight in zip(stack.names, stack.weights.tolist(), strict=True)
    ]


def _calibration_contents(saved: SavedCalibration) -> dict[str, Any]:
    members = _members(saved.fit)
    owners = [(network, name) for network in saved.networks for name in network.names]
    for member, (network, name) in zip(members, owners, strict=True):
        member |= {"spread": saved.fit.spread[member["name"]], "probe": None, "pooling": None}
        if probe := network.probes.get(name):
            rank, features = probe.down.shape
            size = {"features": features, "rank": None if probe.up is None else rank, "parameters": probe.parameters}
            member |= {"probe": size, "pooling": asdict(network.poolings[name])}
    return {
        "kind": CALIBRATION,
        "members": members,
        "samples": saved.samples,
        "seed": saved.seed,
        "added_parameters": sum(probe.parameters for one in saved.networks for probe in one.probes.values()),
        "fit": {**saved.fit.numbers, "outcome": saved.fit.outcome},
        "networks": [_network(network.fingerprint) for network in saved.networks],
    }


def _network(entries: Mapping[str, Any]) -> dict[str, Any]:
    """The size of a network, and a digest that is equal in files for the same weights."""
    text = json.dumps(sorted(entries.items()))
    return {
        "tensors": len(entries),
        "numbers": sum(math.prod(shape) for shape, _ in entries.values()),
        "digest": hashlib.sha256(text.encode()).hexdigest()[:16],
    }


def describe_contents(stack: Stack, contents: Mapping[str, Any]) -> str:
    """In 80 columns: one line per member, then the fit."""
    lines = [f"{contents['file']}: {contents['kind']}, {contents['bytes']:,} bytes", ""] if "file" in contents else []
    probes = {member["name"]: _describe_probe(member) for member in contents["members"] if "probe" in member}
    lines += [*member_table(stack, probes, "probe" if probes else ""), *fit_lines(stack)]
    if contents.get("temperature") is not None:
        lines.append(f"temperature {contents['temperature']:.4f}")
    if contents["kind"] == CALIBRATION:
        lines.append(f"{contents['added_parameters']:,} parameters added")
        if contents["samples"] > 1:
            lines.append(f"MC dropout: the mean of {contents['samples']} samples, seed {contents['seed']}")
        lines += [
            f"for a network of {one['tensors']:,} tensors, {one['numbers']:,} numbers, digest {one['digest']}"
            for one in contents["networks"]
        ]
    return "\n".join(lines)


def _describe_probe(member: Mapping[str, Any]) -> str:
    probe = member["probe"]
    if probe is None:
        return "the network's output" if member["name"].split("/")[-1] == HEAD else "none"
    return f"{probe['features']} features" + (f", rank {probe['rank']}" if probe["rank"] else "")


def save_fitted(stack: Stack, path: Path) -> None:
    tensors = {"weights": stack.weights, "deviations": stack.deviations}
    write_calibration(path, tensors, {FITTED: {"names": stack.names, **stack.numbers}})


def parse_fitted(tensors: Mapping[str, Tensor], metadata: Mapping[str, Any], path: Path) -> Stack:
    with naming_damaged_file(path, "Fit again."):
        deviations = torch.full_like(tensors["weights"], math.nan)
        unknown = {"deviations": deviations, "nll_temperature": math.nan, "temperature_weights": []}  # before 0.1.0
        return read_stack({**unknown, **metadata[FITTED], **tensors})


def read_methods(path: Path, labels: Path | None, fitted: Path | None) -> Predictions:
    """Saved logits, member by member, the head last; or the head before and after what `lates fit` wrote to a file."""
    if _holds_calibration(path):
        raise ValueError(
            f"{path} is a calibration. Pass its network and data too: --model module:function --data module:function; "
            "or, if `lates fit` wrote it, pass saved logits first and this file as --fitted."
        )
    members, truth = read_logits(path, labels)
    if fitted is None:
        return Predictions(truth, members)
    tensors, metadata = read_calibration(fitted)
    if FITTED not in metadata:
        raise ValueError(f"{fitted} calibrates a network; expected a file written by `lates fit`.")
    stack = parse_fitted(tensors, metadata, fitted)
    method = "temperature" if len(stack.names) == 1 else "stack"
    known = stack.names if members.keys() >= set(stack.names) else members  # an error names those that there are
    chosen = {name: members[name].double() for name in known}
    return Predictions(truth, {"logits": members[HEAD], method: apply_stack(stack, chosen)})


def _holds_calibration(path: Path) -> bool:
    """Whether a file is one of ours; saved logits may have the same suffix."""
    try:
        with safe_open(str(path), framework="pt") as file:
            return KEY in (file.metadata() or {})
    except (SafetensorError, OSError):
        return False
