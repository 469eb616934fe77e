"""Values per test image, pooled into blocks of images: all that a bootstrap over images needs, and small enough to keep.

Log-loss, Brier score and accuracy are means over images. Image i belongs to block i mod `BLOCKS`, the same for every network,
method and test set, so blocks can be paired across all of them. Drawing blocks with replacement instead of single images
gives a mean the same variance, for images are independent of one another: 200 blocks estimate it to 5 %.
"""

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from experiments.data.corruptions import BAR_NAMES, LIKE_JITTER

BLOCKS = 200
IMAGE_METRICS = ("nll", "brier", "accuracy")
CLEAN_GROUP, LIKE_GROUP, UNLIKE_GROUP, BAR_GROUP = "clean", "like_jitter", "unlike_jitter", "bar"
NATURAL_GROUP = "natural"
BLOCKED_METHODS = frozenset(
    {
        "network", "temperature", "temperature_sgd", "temperature_brier", "temperature_jittered_holdout",
        "temperature_both_holdouts", "temperature_robust_holdout", "vector_scaling", "sms", "sms_robust_holdout", "svs",
        "dirichlet", "ets", "isotonic", "parameterised", "best_layer", "density_kth_ets", "tta_mirror", "tta_shift",
        "head_refitted_none", "head_refitted_shift",
        "head_refitted_jitter", "head_refitted_robust", "head_refitted_both_holdouts", "head_refitted_robust_holdout",
        "last_layer_grid", "lates_paper", "lates_none_1", "lates_shift_1", "lates_jitter_1", "lates_robust_1",
        "lates_robust_brier", "lates_rescaled", "lates_brier_rescaled", "lates_robust_sms", "lates_light",
        "lates_capped", "lates_capped_rescaled", "lates_capped_light", "lates_last", "lates_last_rescaled", "lates_last_light",
        "lates_last_capped", "lates_last_capped_rescaled", "lates_last_capped_light",
        "lates_jittered_holdout", "lates_both_holdouts", "lates_robust_holdout",
        "mcd", "mcd_temperature", "mcd_lates", "mcd_lates_shift", "ensemble",
    }
)  # fmt: skip
"""Those whose values are kept: the ones that tables compare by intervals."""

Array = NDArray[np.float64]
Blocks = Mapping[tuple[str, str], Array]
"""(method, group of test sets) -> [metrics, blocks], the mean over the group's sets"""


def group_of(corruption: str) -> str:
    """Of a test set's corruption: itself for sets that have none, C-bar's ten, else whether it resembles the jitter."""
    if corruption in (CLEAN_GROUP, NATURAL_GROUP):
        return corruption
    if corruption in BAR_NAMES:
        return BAR_GROUP
    return LIKE_GROUP if corruption in LIKE_JITTER else UNLIKE_GROUP


def block_means(logits: Tensor, labels: Tensor) -> Array:
    """[metrics, blocks]: -log p_y, sum_c (p_c - [c = y])² and [argmax = y] of each image, averaged over each block."""
    rows = torch.arange(len(labels), device=labels.device)
    logs = logits.double().log_softmax(1)
    probabilities = logs.exp()
    brier = probabilities.square().sum(1) - 2 * probabilities[rows, labels] + 1
    values = torch.stack([-logs[rows, labels], brier, (logits.argmax(1) == labels).double()])
    blocks = min(BLOCKS, len(labels))
    places = rows % blocks
    sums = torch.zeros(len(values), blocks, dtype=torch.float64, device=labels.device).index_add_(1, places, values)
    return (sums / torch.bincount(places)).cpu().numpy()
