"""What several networks are made of."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn


class Normalise(nn.Module):
    """Inputs in [0, 1], each channel less its mean, by its deviation."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, mean: Sequence[float], deviation: Sequence[float]) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(mean)[:, None, None], persistent=False)
        self.register_buffer("deviation", torch.tensor(deviation)[:, None, None], persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        return (images - self.mean) / self.deviation


def convolution(inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> nn.Conv2d:
    """A convolution that keeps the size at stride 1; no bias, for a batch norm always sits beside it."""
    return nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, groups=groups, bias=False)


def residual_stages(
    block: Callable[[int, int, int], nn.Module], depths: Sequence[int], widths: Sequence[int]
) -> dict[str, Any]:
    """`layer1`, `layer2`, … of `depths` blocks (channels in, channels out, stride) and `widths` channels, the input first. Each
    stage after the first halves the height and width."""
    stages: dict[str, nn.Module] = {}
    for number, (depth, (inputs, outputs)) in enumerate(zip(depths, pairwise(widths), strict=True), 1):
        first = block(inputs, outputs, 1 if number == 1 else 2)
        stages[f"layer{number}"] = nn.Sequential(first, *(block(outputs, outputs, 1) for _ in range(depth - 1)))
    return stages


def classifier(channels: int, classes: int) -> dict[str, nn.Module]:
    """What every convolutional network ends in: global average, linear head."""
    return {"average": nn.AdaptiveAvgPool2d(1), "flatten": nn.Flatten(), "head": nn.Linear(channels, classes)}


def initialise(network: nn.Module) -> None:
    """He's initialisation: weights of variance 2 / fan-out keep the gradient's scale through ReLUs of any depth."""
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
