"""Compare settings of the library under held-back shifts, on hold-out data alone: the search of `results/choosing-defaults.md`.

Each candidate is what `lates.calibrate` gives on one half of the hold-out, measured on the other half, and the halves
swapped, so that each image is measured once by a fit that never saw it: as it is, and under the families of `data/shifts.py`.
Images are read once per kind of views, not once per candidate. No image of the report is read.
`python -m experiments tables` applies the rule to the files written here.

    python -m experiments search --network resnet18 --dataset cifar100 --data DIR --run runs/resnet18 --out results/search_shift
"""

import argparse
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn

import lates
from experiments.data.datasets import ImageSet, scale
from experiments.data.files import format_json, write_whole
from experiments.data.shifts import FAMILIES, shifted_sets
from experiments.evaluation.environment import multiply_in_float32
from experiments.evaluation.loading import add_arguments, load_network
from experiments.evaluation.methods import METHODS, PROBES, WEIGHTS, Predict
from experiments.evaluation.prepared import (
    VIEWS,
    Batches,
    HoldOut,
    Prepared,
    blocks_of_the_paper,
    read_plain,
    recorded_blocks,
    with_robust_copies,
)

BINS, RESAMPLES = 15, 200
METRICS = ("nll", "brier", "ece", "accuracy")
REFERENCE = "temperature"
ON_COPIES = ", robust hold-out"
IN_WORDS = {"": "", "_rescaled": ", rescaled", "_light": ", light copies", "_robust_holdout": ON_COPIES}
CANDIDATES: Mapping[str, str] = {
    "temperature": "temperature",
    f"temperature{ON_COPIES}": "temperature_robust_holdout",
    "last layer refitted": "head_refitted_robust",
    f"last layer refitted{ON_COPIES}": "head_refitted_robust_holdout",
    "shift": "lates_shift_1",
    "robust": "lates_robust_1",
    **{
        f"robust{probes.replace('_', ', ')}{IN_WORDS[weights]}": f"lates{probes}{weights}"
        for probes, weights in product(PROBES, WEIGHTS)
        if probes or weights
    },
}
"""Name -> the method. What is fitted on robust copies of the hold-out chooses its probes' decays on them too, as
`lates.calibrate` does."""


@dataclass(frozen=True, eq=False)
class Outcomes:
    """What a candidate made of every hold-out image in every set, float64.

    scores  NLL, Brier score and whether the prediction is right [3, sets, images]
    gap     whether it is right, less its confidence [sets, images]; `bin` is the confidence's
    """

    scores: Tensor
    gap: Tensor
    bin: Tensor

    @classmethod
    def of(cls, logits: Tensor, labels: Tensor) -> "Outcomes":
        """From logits [sets, images, classes]."""
        rows = [lates.metrics.describe_rows(of_set, labels) for of_set in logits]
        scores = torch.stack([torch.stack([each.nll, each.brier, each.correct]) for each in rows], 1)
        confidence = torch.stack([each.confidence for each in rows])
        return cls(scores, scores[2] - confidence, ((confidence * BINS).ceil().long() - 1).clamp(0, BINS - 1))

    def ece(self, counts: Tensor) -> Tensor:
        """Of resamples, given how often each image occurs in each, [resamples, images] -> [sets, resamples]."""
        return torch.stack(
            [
                torch.zeros(len(counts), BINS).double().index_add_(1, bins, counts * gap).abs().sum(1) / counts.sum(1)
                for gap, bins in zip(self.gap, self.bin, strict=True)
            ]
        )

    def values(self, places: list[int]) -> list[float]:
        """Of each metric the mean over some of the sets."""
        nll, brier, accuracy = self.scores[:, places].mean((1, 2)).tolist()
        once = torch.ones(1, self.scores.shape[2]).double()
        return [nll, brier, float(self.ece(once)[places].mean()), accuracy]


def parts_of(sets: Sequence[str]) -> dict[str, list[int]]:
    """The places among the sets of the clean images, of each family, and of all shifts together."""
    families = {family: [k for k, name in enumerate(sets) if name.startswith(f"{family}/")] for family in FAMILIES}
    return {"clean": [sets.index("clean")], **families, "shifted": [k for places in families.values() for k in places]}


def worse_than(
    outcomes: Outcomes, reference: Outcomes, places: list[int], resampled: tuple[Tensor, Tensor]
) -> list[list[float]]:
    """How much worse each metric is, with its standard error over images: paired; for the ECE, of both, by resampling the
    images [sets, resamples]."""
    worse = (outcomes.scores - reference.scores)[:, places].mean(1) * torch.tensor([[1.0], [1.0], [-1.0]])
    nll, brier, accuracy = torch.stack([worse.mean(1), worse.std(1) / worse.shape[1] ** 0.5], 1).tolist()
    ece = outcomes.values(places)[2] - reference.values(places)[2]
    return [nll, brier, [ece, float((resampled[0] - resampled[1])[places].mean(0).std())], accuracy]


Predictions = dict[str, Predict]
"""candidate -> (features -> logits)"""


def calibrate_all(
    network: nn.Module, train: ImageSet, holdouts: Sequence[ImageSet], candidates: Collection[str]
) -> list[Predictions]:
    """For each hold-out, what `lates.calibrate` would give with the settings of each candidate."""
    rows: list[dict[HoldOut, lates.Features]] = []
    for images in holdouts:
        plain = read_plain(network, images)
        rows.append({"plain": plain, "robust": with_robust_copies(network, images, plain)})
    usual = blocks_of_the_paper(network, holdouts[0])

    @lru_cache(maxsize=1)  # it is large
    def features(views: str) -> lates.Features:
        options: dict[str, Any] = {"views": views, "passes": VIEWS[views]}
        return lates.extract(network, Batches(train), like=rows[0]["plain"], role="train", **options)

    @lru_cache(maxsize=len(holdouts))
    def prepared(half: int, views: str, holdout: HoldOut) -> Prepared:
        probes = {views: lates.train_probes(features(views), rows[half][holdout])} if views else {}
        return Prepared(network, 0, usual, rows[half], {}, probes)

    fitted: list[Predictions] = [{} for _ in holdouts]
    for name in sorted(candidates, key=_needs):  # what is read alike, together
        for half, predictions in enumerate(fitted):
            predictions[name] = METHODS[CANDIDATES[name]](prepared(half, *_needs(name))).predict
    return fitted


def _needs(name: str) -> tuple[str, HoldOut]:
    """The views of the training images that its probes learn from, and the hold-out on which their decays are chosen."""
    views = "" if name.startswith("temperature") else "shift" if name == "shift" else "robust"
    return views, "robust" if name.endswith(ON_COPIES) else "plain"


def measure(
    network: nn.Module, train: ImageSet, halves: Sequence[ImageSet], candidates: Collection[str]
) -> dict[str, Outcomes]:
    """Each half by the fit on the other, one half after the other."""
    logits: dict[str, list[Tensor]] = {name: [] for name in candidates}
    for fitted, test in zip(calibrate_all(network, train, halves, candidates), reversed(halves), strict=True):
        images = scale(test.images)
        parts: dict[str, list[Tensor]] = {name: [] for name in candidates}
        for changed in ({"clean": images} | shifted_sets(images, seed=0)).values():
            size = Batches(test).size
            inputs = changed.contiguous(memory_format=torch.channels_last)
            batches = list(zip(inputs.split(size), test.labels.split(size), strict=True))
            features = lates.extract(network, batches, blocks=recorded_blocks(network))
            with torch.inference_mode():
                for name in candidates:
                    parts[name].append(fitted[name](features).cpu())
        for name, of_sets in parts.items():
            logits[name].append(torch.stack(of_sets))
    labels = torch.cat([test.labels.cpu() for test in reversed(halves)])
    return {name: Outcomes.of(torch.cat(of_halves, 1), labels) for name, of_halves in logits.items()}


def summarise(measured: Mapping[str, Outcomes], sets: Sequence[str]) -> dict[str, Any]:
    images = next(iter(measured.values())).scores.shape[2]
    drawn = torch.randint(images, (RESAMPLES, images), generator=torch.Generator().manual_seed(0))
    counts = torch.zeros(RESAMPLES, images).double().scatter_add_(1, drawn, torch.ones_like(drawn).double())
    parts, resampled = parts_of(sets), {name: outcomes.ece(counts) for name, outcomes in measured.items()}

    def described(name: str, outcomes: Outcomes) -> dict[str, Any]:
        compared = {
            other: {
                part: worse_than(outcomes, reference, places, (resampled[name], resampled[other]))
                for part, places in parts.items()
                if other == REFERENCE or part in ("clean", "shifted")
            }
            for other, reference in measured.items()
            if other != name
        }
        return {"value": {part: outcomes.values(places) for part, places in parts.items()}, "worse than": compared}

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
    halves = [loaded.holdout.select(torch.arange(half, len(loaded.holdout), 2)) for half in (0, 1)]
    sets = ["clean", *shifted_sets(scale(halves[0].images[:2]), seed=0)]
    measured = measure(loaded.network, loaded.train, halves, chosen.only)
    for name, outcomes in measured.items():
        clean, shifted = (outcomes.values(parts_of(sets)[part]) for part in ("clean", "shifted"))
        print(f"{name:<36}" + "  ".join(f"{value:.4f}" for value in (*clean, *shifted)), flush=True)
    network = f"{chosen.dataset}-{chosen.network}-{chosen.recipe}"
    facts = {"network": network, "seed": chosen.seed, "split": loaded.split, "images": sum(map(len, halves))}
    if loaded.weights is not None:
        facts["weights"] = loaded.weights
    content = {**facts, "metrics": METRICS, "sets": sets, "candidates": summarise(measured, sets)}
    write_whole(chosen.out / f"{network}.json", format_json(content, indent=1))
