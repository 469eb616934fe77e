"""MC dropout: alone, with temperature scaling, with LATES.

The prediction is the mean over draws s of softmax(sum_k beta_k R_sk). MC dropout alone has beta = 1 for the head,
temperature scaling one beta for the head; both can be read off the members that LATES draws, and all stacks draw the same
masks: the methods differ in nothing but their probes and weights. LATES chooses probes and ranks by their loss on the first
draw of the hold-out, and weights by the loss of the mean over all draws.
"""

import math
from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor, nn

import lates
from experiments.data import ImageSet
from experiments.material import Batches

SAMPLES = 10
BUDGET = 0.01
STACKS: Mapping[str, Literal["shift"] | None] = {"mcd_lates": None, "mcd_lates_shift": "shift"}
"""LATES without views and with those that are the library's default."""
OFF = ("network", "temperature", "lates_none_1", "lates_shift_1")
ON = ("mcd", "mcd_temperature", *STACKS)
"""The methods of a network trained for MC dropout: in one forward pass with dropout off, and in ten with dropout on."""


def fit_temperature(network: nn.Module, holdout: ImageSet, seed: int) -> lates.CalibratedModel:
    sampled = lates.mc_dropout(network, SAMPLES, seed=seed)
    return lates.calibrate(sampled, holdout=Batches(holdout), blocks=[], seed=seed, progress=False)


def fit_layer_stack(
    network: nn.Module, train: ImageSet, holdout: ImageSet, views: Literal["shift"] | None, seed: int
) -> lates.CalibratedModel:
    """LATES as the library does it, within 1 %."""
    return lates.calibrate(
        lates.mc_dropout(network, SAMPLES, seed=seed),
        train=Batches(train),
        holdout=Batches(holdout),
        budget=BUDGET,
        views=views,
        seed=seed,
        progress=False,
    )


def predict_draws(stacks: Mapping[str, lates.CalibratedModel], beta: float, inputs: Tensor) -> dict[str, Tensor]:
    """Logits [n, classes] of all methods, logs of mean probabilities over the same draws, those of the first stack.

    stacks   LATES by name, whose members are drawn
    beta     temperature scaling's weight of the head
    """
    state = next(iter(stacks.values())).generator.get_state()
    for stacked in stacks.values():
        stacked.generator.set_state(state)
    drawn = {name: torch.stack([*stacked.members(inputs)]) for name, stacked in stacks.items()}
    head = next(iter(drawn.values()))[..., -1]  # of [draws, n, classes, members]
    logits = {"mcd": head, "mcd_temperature": beta * head}
    for name, members in drawn.items():
        weights = [stacks[name].weights[member] for member in stacks[name].member_names]
        logits[name] = members @ torch.tensor(weights, dtype=members.dtype, device=members.device)
    return {name: _log_mean_probability(values) for name, values in logits.items()}


def _log_mean_probability(logits: Tensor) -> Tensor:
    """log of the mean over draws of softmax(logits): [draws, n, classes] -> [n, classes]."""
    return logits.log_softmax(-1).logsumexp(0) - math.log(len(logits))
