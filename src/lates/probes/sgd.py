"""A probe as the paper trains it: stochastic gradient descent."""

import torch

from lates.probes.probe import TrainedProbe, Variables, fold, logits_of, mean_loss
from lates.probes.rows import StandardisedRows
from lates.stack import MeanLoss

RATE, MOMENTUM, BATCH, EPOCHS, HALVING = 0.01, 0.9, 128, 50, 10
PREFETCH = 32
"""Batches whose features are gathered at once: a GPU would spend most of its time on gathering each."""


def train_by_sgd(rows: StandardisedRows, validation: StandardisedRows, loss: MeanLoss, seed: int) -> TrainedProbe:
    """The paper's: rate 0.01 halved every 10 of 50 epochs, momentum 0.9, batch 128. An epoch has one view of each image,
    drawn among its passes, where the loader does not shuffle; otherwise as many rows."""
    variables: Variables = torch.zeros(rows.classes * (rows.width + 1), dtype=torch.float32, device=rows.device)
    velocity = torch.zeros_like(variables)
    generator, inputs = torch.Generator().manual_seed(seed), len(rows) // rows.passes
    for epoch in range(EPOCHS):
        rate = RATE * 0.5 ** (epoch // HALVING)
        order = torch.randperm(inputs, generator=generator)
        if rows.passes > 1:
            order += inputs * torch.randint(rows.passes, (inputs,), generator=generator)
        order = order.to(rows.device)
        for indices in order.split(BATCH * PREFETCH):
            for features, batch in zip(rows.take(indices).split(BATCH), indices.split(BATCH), strict=True):
                _, logit_gradient = loss.value_and_gradient(logits_of(variables, features), rows.labels[batch])
                gradient = torch.cat([(logit_gradient.T @ features).flatten(), logit_gradient.sum(0)]) / len(batch)
                velocity.mul_(MOMENTUM).add_(gradient)
                variables.sub_(velocity, alpha=rate)
    return fold(rows, variables, 0.0, mean_loss(validation, loss, variables))
