"""The classifier that the demo calibrates: a residual network of 175,000 parameters.

It was trained by plain SGD, with flips only, to the end. That makes it accurate and overconfident.
"""

from importlib.resources import files

import torch
import torch.nn.functional as F
from safetensors.torch import load
from torch import Tensor, nn

from lates.demo.images import Split
from lates.network import flip
from lates.runtime import Progress, seeded_globally

EPOCHS = 30
BATCH = 128
RATE, MOMENTUM, DECAY = 0.1, 0.9, 1e-4


class ResidualBlock(nn.Module):
    """x -> relu(x + f(x)), f two convolutions; where the shape changes, x passes through a 1 x 1 convolution."""

    def __init__(self, before: int, after: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(after)
        self.conv2 = nn.Conv2d(after, after, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(after)
        self.skip = nn.Identity()
        if (before, stride) != (after, 1):
            self.skip = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))

    def forward(self, x: Tensor) -> Tensor:
        inside = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.skip(x) + self.norm2(self.conv2(inside)))


class SmallResNet(nn.Module):
    """Images [n, 1, 28, 28] -> logits [n, 10]: a stem and three stages of two blocks, 16, 32 and 64 channels wide."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, 16, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU())
        self.layer1 = nn.Sequential(ResidualBlock(16, 16), ResidualBlock(16, 16))
        self.layer2 = nn.Sequential(ResidualBlock(16, 32, stride=2), ResidualBlock(32, 32))
        self.layer3 = nn.Sequential(ResidualBlock(32, 64, stride=2), ResidualBlock(64, 64))
        self.fc = nn.Linear(64, 10)

    def forward(self, images: Tensor) -> Tensor:
        x = self.layer3(self.layer2(self.layer1(self.stem(images))))
        return self.fc(x.mean((2, 3)))


def load_network() -> SmallResNet:
    """The shipped network, in evaluation mode."""
    network = SmallResNet().eval()
    network.load_state_dict(load(files("lates").joinpath("data", "network.safetensors").read_bytes()))
    return network


def train_network(split: Split, *, epochs: int = EPOCHS, seed: int = 0, progress: Progress | None = None) -> SmallResNet:
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
