"""Test-time augmentation: the mean of the probabilities of an image and of its mirror image, then a temperature.

Two forward passes are the least there is.
"""

import math
from collections.abc import Iterable

import torch
from torch import Tensor, nn


def log_mean_probabilities(logits: Tensor) -> Tensor:
    """[members, n, classes] -> the log of the mean of the members' probabilities [n, classes]."""
    return logits.log_softmax(2).logsumexp(0) - math.log(len(logits))


def mirrored_logits(network: nn.Module, batches: Iterable[tuple[Tensor, Tensor]]) -> Tensor:
    """[n, classes]: log-probabilities, which are valid logits."""
    parts: list[Tensor] = []
    with torch.no_grad():
        for images, _ in batches:
            both = torch.stack([network(copy).float() for copy in (images, images.flip(-1))])
            parts.append(log_mean_probabilities(both))
    return torch.cat(parts)
