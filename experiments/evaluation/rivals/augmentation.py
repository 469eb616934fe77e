"""Test-time augmentation: the mean of the probabilities of an image and of its mirror image, then a temperature.

Two forward passes are the least there is.
"""

import math
from collections.abc import Iterable

import torch
from torch import Tensor, nn


def mirrored_logits(network: nn.Module, batches: Iterable[tuple[Tensor, Tensor]]) -> Tensor:
    """[n, classes]: log-probabilities, which are valid logits."""
    parts: list[Tensor] = []
    with torch.no_grad():
        for images, _ in batches:
            logs = torch.stack([network(copy).float().log_softmax(1) for copy in (images, images.flip(-1))])
            parts.append(logs.logsumexp(0) - math.log(len(logs)))
    return torch.cat(parts)
