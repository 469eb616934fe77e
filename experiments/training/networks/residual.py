"""Residual networks (He et al. 2016) and wide ones (Zagoruyko and Komodakis 2016)."""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal

from torch import Tensor, nn
from torch.nn.functional import pad

from experiments.training.networks.parts import classifier, convolution, initialise, residual_stages


class PaddedShortcut(nn.Module):
    """Every `stride`-th row and column of x, between channels of zeros: a change of shape without parameters."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.stride, self.margin = stride, (outputs - inputs) // 2

    def forward(self, x: Tensor) -> Tensor:
        return pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, self.margin, self.margin))


def _projection(inputs: int, outputs: int, stride: int) -> nn.Module:
    return nn.Sequential(convolution(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))


Shortcut = Callable[[int, int, int], nn.Module]
"""(channels in, channels out, stride) -> what brings x to the new shape"""


class BasicBlock(nn.Module):
    """relu(x + f(x)) with f two 3x3 convolutions; a shortcut, by default a 1x1 projection, where the shape changes."""

    def __init__(self, inputs: int, outputs: int, stride: int, shortcut: Shortcut = _projection) -> None:
        super().__init__()
        self.conv1 = convolution(inputs, outputs, 3, stride)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = convolution(outputs, outputs, 3)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut = _shortcut(inputs, outputs, stride, shortcut)

    def forward(self, x: Tensor) -> Tensor:
        inner = self.relu(self.bn1(self.conv1(x)))
        return self.relu(self.shortcut(x) + self.bn2(self.conv2(inner)))


class Bottleneck(nn.Module):
    """relu(x + f(x)) with f a 1x1, a 3x3 and a 1x1 convolution; the 3x3 carries the stride, the last widens by 4."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        width = outputs // 4
        self.conv1 = convolution(inputs, width, 1)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = convolution(width, width, 3, stride)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = convolution(width, outputs, 1)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut = _shortcut(inputs, outputs, stride)

    def forward(self, x: Tensor) -> Tensor:
        inner = self.relu(self.bn1(self.conv1(x)))
        inner = self.relu(self.bn2(self.conv2(inner)))
        return self.relu(self.shortcut(x) + self.bn3(self.conv3(inner)))


def _shortcut(inputs: int, outputs: int, stride: int, shortcut: Shortcut = _projection) -> nn.Module:
    return nn.Identity() if stride == 1 and inputs == outputs else shortcut(inputs, outputs, stride)


class ResNet(nn.Sequential):
    """Stem, stages of residual blocks, global average, linear head (He et al. 2016). `widths`: of the stem and of each stage.

    `stem="small"` is a 3x3 convolution for images of about 32 x 32; `stem="large"` is ImageNet's 7x7 convolution with
    stride 2 and a max pooling with stride 2.
    """

    def __init__(
        self,
        block: Callable[[int, int, int], nn.Module],
        depths: Sequence[int],
        widths: Sequence[int],
        classes: int,
        stem: Literal["small", "large"] = "small",
        normalise: Callable[[], nn.Module] | None = None,
    ) -> None:
        kernel, stride = (3, 1) if stem == "small" else (7, 2)
        entry = nn.Sequential(convolution(3, widths[0], kernel, stride), nn.BatchNorm2d(widths[0]), nn.ReLU(inplace=True))
        if stem == "large":
            entry.append(nn.MaxPool2d(3, stride=2, padding=1))
        before = {"normalise": normalise()} if normalise else {}
        stages = residual_stages(block, depths, widths)
        super().__init__(OrderedDict(**before, stem=entry, **stages, **classifier(widths[-1], classes)))
        initialise(self)


class WideBlock(nn.Module):
    """x + f(x) with f norm, ReLU, 3x3 convolution, dropout, norm, ReLU, 3x3 convolution.

    Norm and ReLU come before the convolutions, so the sum stays linear from block to block. Dropout is elementwise, as
    MC dropout in Uncertainty Baselines has it; where the shape changes, x is projected after its norm and ReLU.
    """

    def __init__(self, inputs: int, outputs: int, stride: int, dropout: float) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(inputs)
        self.conv1 = convolution(inputs, outputs, 3, stride)
        self.dropout = nn.Dropout(dropout) if dropout > 0 else nn.Identity()
        self.bn2 = nn.BatchNorm2d(outputs)
        self.conv2 = convolution(outputs, outputs, 3)
        self.relu = nn.ReLU()
        same = stride == 1 and inputs == outputs
        self.shortcut = None if same else convolution(inputs, outputs, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        active = self.relu(self.bn1(x))
        inner = self.dropout(self.conv1(active))
        inner = self.conv2(self.relu(self.bn2(inner)))
        return inner + (x if self.shortcut is None else self.shortcut(active))


class WideResNet(nn.Sequential):
    """WRN-depth-widen for 32 x 32 images: three stages of (depth − 4) / 6 blocks, 16·widen, 32·widen, 64·widen wide."""

    def __init__(self, depth: int, widen: int, classes: int, dropout: float = 0.0) -> None:
        widths = (16, 16 * widen, 32 * widen, 64 * widen)
        stem = convolution(3, 16, 3)
        stages = residual_stages(partial(WideBlock, dropout=dropout), [(depth - 4) // 6] * 3, widths)
        last = {"bn": nn.BatchNorm2d(widths[-1]), "relu": nn.ReLU(), **classifier(widths[-1], classes)}
        super().__init__(OrderedDict(stem=stem, **stages, **last))
        initialise(self)
