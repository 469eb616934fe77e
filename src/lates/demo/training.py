"""How the shipped network was trained: plain SGD, flips only, to the end. That makes it accurate and overconfident."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F

from lates.demo.images import Split
from lates.demo.network import SmallResNet
from lates.network import flip
from lates.runtime import Progress, seeded_globally

EPOCHS = 30
BATCH = 128
RATE, MOMENTUM, DECAY = 0.1, 0.9, 1e-4
THREADS = 2


def train_network(
    split: Split, *, epochs: int = EPOCHS, seed: int = 0, threads: int = THREADS, progress: Progress | None = None
) -> SmallResNet:
    """Train the demo's network: SGD with Nesterov momentum and a cosine schedule down to zero.

    The same seed and number of threads give the same network, to the last bit, on the same processor and version of
    torch. Elsewhere convolutions may round differently, and training magnifies that.
    """
    steps = len(split) // BATCH
    with seeded_globally(seed, torch.device("cpu")), _using(threads):
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


@contextmanager
def _using(threads: int) -> Iterator[None]:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        yield
    finally:
        torch.set_num_threads(before)
