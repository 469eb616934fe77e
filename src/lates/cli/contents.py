"""A calibration file as plain data, and that data as text."""

import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor

from lates.cli.fitted import KEY as FITTED
from lates.cli.fitted import fit_record, parse_fitted
from lates.model import KEY, fit_lines, member_table, read_calibration, read_stack
from lates.network import HEAD
from lates.stack import Stack

CALIBRATION, CACHED = "calibration of a network", "weights for saved logits"


def read_contents(path: Path) -> tuple[Stack, dict[str, Any]]:
    """The stack of a file, and everything the file says without its network, ready for JSON."""
    tensors, metadata = read_calibration(path)
    known = {"file": str(path), "bytes": path.stat().st_size}
    if FITTED in metadata:
        stack = parse_fitted(metadata, path)
        return stack, {**known, **fitted_contents(stack)}
    try:
        stack = read_stack(metadata["fit"], metadata["voters"], tensors)
        return stack, {**known, **_calibration_contents(stack, tensors, metadata)}
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"The contents of {path} are damaged ({error!r}). Save the calibration again.") from error


def holds_calibration(path: Path) -> bool:
    """Whether a file is one of ours; saved logits may have the same suffix."""
    try:
        with safe_open(str(path), framework="pt") as file:
            return KEY in (file.metadata() or {})
    except (SafetensorError, OSError):
        return False


def fitted_contents(stack: Stack) -> dict[str, Any]:
    members = [_member(stack, *part) for part in zip(stack.names, stack.weights.tolist(), strict=True)]
    temperature = stack.temperature if len(members) == 1 else None
    return {
        "kind": CACHED,
        "members": members,
        "temperature": temperature,
        "fit": _fit_contents(stack, fit_record(stack)),
    }


def _member(stack: Stack, name: str, weight: float) -> dict[str, Any]:
    return {"name": name, "weight": weight, "contribution": stack.contributions[name]}


def _fit_contents(stack: Stack, record: Mapping[str, Any]) -> dict[str, Any]:
    return {**record, "outcome": stack.outcome}


def _calibration_contents(stack: Stack, tensors: Mapping[str, Tensor], metadata: Mapping[str, Any]) -> dict[str, Any]:
    networks = metadata["voters"]
    probes: list[dict[str, Any]] = []
    for place, network in enumerate(networks):
        poolings = network["poolings"]
        places = {name: f"{place}.probes.{number}." for number, name in enumerate(poolings)}
        probes += [
            {"probe": _probe(places[name], tensors) if name in places else None, "pooling": poolings.get(name)}
            for name in network["names"]
        ]
    parts = zip(stack.names, stack.weights.tolist(), probes, strict=True)
    return {
        "kind": CALIBRATION,
        "members": [
            {**_member(stack, name, weight), "spread": stack.spread[name], **probe} for name, weight, probe in parts
        ],
        "samples": metadata["samples"],
        "seed": metadata["seed"],
        "added_parameters": sum(member["probe"]["parameters"] for member in probes if member["probe"]),
        "fit": _fit_contents(stack, stack.numbers),
        "networks": [_network(network["network"]) for network in networks],
    }


def _probe(under: str, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    parts = {name.removeprefix(under): value for name, value in tensors.items() if name.startswith(under)}
    rank, features = parts["down"].shape
    parameters = sum(value.numel() for value in parts.values())
    return {"features": features, "rank": rank if "up" in parts else None, "parameters": parameters}


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
