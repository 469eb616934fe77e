"""Test-time augmentation: the mean of the probabilities of an image and of its mirror image, then a temperature.

Two forward passes are the least there is.
"""

import math

from torch import Tensor


def log_mean_probabilities(logits: Tensor) -> Tensor:
    """[members, n, classes] -> the log of the mean of the members' probabilities [n, classes]."""
    return logits.log_softmax(2).logsumexp(0) - math.log(len(logits))
