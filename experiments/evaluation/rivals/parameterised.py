"""Parameterised temperature scaling (Tomani et al. 2022): softmax(z / T(z)), T = |MLP(the 10 largest logits, sorted)|.

Two hidden layers of 5 units with ReLU, fitted to the Brier score by Adam in 100 epochs, logits clipped to ±100. Its output
layer begins at weights 0 and the best single temperature, so that it begins as temperature scaling to the Brier score.
"""

import torch
from torch import Tensor, nn

from experiments.evaluation.rivals import Rival, temperature
from experiments.evaluation.rivals.descent import brier

TOP, UNITS, CLIP = 10, 5, 100.0
RATE, BATCH, EPOCHS = 5e-3, 500, 100
LEAST = 1e-3
"""The smallest temperature."""


def fit(logits: Tensor, labels: Tensor, seed: int = 0) -> Rival:
    """On the CPU: thousands of tiny steps."""
    z, y = logits.double().cpu(), labels.cpu()
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        hidden = nn.Linear(min(TOP, z.shape[1]), UNITS), nn.ReLU(), nn.Linear(UNITS, UNITS), nn.ReLU()
        last = nn.Linear(UNITS, 1)
        network = nn.Sequential(*hidden, last).double()
    nn.init.zeros_(last.weight)
    nn.init.constant_(last.bias, 1 / max(temperature.fit(z, y, loss="brier").beta, 1 / CLIP))
    optimiser = torch.optim.Adam(network.parameters(), RATE)
    generator = torch.Generator().manual_seed(seed)
    with torch.enable_grad():
        for _ in range(EPOCHS):
            for batch in torch.randperm(len(y), generator=generator).split(BATCH):
                optimiser.zero_grad()
                brier((z[batch] / _temperatures(network, z[batch])).softmax(1), y[batch]).backward()
                optimiser.step()
    network.requires_grad_(False)

    def log_probabilities(logits: Tensor) -> Tensor:
        z = logits.double()
        return (z / _temperatures(network, z.cpu()).to(z.device)).log_softmax(1)

    return Rival(log_probabilities, sum(each.numel() for each in network.parameters()))


def _temperatures(network: nn.Module, logits: Tensor) -> Tensor:
    """[n, 1]"""
    largest = logits.clamp(-CLIP, CLIP).topk(min(TOP, logits.shape[1])).values
    return network(largest).abs().clamp(min=LEAST)
