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

import lates
from experiments.data.corruptions import BAR_NAMES, LIKE_JITTER

BLOCKS = 200
IMAGE_METRICS = ("nll", "brier", "accuracy")
CLEAN_GROUP, LIKE_GROUP, UNLIKE_GROUP, BAR_GROUP = "clean", "like_jitter", "unlike_jitter", "bar"
NATURAL_GROUP = "natural"
Array = NDArray[np.float64]
Blocks = Mapping[tuple[str, str], Array]
"""(method, group of test sets) -> [metrics, blocks], the mean over the group's sets"""


def group_of(test_set: str) -> str:
    """Of a test set, `<corruption>-<severity>` or one without corruption: itself if it has none, C-bar's ten, else whether it
    resembles the jitter."""
    if test_set in (CLEAN_GROUP, NATURAL_GROUP):
        return test_set
    corruption = test_set.rpartition("-")[0]
    if corruption in BAR_NAMES:
        return BAR_GROUP
    return LIKE_GROUP if corruption in LIKE_JITTER else UNLIKE_GROUP


def block_means(logits: Tensor | np.ndarray, labels: Tensor | np.ndarray) -> Array:
    """[metrics, blocks]: the scores of images averaged over each block."""
    rows, blocks = lates.metrics.describe_rows(logits, labels), min(BLOCKS, len(labels))
    values = torch.stack([rows.nll, rows.brier, rows.correct])
    block = torch.arange(len(labels)) % blocks
    sums = torch.zeros(len(values), blocks, dtype=torch.float64).index_add_(1, block, values)
    return (sums / torch.bincount(block)).numpy()
