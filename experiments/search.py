"""Choose the library's defaults, on hold-out data alone.

Each candidate is one call of `lates.calibrate` on one half of the hold-out, judged on the other half, and the halves
swapped: as it is, and under shifts that resemble neither the jitter of the views nor the 19 corruptions (rotation, scale,
hue, occlusion). One choice is varied at a time around the base. No test image is read.

    python -m experiments.search --network resnet18 --dataset cifar100 --data DIR --run runs/resnet18 --out results/search
"""

import argparse
import csv
import io
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

import lates
from experiments.checkpoints import load_tensors, write_atomically
from experiments.data import CIFAR, ImageSet, load_cifar, scale, split_indices
from experiments.networks import NETWORKS, build_network

METRICS: dict[str, Callable[[Tensor, Tensor], float]] = {
    "nll": lates.metrics.nll,
    "ece": lates.metrics.ece,
    "brier": lates.metrics.brier,
    "accuracy": lates.metrics.accuracy,
    "auc": lates.metrics.auc,
}
BATCH = 1000

View = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Candidate:
    """Arguments of `lates.calibrate`, under a name that says what is varied."""

    name: str
    arguments: dict[str, Any] = field(default_factory=dict)
    settings: lates.Settings = lates.DEFAULT
    strength: float = 1.0


def candidates(last_block: str) -> Iterator[Candidate]:
    base = lates.DEFAULT
    yield Candidate("temperature", {"blocks": []})
    for views, numbers in ((None, (1,)), ("jitter", (2, 4, 8)), ("shift", (2, 4)), ("flip", (2,))):
        for passes in numbers:
            yield Candidate(f"views {views} x {passes}", {"views": views, "passes": passes})
    for grid in (1, 3, 4):
        yield Candidate(f"grid {grid}", settings=replace(base, grid=grid))
    for budget in (0.0025, 0.005, 0.02, 0.05, None):
        yield Candidate(f"budget {budget}", {"budget": budget})
    for strength in (0.25, 0.5, 1.5):
        yield Candidate(f"jitter strength {strength}", strength=strength)
    for tolerance in (1e-2, 3e-3, 1e-3):
        yield Candidate(f"tolerance {tolerance}", {"views": "shift"}, replace(base, tolerance=tolerance))
    for regularise in (0.01, 0.1, 1.0):
        yield Candidate(f"regularise {regularise}", settings=replace(base, regularise=regularise))
    yield Candidate("allocation equal", settings=replace(base, allocation="equal"))
    yield Candidate("probe on the last block too", {"blocks": [last_block]})


def rotate(images: Tensor) -> Tensor:
    """By 15 degrees, alternately left and right."""
    angle = torch.full((len(images),), math.pi / 12, device=images.device)
    angle[::2] *= -1
    return _affine(images, angle.cos(), -angle.sin())


def shrink(images: Tensor) -> Tensor:
    """To four fifths of the size, edge pixels repeated."""
    return _affine(
        images, torch.full((len(images),), 1.25, device=images.device), torch.zeros(len(images), device=images.device)
    )


def turn_hue(images: Tensor) -> Tensor:
    """Colours turned by 60 degrees around the grey axis."""
    cosine, sine = math.cos(math.pi / 3), math.sin(math.pi / 3)
    axis = torch.full((3, 3), 1 / 3)
    cross = torch.tensor([[0.0, -1.0, 1.0], [1.0, 0.0, -1.0], [-1.0, 1.0, 0.0]]) / math.sqrt(3)
    turn = (cosine * torch.eye(3) + sine * cross + (1 - cosine) * axis).to(images)
    return torch.einsum("dc,nchw->ndhw", turn, images).clamp(0, 1)


def occlude(images: Tensor) -> Tensor:
    """A grey square of a third of the side, at a place that wanders from image to image."""
    covered = images.clone()
    side = images.shape[-1] // 3
    for corner in range(4):
        top, left = divmod(corner, 2)
        rows, columns = slice(4 + 12 * top, 4 + 12 * top + side), slice(4 + 12 * left, 4 + 12 * left + side)
        covered[corner::4, :, rows, columns] = 0.5
    return covered


SHIFTS: dict[str, View] = {"rotate": rotate, "shrink": shrink, "hue": turn_hue, "occlude": occlude}


def _affine(images: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    zero = torch.zeros_like(cosine)
    matrix = torch.stack([torch.stack([cosine, sine, zero], 1), torch.stack([-sine, cosine, zero], 1)], 1)
    grid = functional.affine_grid(matrix, list(images.shape), align_corners=False)
    return functional.grid_sample(images, grid, padding_mode="border", align_corners=False)


def judge(network: nn.Module, train: list[Any], halves: list[ImageSet], candidate: Candidate) -> dict[str, float]:
    """Metrics on the half that chose nothing, averaged over both ways, plain and as `shifted_…` over the shifts."""
    rows: list[dict[str, float]] = []
    for fit, test in (halves, halves[::-1]):
        started = time.monotonic()
        calibrated = _calibrate(network, train, fit, candidate)
        seconds = time.monotonic() - started
        images, labels = scale(test.images), test.labels
        row = _measured(calibrated, images, labels)
        shifted = [_measured(calibrated, shift(images), labels) for shift in SHIFTS.values()]
        row |= {f"shifted_{name}": sum(part[name] for part in shifted) / len(shifted) for name in METRICS}
        share = calibrated.added_parameters / sum(p.numel() for p in network.parameters())
        rows.append({**row, "parameters": share, "seconds": seconds})
    return {name: sum(row[name] for row in rows) / len(rows) for name in rows[0]}


def _calibrate(network: nn.Module, train: list[Any], fit: ImageSet, candidate: Candidate) -> lates.CalibratedModel:
    arguments = dict(candidate.arguments)
    if arguments.get("blocks"):
        arguments["blocks"] = [*lates.list_blocks(network)[:-1], *arguments["blocks"]]
    if candidate.strength != 1.0:
        arguments["views"] = _jitter(candidate.strength, train)
    return lates.calibrate(
        network, train=train, holdout=_batches(fit), settings=candidate.settings, progress=False, **arguments
    )


def _jitter(strength: float, train: list[Any]) -> View:
    """The library's jitter, its change of the image made that much larger or smaller."""
    from lates.views import jitter, measure_channels, shift

    channels = measure_channels(train[0][0])

    def view(images: Tensor) -> Tensor:
        moved = shift(images)
        return (moved + strength * (jitter(moved, channels) - moved)).clamp(0, 1)

    return view


def _measured(calibrated: lates.CalibratedModel, images: Tensor, labels: Tensor) -> dict[str, float]:
    with torch.inference_mode():
        logits = torch.cat([calibrated(part) for part in images.split(BATCH)])
    return {name: metric(logits, labels) for name, metric in METRICS.items()}


def _batches(data: ImageSet) -> list[tuple[Tensor, Tensor]]:
    return list(zip(scale(data.images).split(BATCH), data.labels.split(BATCH), strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m experiments.search", description=__doc__)
    parser.add_argument("--network", required=True, choices=NETWORKS)
    parser.add_argument("--dataset", required=True, choices=CIFAR)
    parser.add_argument("--data", required=True, type=Path)
    parser.add_argument("--run", required=True, type=Path, help="the folder that experiments.train wrote")
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--only", default="", help="candidates whose name contains this")
    parser.add_argument("--max-seconds", type=float, default=math.inf)
    arguments = parser.parse_args()
    torch.set_float32_matmul_precision("high")
    started = time.monotonic()
    available, _ = load_cifar(CIFAR[arguments.dataset], arguments.data)
    split = split_indices(available.labels, train_fraction=0.9, holdout_fraction=0.1, seed=arguments.seed)
    available = available.to(arguments.device)
    network = build_network(arguments.network, len(available.classes))
    if (found := load_tensors(arguments.run / "network.safetensors")) is None:
        raise SystemExit(f"{arguments.run} holds no trained network; run python -m experiments.train first.")
    network.load_state_dict(found[0])
    network.to(arguments.device).eval()
    train = _batches(available.select(split.train))
    halves = [available.select(split.holdout[half::2]) for half in (0, 1)]
    rows: list[dict[str, Any]] = []
    for candidate in candidates(lates.list_blocks(network)[-1]):
        if arguments.only not in candidate.name or time.monotonic() - started > arguments.max_seconds:
            continue
        rows.append({"candidate": candidate.name, **judge(network, train, halves, candidate)})
        numbers = "  ".join(f"{name} {value:.4f}" for name, value in rows[-1].items() if name != "candidate")
        print(f"{candidate.name:<28} {numbers}", flush=True)
        text = io.StringIO()
        writer = csv.DictWriter(text, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
        arguments.out.mkdir(parents=True, exist_ok=True)
        write_atomically(
            arguments.out / f"{arguments.dataset}-{arguments.network}-s{arguments.seed}.csv", text.getvalue().encode()
        )


if __name__ == "__main__":
    main()
