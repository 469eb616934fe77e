"""A calibration file as plain data, and that data in words."""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor

from lates.blocks import HEAD
from lates.cli.fitted import Fitted, is_fitted, parse_fitted
from lates.model import NAME_COLUMNS
from lates.storage import KEY, read_calibration, read_record
from lates.votes import Fit

CALIBRATION, CACHED = "calibration of a network", "weights for cached logits"


def read_contents(path: Path) -> dict[str, Any]:
    """All that a file tells without its network: only plain data, ready for JSON."""
    tensors, metadata = read_calibration(path)
    known = {"file": str(path), "bytes": path.stat().st_size}
    if is_fitted(metadata):
        return {**known, **fitted_contents(parse_fitted(metadata, path))}
    try:
        return {**known, **_calibration_contents(tensors, metadata)}
    except (KeyError, TypeError, AttributeError, ValueError) as fault:
        raise ValueError(f"The contents of {path} are damaged ({fault!r}). Save the calibration again.") from fault


def holds_calibration(path: Path) -> bool:
    """Whether a file is one of ours and no cached logits, which may have the same suffix."""
    if path.suffix != ".safetensors" or not path.is_file():
        return False
    try:
        with safe_open(str(path), framework="pt") as file:
            return KEY in (file.metadata() or {})
    except SafetensorError:
        return False


def fitted_contents(fitted: Fitted) -> dict[str, Any]:
    shares = fitted.contributions
    members = [
        {"name": name, "weight": weight, "contribution": shares[name]} for name, weight in fitted.named_weights.items()
    ]
    fit = {name: value for name, value in _fit_contents(fitted).items() if name not in ("names", "weights")}
    return {"kind": CACHED, "members": members, "temperature": fitted.temperature, "fit": fit}


def _fit_contents(fit: Fit | Fitted) -> dict[str, Any]:
    """`bounded` under a name that says what it means where nothing explains it: weights stopped at the cap."""
    return {"at_cap" if name == "bounded" else name: value for name, value in asdict(fit).items()}


def _calibration_contents(tensors: Mapping[str, Tensor], metadata: Mapping[str, Any]) -> dict[str, Any]:
    fit, voters = read_record(Fit, metadata["fit"]), metadata["voters"]
    total = sum(float(tensors[f"{place}.weights"].sum()) for place in range(len(voters)))
    members = [
        member
        for place, voter in enumerate(voters)
        for member in _members(f"{place}/" if len(voters) > 1 else "", f"{place}.", voter, tensors, total)
    ]
    return {
        "kind": CALIBRATION,
        "members": members,
        "samples": metadata["samples"],
        "seed": metadata["seed"],
        "added_parameters": sum(member["probe"]["parameters"] for member in members if member["probe"]),
        "fit": _fit_contents(fit),
        "networks": [_network(voter["network"]) for voter in voters],
    }


def _members(
    prefix: str, under: str, voter: Mapping[str, Any], tensors: Mapping[str, Tensor], total: float
) -> list[dict[str, Any]]:
    weights, deviations = tensors[f"{under}weights"].tolist(), tensors[f"{under}deviations"].tolist()
    probed = list(voter["poolings"])
    return [
        {
            "name": prefix + name,
            "weight": weight,
            "contribution": weight / total if total > 0 else 0.0,
            "spread": weight * deviation,
            "probe": _probe(f"{under}probes.{probed.index(name)}.", tensors) if name in probed else None,
            "pooling": voter["poolings"].get(name),
        }
        for name, weight, deviation in zip(voter["names"], weights, deviations, strict=True)
    ]


def _probe(under: str, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    parts = {name.removeprefix(under): value for name, value in tensors.items() if name.startswith(under)}
    rank, features = parts["down"].shape
    return {
        "features": features,
        "rank": rank if "up" in parts else None,
        "parameters": sum(value.numel() for value in parts.values()),
    }


def _network(entries: Mapping[str, Any]) -> dict[str, Any]:
    """How large the network is, and a digest by which two files show whether they are for the same weights."""
    text = json.dumps(sorted(entries.items()))
    return {
        "tensors": len(entries),
        "numbers": sum(math.prod(shape) for shape, _ in entries.values()),
        "digest": hashlib.sha256(text.encode()).hexdigest()[:16],
    }


def describe_contents(contents: Mapping[str, Any]) -> str:
    """In 80 columns: one line for each member, then what the fit found."""
    lines = [f"{contents['file']}: {contents['kind']}, {contents['bytes']:,} bytes", ""] if "file" in contents else []
    names = {member["name"]: _shortened(member["name"]) for member in contents["members"]}
    width = max(map(len, ["member", *names.values()]))
    is_network = contents["kind"] == CALIBRATION
    head = f"{'member':<{width}}  {'weight':>9}  {'contribution':>12}"
    lines.append(head + (f"  {'spread':>9}  probe" if is_network else ""))
    for member in contents["members"]:
        line = f"{names[member['name']]:<{width}}  {member['weight']:>9.4g}  {member['contribution']:>12.3f}"
        if is_network:
            line += f"  {member['spread']:>9.4g}  {_described_probe(member)}"
        lines.append(line)
    return "\n".join([*lines, "", *(_network_lines(contents) if is_network else _cached_lines(contents))])


def _network_lines(contents: Mapping[str, Any]) -> list[str]:
    fit, networks = contents["fit"], contents["networks"]
    lines = [
        f"Fitted to {fit['loss']} on {fit['rows']:,} hold-out rows of {fit['classes']:,} classes: {_reached(fit)}.",
        f"Log-loss there: network {fit['nll_network']:.4f}, temperature {fit['nll_temperature']:.4f}, "
        f"stack {fit['nll']:.4f}.",
        f"{contents['added_parameters']:,} parameters added.",
    ]
    if contents["samples"] > 1:
        lines.append(f"MC dropout: the mean of {contents['samples']} samples, from seed {contents['seed']}.")
    lines += [
        f"For a network of {one['tensors']:,} tensors, {one['numbers']:,} numbers, digest {one['digest']}."
        for one in networks
    ]
    return lines


def _cached_lines(contents: Mapping[str, Any]) -> list[str]:
    fit, temperature = contents["fit"], contents["temperature"]
    lines = [] if temperature is None else [f"Temperature {temperature:.4f}."]
    return [
        *lines,
        f"Fitted to {fit['loss']} on {fit['rows']:,} rows of {fit['classes']:,} classes: {_reached(fit)}.",
        f"Log-loss there: {fit['nll_before']:.4f} before, {fit['nll']:.4f} after.",
    ]


def _reached(fit: Mapping[str, Any]) -> str:
    if fit["certified"]:
        return "the optimum, certified"
    return "not bounded by these rows" if fit["at_cap"] else "not certified"


def _described_probe(member: Mapping[str, Any]) -> str:
    probe = member["probe"]
    if probe is None:
        return "the network's own logits" if member["name"].split("/")[-1] == HEAD else "none"
    return f"{probe['features']} features" + (f", rank {probe['rank']}" if probe["rank"] else "")


def _shortened(name: str) -> str:
    return name if len(name) <= NAME_COLUMNS else f"…{name[1 - NAME_COLUMNS :]}"
