"""Depthwise convolutions: MobileNetV2 (Sandler et al. 2018)."""

from collections import OrderedDict
from collections.abc import Sequence

from torch import Tensor, nn

from experiments.training.networks.parts import classifier, convolution


class InvertedResidual(nn.Module):
    """Widen by 1x1, filter each channel by 3x3, narrow by 1x1 without activation; plus x where the shape stays."""

    def __init__(self, inputs: int, outputs: int, stride: int, widen: int) -> None:
        super().__init__()
        inner = widen * inputs
        widened = _activated(inputs, inner, 1) if widen > 1 else []
        filtered = _activated(inner, inner, 3, stride, groups=inner)
        self.branch = nn.Sequential(*widened, *filtered, convolution(inner, outputs, 1), nn.BatchNorm2d(outputs))
        self.same = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        return x + self.branch(x) if self.same else self.branch(x)


def _activated(inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    """A convolution with its norm and activation."""
    layer = convolution(inputs, outputs, kernel, stride, groups)
    return [layer, nn.BatchNorm2d(outputs), nn.ReLU6(inplace=True)]


class MobileNet(nn.Sequential):
    """MobileNetV2 (Sandler et al. 2018); for 32 x 32 images the stem and the second stage keep the size."""

    def __init__(self, stages: Sequence[tuple[int, int, int, int]], classes: int) -> None:
        """Stages: (widen, channels, blocks, stride of the first)."""
        stem = nn.Sequential(*_activated(3, 32, 3))
        channels, blocks = 32, nn.Sequential()
        for widen, outputs, depth, stride in stages:
            for place in range(depth):
                blocks.append(InvertedResidual(channels, outputs, stride if place == 0 else 1, widen))
                channels = outputs
        last = nn.Sequential(*_activated(channels, 1280, 1))
        super().__init__(OrderedDict(stem=stem, blocks=blocks, last=last, **classifier(1280, classes)))
