"""Probes as the paper trains them: stochastic gradient descent, all blocks together."""

from collections.abc import Mapping

import torch
from torch.nn.functional import pad

from lates.network import Features
from lates.probes.probe import TrainedProbe, fold, mean_loss
from lates.probes.rows import Rows
from lates.stack import MeanLoss

RATE, MOMENTUM, BATCH, EPOCHS, HALVING = 0.01, 0.9, 128, 50, 10
PREFETCH = 32
"""Batches whose features are gathered at once: a GPU would spend most of its time on gathering each."""


def similar_in_width(train: Features) -> list[list[str]]:
    """Blocks in groups whose widths differ by less than a factor of two."""
    groups: dict[int, list[str]] = {}
    for name, features in train.blocks.items():
        groups.setdefault(features.shape[1].bit_length(), []).append(name)
    return list(groups.values())


def train_by_sgd(
    together: Mapping[str, Rows], test: Mapping[str, Rows], loss: MeanLoss, seed: int
) -> dict[str, TrainedProbe]:
    """The paper's: rate 0.01 halved every 10 of 50 epochs, momentum 0.9, batch 128. An epoch is one view of each image.

    The blocks step together in batched matrix products: a GPU would otherwise wait for the host at each of a hundred
    thousand tiny steps. Features are padded with zeros to the widest block's, and a last feature of 1 carries the bias;
    weights of padding stay 0.
    """
    blocks = list(together.values())
    rows, width = blocks[0], max(block.width for block in blocks)
    variables = torch.zeros(len(blocks), rows.classes, width + 1, dtype=torch.float32, device=rows.device)
    velocity = torch.zeros_like(variables)
    labels = rows.labels.to(rows.device)
    generator = torch.Generator().manual_seed(seed)
    for epoch in range(EPOCHS):
        rate = RATE * 0.5 ** (epoch // HALVING)
        order = torch.randperm(len(rows), generator=generator)[: len(rows) // rows.passes].to(rows.device)
        for places in order.split(BATCH * PREFETCH):
            padded = torch.stack([pad(block.take(places), (0, width - block.width)) for block in blocks])
            padded = pad(padded, (0, 1), value=1.0)
            for features, batch in zip(padded.split(BATCH, dim=1), places.split(BATCH), strict=True):
                logits = (features @ variables.mT).flatten(0, 1)
                _, slope = loss.slope(logits, labels[batch].repeat(len(blocks)))
                gradient = slope.unflatten(0, features.shape[:2]).mT @ features / len(batch)
                velocity.mul_(MOMENTUM).add_(gradient)
                variables.sub_(velocity, alpha=rate)
    probes: dict[str, TrainedProbe] = {}
    for (name, block), trained in zip(together.items(), variables, strict=True):
        unpadded = torch.cat([trained[:, : block.width].flatten(), trained[:, width]])
        probes[name] = fold(block, unpadded, 0.0, mean_loss(test[name], loss, unpadded))
    return probes
