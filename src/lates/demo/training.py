"""How the shipped network was trained: plain SGD, flips only, to the end. That makes it accurate and overconfident."""

import torch
import torch.nn.functional as F

from lates.demo.images import Split
from lates.demo.network import SmallResNet
from lates.network import flip
from lates.runtime import Progress, seeded_globally

EPOCHS = 30
BATCH = 128
RATE, MOMENTUM, DECAY = 0.1, 0.9, 1e-4


def train_network(
    split: Split, *, epochs: int = EPOCHS, seed: int = 0, progress: Progress | None = None
) -> SmallResNet:
    """Train the demo's network: SGD with Nesterov momentum and a cosine schedule down to zero.

    The same seed gives the same network, to the last bit, with the same number of threads, processor and version of torch.
    Elsewhere convolutions may round differently, and training magnifies that. The shipped network took two threads.
    """
    steps = len(split) // BATCH
    with seeded_globally(seed, torch.device("cpu")):
        network = SmallResNet().train()
        optimiser = torch.optim.SGD(network.parameters(), RATE, MOMENTUM, weight_decay=DECAY, nesterov=True)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, epochs * steps)
        for epoch in range(epochs):
            for step, rows in enumerate(torch.randperm(len(split)).split(BATCH)[:steps]):
                loss = F.cross_entropy(network(flip(split.images[rows])), split.labels[rows])
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
                schedule.step()
                if progress is not None:
                    progress("training", epoch * steps + step + 1, epochs * steps)
    return network.eval()
