"""MC dropout: alone, with temperature scaling, with LATES.

The prediction is the mean over draws s of softmax(sum_k beta_k R_sk). MC dropout alone has beta = 1 for the head,
temperature scaling one beta for the head; both can be read off the members that LATES draws, so that one forward pass per
draw serves all three, and they differ in nothing but their weights.
"""

import math

import torch
from torch import Tensor, nn

import lates
from experiments.data import ImageSet
from experiments.material import Batches

SAMPLES = 10
BUDGET = 0.01


def fit_temperature(network: nn.Module, holdout: ImageSet, seed: int) -> lates.CalibratedModel:
    sampled = lates.mc_dropout(network, SAMPLES, seed=seed)
    return lates.calibrate(sampled, holdout=Batches(holdout), blocks=[], seed=seed, progress=False)


def fit_layer_stack(network: nn.Module, train: ImageSet, holdout: ImageSet, seed: int) -> lates.CalibratedModel:
    """LATES at the library's optimum; as in the paper, within 1 % and without views."""
    return lates.calibrate(
        lates.mc_dropout(network, SAMPLES, seed=seed),
        train=Batches(train),
        holdout=Batches(holdout),
        budget=BUDGET,
        views=None,
        passes=1,
        seed=seed,
        progress=False,
    )


def predict_draws(stacked: lates.CalibratedModel, beta: float, inputs: Tensor) -> dict[str, Tensor]:
    """Logits [n, classes] of the three methods, logs of mean probabilities over the same draws.

    stacked  LATES, whose members are drawn
    beta     temperature scaling's weight of the head
    """
    draws = stacked.members(inputs)  # for each draw [n, classes, members], the head last
    weights = [stacked.weights[name] for name in stacked.member_names]
    members = torch.stack([*draws])
    head = members[..., -1]
    return {
        "mcd": _log_mean_probability(head),
        "mcd_temperature": _log_mean_probability(beta * head),
        "mcd_lates": _log_mean_probability(members @ torch.tensor(weights, dtype=members.dtype, device=head.device)),
    }


def _log_mean_probability(logits: Tensor) -> Tensor:
    """log of the mean over draws of softmax(logits): [draws, n, classes] -> [n, classes]."""
    return logits.log_softmax(-1).logsumexp(0) - math.log(len(logits))
