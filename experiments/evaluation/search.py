"""Compare settings of the library under held-back shifts, on hold-out data alone: the search of `results/choosing-defaults.md`.

Each candidate is one call of `lates.calibrate` on one half of the hold-out, measured on the other half, and the halves
swapped, so that each image is measured once by a fit that never saw it: as it is, and under the families of `data/shifts.py`.
No test image is read. `python -m experiments.reporting.shift_search` applies the rule to the files written here.

    python -m experiments search --network resnet18 --dataset cifar100 --data DIR --run runs/resnet18 --out results/search_shift
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, one_hot

import lates
from experiments.data.datasets import ImageSet, scale
from experiments.data.files import write_whole
from experiments.data.shifts import FAMILIES, shifted_sets
from experiments.evaluation.environment import multiply_in_float32
from experiments.evaluation.loading import add_arguments, load_network
from experiments.evaluation.prepared import Batches

BATCH, BINS, RESAMPLES = 1000, 15, 200
METRICS = ("nll", "brier", "ece", "accuracy")
REFERENCES = ("temperature", "robust")
ROBUST, BRIER = {"holdout_views": "robust"}, {"loss": "brier"}
CANDIDATES: Mapping[str, Mapping[str, Any]] = {
    "temperature": {"blocks": []},
    "temperature, to Brier": {"blocks": [], **BRIER},
    "temperature, robust hold-out": {"blocks": [], **ROBUST},
    "none": {"views": None},
    "shift": {"views": "shift", "passes": 2},
    "jitter": {"views": "jitter", "passes": 4},
    "robust": {},
    "robust, to Brier": BRIER,
    "robust, robust hold-out": ROBUST,
    "robust, robust hold-out, to Brier": {**ROBUST, **BRIER},
}
"""Name -> arguments of `lates.calibrate`."""


@dataclass(frozen=True, eq=False)
class Outcomes:
    """What a candidate made of every hold-out image in every set: [sets, images], float64.

    gap  whether the prediction is right, less its confidence; `bin` is the confidence's
    """

    nll: Tensor
    brier: Tensor
    correct: Tensor
    gap: Tensor
    bin: Tensor

    @classmethod
    def of(cls, logits: Tensor, labels: Tensor) -> "Outcomes":
        """From logits [sets, images, classes]."""
        logits = logits.double()
        probabilities, truth = logits.softmax(2), one_hot(labels, logits.shape[2])
        confidence, predicted = probabilities.max(2)
        correct = (predicted == labels).double()
        nll = cross_entropy(logits.flatten(0, 1), labels.repeat(len(logits)), reduction="none").view(len(logits), -1)
        brier = (probabilities - truth).square().sum(2)
        bins = ((confidence * BINS).ceil().long() - 1).clamp(0, BINS - 1)
        return cls(nll, brier, correct, correct - confidence, bins)

    def ece(self, counts: Tensor) -> Tensor:
        """Of resamples in which each image occurs so many times, [resamples, images] -> [sets, resamples]."""
        return torch.stack(
            [
                torch.zeros(len(counts), BINS).double().index_add_(1, bins, counts * gap).abs().sum(1) / counts.sum(1)
                for gap, bins in zip(self.gap, self.bin, strict=True)
            ]
        )


def parts_of(sets: Sequence[str]) -> dict[str, list[int]]:
    """The places among the sets of the clean images, of each family, and of all shifts together."""
    families = {family: [k for k, name in enumerate(sets) if name.startswith(f"{family}/")] for family in FAMILIES}
    return {"clean": [sets.index("clean")], **families, "shifted": [k for own in families.values() for k in own]}


def values(outcomes: Outcomes, places: list[int]) -> list[float]:
    once = torch.ones(1, outcomes.nll.shape[1]).double()
    means = [float(each[places].mean()) for each in (outcomes.nll, outcomes.brier, outcomes.correct)]
    return [*means[:2], float(outcomes.ece(once)[places].mean()), means[2]]


def worse_than(outcomes: Outcomes, reference: Outcomes, places: list[int], counts: Tensor) -> list[list[float]]:
    """How much worse each metric is, with its standard error over images: paired; for the ECE by resampling the images."""

    def paired(worse: Tensor) -> list[float]:
        of_images = worse[places].mean(0)
        return [float(of_images.mean()), float(of_images.std() / len(of_images) ** 0.5)]

    resampled = (outcomes.ece(counts) - reference.ece(counts))[places].mean(0)
    ece = values(outcomes, places)[2] - values(reference, places)[2]
    return [
        paired(outcomes.nll - reference.nll),
        paired(outcomes.brier - reference.brier),
        [ece, float(resampled.std())],
        paired(reference.correct - outcomes.correct),
    ]


def measure(network: nn.Module, train: ImageSet, halves: Sequence[ImageSet], options: Mapping[str, Any]) -> Outcomes:
    """Each half by the fit on the other, one half after the other."""
    logits: list[Tensor] = []
    for fit, test in (halves, halves[::-1]):
        calibrated = lates.calibrate(network, train=Batches(train), holdout=Batches(fit), progress=False, **options)
        images = scale(test.images)
        sets = {"clean": images, **shifted_sets(images, seed=0)}
        with torch.inference_mode():
            logits.append(
                torch.stack([torch.cat([calibrated(part) for part in own.split(BATCH)]).cpu() for own in sets.values()])
            )
    return Outcomes.of(torch.cat(logits, 1), torch.cat([test.labels.cpu() for test in halves[::-1]]))


def summarise(measured: Mapping[str, Outcomes], sets: Sequence[str]) -> dict[str, Any]:
    images = next(iter(measured.values())).nll.shape[1]
    drawn = torch.randint(images, (RESAMPLES, images), generator=torch.Generator().manual_seed(0))
    counts = torch.zeros(RESAMPLES, images).double().scatter_add_(1, drawn, torch.ones_like(drawn).double())
    parts = parts_of(sets)

    def described(name: str, outcomes: Outcomes) -> dict[str, Any]:
        others = {other: measured[other] for other in REFERENCES if other in measured and other != name}
        compared = {
            other: {part: worse_than(outcomes, reference, places, counts) for part, places in parts.items()}
            for other, reference in others.items()
        }
        return {"value": {part: values(outcomes, places) for part, places in parts.items()}, "worse than": compared}

    return {name: described(name, outcomes) for name, outcomes in measured.items()}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m experiments search", description=__doc__)
    add_arguments(parser)
    parser.add_argument("--recipe", default="paper", help="by which the network was trained; part of its name")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", choices=CANDIDATES, default=[*CANDIDATES])
    chosen = parser.parse_args(arguments)
    multiply_in_float32()
    loaded = load_network(chosen, chosen.seed)
    halves = [loaded.available.select(loaded.split.holdout[half::2]) for half in (0, 1)]
    sets = ["clean", *shifted_sets(scale(halves[0].images[:2]), seed=0)]
    measured: dict[str, Outcomes] = {}
    for name in chosen.only:
        measured[name] = measure(loaded.network, loaded.train, halves, CANDIDATES[name])
        clean, shifted = (values(measured[name], parts_of(sets)[part]) for part in ("clean", "shifted"))
        print(f"{name:<36}" + "  ".join(f"{value:.4f}" for value in (*clean, *shifted)), flush=True)
    network = f"{chosen.dataset}-{chosen.network}-{chosen.recipe}"
    facts = {"network": network, "seed": chosen.seed, "split": loaded.split.digest, "images": sum(map(len, halves))}
    content = {**facts, "metrics": METRICS, "sets": sets, "candidates": summarise(measured, sets)}
    write_whole(chosen.out / f"{network}.json", json.dumps(content, indent=1).encode())
