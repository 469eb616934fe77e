"""MC dropout: alone, with temperature scaling, with LATES.

The prediction is the mean over draws s of softmax(sum_k beta_k R_sk). MC dropout alone has beta = 1 for the head,
temperature scaling one beta for the head. All methods draw the same masks: they differ in nothing but their probes and
weights. LATES chooses probes and ranks by their loss on the first draw of the hold-out, and weights by the loss of the mean
over all draws.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

import lates
from experiments.data.datasets import ImageSet
from experiments.evaluation.prepared import PASSES, Batches

SAMPLES = 10
CALIBRATED: Mapping[str, Mapping[str, Any]] = {
    "mcd_temperature": {"blocks": []},
    "mcd_lates": {"views": None},
    "mcd_lates_shift": {"views": "shift", "passes": PASSES},
}
"""Method -> arguments of `lates.calibrate`."""
OFF = ("network", "temperature", "lates_none_1", "lates_shift_1")
ON = ("mcd", *CALIBRATED)
"""The methods of a network trained for MC dropout: in one forward pass with dropout off, and in ten with dropout on."""


def calibrate_draws(
    network: nn.Module, train: ImageSet, holdout: ImageSet, seed: int, options: Mapping[str, Any]
) -> lates.CalibratedModel:
    """As the library does it, within 1 %."""
    sampled, loaders = lates.mc_dropout(network, SAMPLES, seed=seed), {"holdout": Batches(holdout)}
    if options.get("blocks") != []:
        loaders["train"] = Batches(train)
    return lates.calibrate(sampled, **loaders, seed=seed, progress=False, **options)


def predict_draws(models: Mapping[str, Any], images: ImageSet) -> dict[str, Tensor]:
    """method -> logits [n, classes], logs of mean probabilities; all models, which `lates.mc_dropout` gave, calibrated or not,
    draw the masks of the first."""
    first = next(iter(models.values()))
    parts: dict[str, list[Tensor]] = {name: [] for name in models}
    with torch.no_grad():
        for inputs, _ in Batches(images):
            masks = first.generator.get_state()
            for name, model in models.items():
                model.generator.set_state(masks)
                parts[name].append(model(inputs))
    return {name: torch.cat(batches) for name, batches in parts.items()}
