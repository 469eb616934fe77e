"""Compare settings of the library on hold-out data alone.

Each candidate is one call of `lates.calibrate` on one half of the hold-out, judged on the other half, and the halves
swapped: as it is, and under shifts that resemble neither the jitter of the views nor the 19 corruptions (rotation, scale,
hue, occlusion). One choice is varied at a time around the default. No test image is read.

    python -m experiments search --network resnet18 --dataset cifar100 --data DIR --run runs/resnet18 --out results/search
"""

import argparse
import csv
import io
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

import lates
from experiments.data.datasets import ImageSet, scale
from experiments.data.files import write_whole
from experiments.evaluation.environment import describe_environment, multiply_in_float32
from experiments.evaluation.loading import add_arguments, load_network
from experiments.evaluation.prepared import Batches

JUDGED = ("nll", "ece", "brier", "accuracy", "auc")
BATCH = 1000
PASSES: Mapping[str | None, tuple[int, ...]] = {None: (1,), "shift": (1, 2, 4), "jitter": (1, 2, 4), "flip": (2,)}
FROM_PAPER: Mapping[str, Mapping[str, Any]] = {
    "standardised": {"standardise": True},
    "probes at their optimum": {"optimiser": "lbfgs"},
    "pooled in a grid": {"pooling": "grid"},
    "budget by gain": {"allocation": "gain"},
    "exact weights": {"solver": "exact"},
    "a prior": {"prior": lates.DEFAULT.prior},
}
"""What distinguishes the paper's recipe from the default, views apart; `candidates` makes the changes one after the other."""
Options = Mapping[str, Any]
"""Arguments of `lates.calibrate`; beside them `last_block`, which probes the block that the head reads too, and `strength`,
which scales the jitter."""


def candidates() -> dict[str, Options]:
    """name, which says what is varied -> options"""

    def changed(**choices: Any) -> Options:
        return {"settings": replace(lates.DEFAULT, **choices)}

    found: dict[str, Options] = {"temperature": {"blocks": []}}
    for views, numbers in PASSES.items():
        found |= {f"views {views} x {passes}": {"views": views, "passes": passes} for passes in numbers}
    found |= {f"budget {budget}": {"budget": budget} for budget in (0.0025, 0.005, 0.02, 0.05, None)}
    found |= {f"grid {grid}": changed(grid=grid) for grid in (1, 3, 4)}
    found |= {f"jitter strength {strength}": {"strength": strength} for strength in (0.25, 0.5, 1.5)}
    found |= {f"regularise {value}": changed(regularise=value) for value in (0.01, 0.1, 1.0)}
    found |= {f"tolerance {value}": changed(tolerance=value) for value in (1e-2, 1e-3)}
    found["allocation equal"] = changed(allocation="equal")
    found["probe on the last block too"] = {"last_block": True}
    both = {"holdout_views": "jitter"}
    found["temperature, both hold-outs"] = {"blocks": [], **both}
    found |= {
        f"views {views} x 2, both hold-outs": {"views": views, "passes": 2, **both} for views in ("shift", "jitter")
    }
    settings = lates.PAPER_LITERAL
    found["paper"] = {"settings": settings}
    for change, choices in FROM_PAPER.items():
        settings = replace(settings, **choices)
        found[f"paper … {change}"] = {"settings": settings}
    return found


def calibrate_with(network: nn.Module, train: ImageSet, holdout: ImageSet, options: Options) -> lates.CalibratedModel:
    arguments = {"budget": 0.01, **options}
    if arguments.pop("last_block", False):
        arguments["blocks"] = lates.list_blocks(network)
    if strength := arguments.pop("strength", None):
        arguments["views"] = _jitter(strength, train)
    return lates.calibrate(network, train=Batches(train), holdout=Batches(holdout), progress=False, **arguments)


def _jitter(strength: float, train: ImageSet) -> Callable[[Tensor], Tensor]:
    """The library's jitter, its change of the image made that much larger or smaller."""
    channels = lates.views.measure_channels(scale(train.images[:BATCH]))

    def view(images: Tensor) -> Tensor:
        moved = lates.views.shift(images)
        return (moved + strength * (lates.views.jitter(moved, channels) - moved)).clamp(0, 1)

    return view


# Shifts, of images [n, 3, h, w] in [0, 1]


def rotate(images: Tensor) -> Tensor:
    """By 15 degrees, alternately left and right."""
    angle = torch.full((len(images),), math.pi / 12, device=images.device)
    angle[::2] *= -1
    return _affine(images, angle.cos(), -angle.sin())


def shrink(images: Tensor) -> Tensor:
    """To four fifths of the size, edge pixels repeated."""
    factor = torch.full((len(images),), 1.25, device=images.device)
    return _affine(images, factor, torch.zeros_like(factor))


def turn_hue(images: Tensor) -> Tensor:
    """Colours turned by 60 degrees around the grey axis."""
    cosine, sine = math.cos(math.pi / 3), math.sin(math.pi / 3)
    axis = torch.full((3, 3), 1 / 3)
    cross = torch.tensor([[0.0, -1.0, 1.0], [1.0, 0.0, -1.0], [-1.0, 1.0, 0.0]]) / math.sqrt(3)
    turn = (cosine * torch.eye(3) + sine * cross + (1 - cosine) * axis).to(images)
    return torch.einsum("dc,nchw->ndhw", turn, images).clamp(0, 1)


def occlude(images: Tensor) -> Tensor:
    """A grey square of a third of the side, in one of four places."""
    covered = images.clone()
    side = images.shape[-1] // 3
    for corner in range(4):
        top, left = divmod(corner, 2)
        rows, columns = slice(4 + 12 * top, 4 + 12 * top + side), slice(4 + 12 * left, 4 + 12 * left + side)
        covered[corner::4, :, rows, columns] = 0.5
    return covered


SHIFTS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "rotate": rotate,
    "shrink": shrink,
    "hue": turn_hue,
    "occlude": occlude,
}


def _affine(images: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    zero = torch.zeros_like(cosine)
    matrix = torch.stack([torch.stack([cosine, sine, zero], 1), torch.stack([-sine, cosine, zero], 1)], 1)
    grid = functional.affine_grid(matrix, list(images.shape), align_corners=False)
    return functional.grid_sample(images, grid, padding_mode="border", align_corners=False)


# Judging


def judge(network: nn.Module, train: ImageSet, halves: Sequence[ImageSet], options: Options) -> dict[str, float]:
    """Metrics on the half that chose nothing, averaged over both ways, plain and as `shifted_…` over the shifts."""
    rows: list[dict[str, float]] = []
    for fit, test in (halves, halves[::-1]):
        started = time.monotonic()
        calibrated = calibrate_with(network, train, fit, options)
        seconds = time.monotonic() - started
        images, labels = scale(test.images), test.labels
        shifted = [_measured(calibrated, shift(images), labels) for shift in SHIFTS.values()]
        means = {f"shifted_{name}": sum(part[name] for part in shifted) / len(shifted) for name in JUDGED}
        share = calibrated.added_parameters / sum(p.numel() for p in network.parameters())
        rows.append({**_measured(calibrated, images, labels), **means, "parameters": share, "seconds": seconds})
    return {name: sum(row[name] for row in rows) / len(rows) for name in rows[0]}


def _measured(calibrated: nn.Module, images: Tensor, labels: Tensor) -> dict[str, float]:
    with torch.inference_mode():
        logits = torch.cat([calibrated(part) for part in images.split(BATCH)])
    return {name: getattr(lates.metrics, name)(logits, labels) for name in JUDGED}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m experiments search", description=__doc__)
    add_arguments(parser)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", default=[""], help="candidates whose name contains one of these")
    parser.add_argument("--max-seconds", type=float, default=math.inf)
    chosen = parser.parse_args(arguments)
    multiply_in_float32()
    started = time.monotonic()
    loaded = load_network(chosen, chosen.seed)
    halves = [loaded.available.select(loaded.split.holdout[half::2]) for half in (0, 1)]
    folder = chosen.out / f"{chosen.dataset}-{chosen.network}-s{chosen.seed}"
    facts = {**describe_environment(torch.device(chosen.device)), "split": loaded.split.digest}
    rows: list[dict[str, Any]] = []
    for name, options in candidates().items():
        wanted = any(part in name for part in chosen.only)
        if not wanted or time.monotonic() - started > chosen.max_seconds:
            continue
        scores = judge(loaded.network, loaded.train, halves, options)
        print(f"{name:<28} " + "  ".join(f"{metric} {value:.4f}" for metric, value in scores.items()), flush=True)
        rows.append({"candidate": name, **scores})
        text = io.StringIO()
        writer = csv.DictWriter(text, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
        write_whole(folder / "facts.json", json.dumps(facts, indent=2).encode())
        write_whole(folder / "candidates.csv", text.getvalue().encode())
