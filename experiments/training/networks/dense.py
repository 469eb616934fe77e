"""Densely connected networks (Huang et al. 2017)."""

from collections import OrderedDict
from collections.abc import Callable

import torch
from torch import Tensor, nn

from experiments.training.networks.parts import classifier, convolution, initialise


class DenseLayer(nn.Module):
    """x, then `growth` new channels: norm, ReLU, 1x1 convolution to 4 times as many, norm, ReLU, 3x3 convolution."""

    def __init__(self, inputs: int, growth: int) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(inputs)
        self.conv1 = convolution(inputs, 4 * growth, 1)
        self.bn2 = nn.BatchNorm2d(4 * growth)
        self.conv2 = convolution(4 * growth, growth, 3)
        self.relu = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        inner = self.conv1(self.relu(self.bn1(x)))
        return torch.cat([x, self.conv2(self.relu(self.bn2(inner)))], 1)


class DenseBlock(nn.ModuleDict):
    """Dense layers, one after the other. No list, so that it counts as one block, as torchvision's does: what a layer adds
    stays in the output of every later one."""

    def __init__(self, inputs: int, depth: int, growth: int) -> None:
        super().__init__({str(place): DenseLayer(inputs + place * growth, growth) for place in range(depth)})

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.values():
            x = layer(x)
        return x


class DenseNet(nn.Sequential):
    """DenseNet-BC for 32 x 32 images: three dense blocks of (depth − 4) / 6 layers; between them half of the channels, and of
    the height and width."""

    def __init__(self, depth: int, growth: int, classes: int, normalise: Callable[[], nn.Module]) -> None:
        layers, channels = (depth - 4) // 6, 2 * growth
        parts: dict[str, nn.Module] = {"normalise": normalise(), "stem": convolution(3, channels, 3)}
        for number in (1, 2, 3):
            parts[f"block{number}"] = DenseBlock(channels, layers, growth)
            channels += layers * growth
            if number < 3:
                parts[f"transition{number}"] = nn.Sequential(
                    nn.BatchNorm2d(channels), nn.ReLU(), convolution(channels, channels // 2, 1), nn.AvgPool2d(2)
                )
                channels //= 2
        parts |= {"bn": nn.BatchNorm2d(channels), "relu": nn.ReLU(), **classifier(channels, classes)}
        super().__init__(OrderedDict(parts))
        initialise(self)
