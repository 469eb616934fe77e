"""Choose the library's defaults, on hold-out data alone.

Each candidate is one call of `lates.calibrate` on one half of the hold-out, judged on the other half, and the halves
swapped: as it is, and under shifts that resemble neither the jitter of the views nor the 19 corruptions (rotation, scale,
hue, occlusion). One choice is varied at a time around the base. No test image is read.

    python -m experiments.search --network resnet18 --dataset cifar100 --data DIR --run runs/resnet18 --out results/search
"""

import argparse
import csv
import io
import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

import lates
from experiments.checkpoints import write_atomically
from experiments.data import ImageSet, scale
from experiments.provenance import describe_surroundings, multiply_in_full
from experiments.trained import add_arguments, load_trained
from lates.views import jitter, measure_channels
from lates.views import shift as move

METRICS: dict[str, Callable[[Tensor, Tensor], float]] = {
    "nll": lates.metrics.nll,
    "ece": lates.metrics.ece,
    "brier": lates.metrics.brier,
    "accuracy": lates.metrics.accuracy,
    "auc": lates.metrics.auc,
}
BATCH = 1000

View = Callable[[Tensor], Tensor]
ViewName = Literal["auto", "flip", "shift", "jitter"]
PASSES: dict[ViewName | None, tuple[int, ...]] = {None: (1,), "shift": (1, 2, 4), "jitter": (1, 2, 4), "flip": (2,)}
FROM_PAPER: dict[str, dict[str, Any]] = {
    "standardised": {"standardise": True},
    "probes at their optimum": {"optimiser": "lbfgs"},
    "pooled in a grid": {"pooling": "grid"},
    "budget by gain": {"allocation": "gain"},
    "exact weights": {"solver": "exact"},
}
"""What parts the paper's recipe from the default, views apart; `candidates` makes the changes one after the other."""
Batches = list[tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Situation:
    """What a candidate is fitted on: a trained network, its training split, and half of its hold-out."""

    network: nn.Module
    train: Batches
    holdout: Batches


@dataclass(frozen=True)
class Fitted:
    """images [n, 3, h, w] -> logits, and how many parameters that adds to the network's."""

    predict: Callable[[Tensor], Tensor]
    parameters: int


@dataclass(frozen=True)
class Candidate:
    """One way to calibrate, under a name that says what is varied."""

    name: str
    fit: Callable[[Situation], Fitted]


def candidates() -> Iterator[Candidate]:
    base = lates.DEFAULT
    yield Candidate("temperature", partial(calibrate_with, blocks=[]))
    for views, numbers in PASSES.items():
        for passes in numbers:
            yield Candidate(f"views {views} x {passes}", partial(calibrate_with, views=views, passes=passes))
    yield Candidate("low rank trained", partial(fit_by_stages, low_rank_steps=60))
    yield Candidate("decay fixed", partial(fit_by_stages, decay_by_holdout=False))
    for budget in (0.0025, 0.005, 0.02, 0.05, None):
        yield Candidate(f"budget {budget}", partial(calibrate_with, budget=budget))
    for grid in (1, 3, 4):
        yield Candidate(f"grid {grid}", partial(calibrate_with, settings=replace(base, grid=grid)))
    for strength in (0.25, 0.5, 1.5):
        yield Candidate(f"jitter strength {strength}", partial(calibrate_with, strength=strength))
    for regularise in (0.01, 0.1, 1.0):
        yield Candidate(
            f"regularise {regularise}", partial(calibrate_with, settings=replace(base, regularise=regularise))
        )
    for tolerance in (1e-2, 1e-3):
        yield Candidate(f"tolerance {tolerance}", partial(calibrate_with, settings=replace(base, tolerance=tolerance)))
    yield Candidate("allocation equal", partial(calibrate_with, settings=replace(base, allocation="equal")))
    yield Candidate("probe on the last block too", partial(calibrate_with, last_block=True))
    yield Candidate("temperature, both hold-outs", partial(calibrate_with, blocks=[], both_holdouts=True))
    for views in ("shift", "jitter"):
        yield Candidate(f"views {views} x 2, both hold-outs", partial(calibrate_with, views=views, both_holdouts=True))
    settings = lates.PAPER
    yield Candidate("paper", partial(calibrate_with, settings=settings))
    for change, choices in FROM_PAPER.items():
        settings = replace(settings, **choices)
        yield Candidate(f"paper … {change}", partial(calibrate_with, settings=settings))


def calibrate_with(
    situation: Situation,
    *,
    blocks: list[str] | None = None,
    last_block: bool = False,
    views: ViewName | None = "auto",
    strength: float = 1.0,
    passes: int | None = None,
    budget: float | None = 0.01,
    both_holdouts: bool = False,
    settings: lates.Settings = lates.DEFAULT,
) -> Fitted:
    """`lates.calibrate`; `strength` scales the jitter, `last_block` adds the block that the head reads.

    With `both_holdouts` decays, ranks and weights are chosen on the hold-out and one jittered view of each of its images.
    """
    network = situation.network
    calibrated = lates.calibrate(
        network,
        train=situation.train,
        holdout=situation.holdout,
        blocks=lates.list_blocks(network) if last_block else blocks,
        views=views if strength == 1 else _jitter(strength, situation.train),
        passes=passes,
        holdout_views="jitter" if both_holdouts else None,
        budget=budget,
        settings=settings,
        progress=False,
    )
    return Fitted(calibrated, calibrated.added_parameters)


def fit_by_stages(situation: Situation, *, decay_by_holdout: bool = True, low_rank_steps: int = 0) -> Fitted:
    """The default, stage by stage: with a fixed weight decay, or with low-rank probes trained further as such."""
    network = situation.network
    train = lates.extract(network, situation.train, views="shift", passes=2, role="train")
    held = lates.extract(network, situation.holdout, like=train, role="holdout")
    trained = lates.train_probes(train, held if decay_by_holdout else None)
    probes = lates.fit_budget(trained, held, 0.01)
    if low_rank_steps:
        probes = {
            name: train_low_rank(probe, train, name, trained[name].decay, low_rank_steps)
            for name, probe in probes.items()
        }
    stack = lates.fit_stack(lates.member_logits(probes, held), held.labels)
    weights = stack.weights.to(held.logits)

    def predict(images: Tensor) -> Tensor:
        labels = torch.zeros(len(images), dtype=torch.int64, device=images.device)
        rows = lates.extract(network, [(images, labels)], like=train)
        members = lates.member_logits(probes, rows)
        return torch.stack([members[name] for name in stack.names], dim=-1) @ weights

    voting = (probe for name, probe in probes.items() if weights[stack.names.index(name)] > 0)
    return Fitted(predict, sum(probe.parameters for probe in voting))


def train_low_rank(probe: lates.Probe, train: lates.Features, name: str, decay: float, steps: int) -> lates.Probe:
    """From a probe that was cut to low rank, L-BFGS on its factors: the loss and decay of `lates.train_probes`."""
    if probe.up is None:
        return probe
    centre, deviation = train.centre[name].float(), train.deviation[name].float()
    features = (train.blocks[name].float() - centre) / deviation
    down = (probe.down * deviation).contiguous().requires_grad_()
    up = probe.up.clone(memory_format=torch.contiguous_format).requires_grad_()
    bias = (probe.bias + probe.up @ (probe.down @ centre)).requires_grad_()
    optimiser = torch.optim.LBFGS([down, up, bias], max_iter=steps, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimiser.zero_grad()
        loss = functional.cross_entropy(features @ down.T @ up.T + bias, train.labels)
        loss = loss + decay / 2 * (up @ down).square().sum()
        loss.backward()
        return loss

    optimiser.step(closure)
    raw, kept = (down / deviation).detach(), up.detach()
    return lates.Probe(raw, kept, bias.detach() - kept @ (raw @ centre))


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


def judge(network: nn.Module, train: Batches, halves: list[ImageSet], candidate: Candidate) -> dict[str, float]:
    """Metrics on the half that chose nothing, averaged over both ways, plain and as `shifted_…` over the shifts."""
    rows: list[dict[str, float]] = []
    for fit, test in (halves, halves[::-1]):
        started = time.monotonic()
        fitted = candidate.fit(Situation(network, train, _batches(fit)))
        seconds = time.monotonic() - started
        images, labels = scale(test.images), test.labels
        row = _measured(fitted, images, labels)
        shifted = [_measured(fitted, shift(images), labels) for shift in SHIFTS.values()]
        row |= {f"shifted_{name}": sum(part[name] for part in shifted) / len(shifted) for name in METRICS}
        share = fitted.parameters / sum(p.numel() for p in network.parameters())
        rows.append({**row, "parameters": share, "seconds": seconds})
    return {name: sum(row[name] for row in rows) / len(rows) for name in rows[0]}


def _jitter(strength: float, train: Batches) -> View:
    """The library's jitter, its change of the image made that much larger or smaller."""
    channels = measure_channels(train[0][0])

    def view(images: Tensor) -> Tensor:
        moved = move(images)
        return (moved + strength * (jitter(moved, channels) - moved)).clamp(0, 1)

    return view


def _measured(fitted: Fitted, images: Tensor, labels: Tensor) -> dict[str, float]:
    with torch.inference_mode():
        logits = torch.cat([fitted.predict(part) for part in images.split(BATCH)])
    return {name: metric(logits, labels) for name, metric in METRICS.items()}


def _batches(data: ImageSet) -> Batches:
    return list(zip(scale(data.images).split(BATCH), data.labels.split(BATCH), strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m experiments.search", description=__doc__)
    add_arguments(parser)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", default=[""], help="candidates whose name contains one of these")
    parser.add_argument("--max-seconds", type=float, default=math.inf)
    arguments = parser.parse_args()
    multiply_in_full()
    started = time.monotonic()
    trained = load_trained(arguments, arguments.seed)
    network, train = trained.network, _batches(trained.train)
    halves = [trained.available.select(trained.split.holdout[half::2]) for half in (0, 1)]
    rows: list[dict[str, Any]] = []
    for candidate in candidates():
        wanted = any(part in candidate.name for part in arguments.only)
        if not wanted or time.monotonic() - started > arguments.max_seconds:
            continue
        rows.append({"candidate": candidate.name, **judge(network, train, halves, candidate)})
        numbers = "  ".join(f"{name} {value:.4f}" for name, value in rows[-1].items() if name != "candidate")
        print(f"{candidate.name:<28} {numbers}", flush=True)
        text = io.StringIO()
        writer = csv.DictWriter(text, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
        place = arguments.out / f"{arguments.dataset}-{arguments.network}-s{arguments.seed}"
        place.mkdir(parents=True, exist_ok=True)
        facts = {**describe_surroundings(torch.device(arguments.device)), "split": trained.split.digest}
        write_atomically(place / "facts.json", json.dumps(facts, indent=2).encode())
        write_atomically(place / "candidates.csv", text.getvalue().encode())


if __name__ == "__main__":
    main()
