"""The classifier that the demo calibrates: a residual network of 175,000 parameters."""

from importlib.resources import files
from pathlib import Path

import torch.nn.functional as F
from safetensors import SafetensorError
from safetensors.torch import load
from safetensors.torch import save as serialise
from torch import Tensor, nn

from lates.runtime import write_whole


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


def load_network(path: Path | None = None) -> SmallResNet:
    """The shipped network, or one that `lates demo --train` wrote, in evaluation mode."""
    network = SmallResNet().eval()
    source = files("lates").joinpath("data", "network.safetensors") if path is None else path
    if not source.is_file():
        raise FileNotFoundError(f"There is no file {source}. `lates demo --train --weights {source}` writes one.")
    try:
        network.load_state_dict(load(source.read_bytes()))
    except (SafetensorError, RuntimeError) as error:
        raise ValueError(
            f"{source} does not hold the weights of the demo's network: expected a file that "
            f"`lates demo --train` wrote. {error}"
        ) from error
    return network


def save_network(network: SmallResNet, path: Path) -> None:
    write_whole(path, serialise(network.state_dict()))
