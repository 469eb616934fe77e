"""The classifier that the demo calibrates: a residual network of 175,000 parameters."""

from importlib.resources import files

import torch.nn.functional as F
from safetensors.torch import load
from torch import Tensor, nn


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
