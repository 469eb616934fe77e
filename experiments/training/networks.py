"""The five networks of the paper, further kinds for the strong recipe and two tiny ones for trials, defined plainly.

Every network maps images [n, 3, height, width] with values in [0, 1] to logits [n, classes]. The residual ones keep
their blocks in stages `layer1`, `layer2`, …; the VGG ones keep convolution, norm, activation and pooling in one
sequence `features`. d, the number of members of the paper, counts what can vote: each residual block, the last of them
through the head; or each convolution of a VGG network plus its head.

| network           | d  | parameters at 10 classes |
|-------------------|----|--------------------------|
| vgg16             | 14 | 14.7 M                   |
| vgg19             | 17 | 20.0 M                   |
| resnet18          | 8  | 11.2 M                   |
| resnet50          | 16 | 23.5 M                   |
| wide_resnet_28_10 | 12 | 36.5 M                   |

Not the paper's: mobilenet (2.2 M), convnet_group_norm (7.6 M) and small_vit (7.2 M); resnet20 to resnet56 (.27 to .85 M),
whose trained weights others have released; and two of half the width that a CPU can train, vgg11_half (2.3 M) and
resnet18_half (2.8 M).
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from experiments.training.further_networks import MOBILENET_STAGES, MobileNet, SmallViT


def _convolution(inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Conv2d:
    """A convolution that keeps the size at stride 1; no bias, for a batch norm always sits beside it."""
    return nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=kernel // 2, bias=False)


def _initialise(network: nn.Module) -> None:
    """He's initialisation: weights of variance 2 / fan-out keep the gradient's scale through ReLUs of any depth."""
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")


class VGG(nn.Module):
    """3x3 convolutions, each with a norm and ReLU; 2x2 max pooling between stages; global average; linear head."""

    def __init__(
        self, stages: Sequence[Sequence[int]], classes: int, norm: Callable[[int], nn.Module] = nn.BatchNorm2d
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        channels = 3
        for index, widths in enumerate(stages):
            if index > 0:
                layers.append(nn.MaxPool2d(2))
            for width in widths:
                layers += [_convolution(channels, width, 3), norm(width), nn.ReLU(inplace=True)]
                channels = width
        self.features = nn.Sequential(*layers)
        self.average = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(channels, classes)
        _initialise(self)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.average(self.features(images)).flatten(1))


class PaddedShortcut(nn.Module):
    """Every `stride`-th row and column of x, between channels of zeros: a change of shape without parameters."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.stride, self.margin = stride, (outputs - inputs) // 2

    def forward(self, x: Tensor) -> Tensor:
        return pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, self.margin, self.margin))


def _projection(inputs: int, outputs: int, stride: int) -> nn.Module:
    return nn.Sequential(_convolution(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))


Shortcut = Callable[[int, int, int], nn.Module]
"""(channels in, channels out, stride) -> what brings x to the new shape"""


class BasicBlock(nn.Module):
    """relu(x + f(x)) with f two 3x3 convolutions; a shortcut, by default a 1x1 projection, where the shape changes."""

    expansion = 1

    def __init__(self, inputs: int, width: int, stride: int, shortcut: Shortcut = _projection) -> None:
        super().__init__()
        self.conv1 = _convolution(inputs, width, 3, stride)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = _convolution(width, width, 3)
        self.bn2 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut = _shortcut(inputs, width, stride, shortcut)

    def forward(self, x: Tensor) -> Tensor:
        inner = self.relu(self.bn1(self.conv1(x)))
        return self.relu(self.shortcut(x) + self.bn2(self.conv2(inner)))


class Bottleneck(nn.Module):
    """relu(x + f(x)) with f a 1x1, a 3x3 and a 1x1 convolution; the 3x3 carries the stride, the last widens by 4."""

    expansion = 4

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = width * self.expansion
        self.conv1 = _convolution(inputs, width, 1)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = _convolution(width, width, 3, stride)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = _convolution(width, outputs, 1)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut = _shortcut(inputs, outputs, stride)

    def forward(self, x: Tensor) -> Tensor:
        inner = self.relu(self.bn1(self.conv1(x)))
        inner = self.relu(self.bn2(self.conv2(inner)))
        return self.relu(self.shortcut(x) + self.bn3(self.conv3(inner)))


def _shortcut(inputs: int, outputs: int, stride: int, shortcut: Shortcut = _projection) -> nn.Module:
    return nn.Identity() if stride == 1 and inputs == outputs else shortcut(inputs, outputs, stride)


class ResNet(nn.Module):
    """Stem, four stages of residual blocks, global average, linear head.

    `stem="small"` is a 3x3 convolution for images of about 32 x 32; `stem="large"` is ImageNet's 7x7 convolution with
    stride 2 and a max pooling with stride 2. Every stage after the first halves the height and width.
    """

    def __init__(
        self,
        block: type[BasicBlock] | type[Bottleneck],
        depths: Sequence[int],
        widths: Sequence[int],
        classes: int,
        stem: Literal["small", "large"] = "small",
    ) -> None:
        super().__init__()
        channels = widths[0]
        kernel, stride = (3, 1) if stem == "small" else (7, 2)
        entry = _convolution(3, channels, kernel, stride)
        self.stem = nn.Sequential(entry, nn.BatchNorm2d(channels), nn.ReLU(inplace=True))
        if stem == "large":
            self.stem.append(nn.MaxPool2d(3, stride=2, padding=1))
        stages: list[nn.Sequential] = []
        for number, (depth, width) in enumerate(zip(depths, widths, strict=True)):
            outputs = width * block.expansion
            first = block(channels, width, 1 if number == 0 else 2)
            stages.append(nn.Sequential(first, *(block(outputs, width, 1) for _ in range(depth - 1))))
            channels = outputs
        self.layer1, self.layer2, self.layer3, self.layer4 = stages
        self.average = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(channels, classes)
        _initialise(self)

    def forward(self, images: Tensor) -> Tensor:
        x = self.layer4(self.layer3(self.layer2(self.layer1(self.stem(images)))))
        return self.head(self.average(x).flatten(1))


class CifarResNet(nn.Module):
    """ResNet of depth 6n + 2 for 32 x 32 images (He et al. 2016): three stages of n blocks, 16, 32 and 64 wide, whose shortcuts
    have no parameters. Inputs in [0, 1] are normalised by ImageNet's means and deviations, as the released weights want it."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, depth: int, classes: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor([0.485, 0.456, 0.406])[:, None, None], persistent=False)
        self.register_buffer("deviation", torch.tensor([0.229, 0.224, 0.225])[:, None, None], persistent=False)
        self.stem = nn.Sequential(_convolution(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(inplace=True))
        stages: list[nn.Sequential] = []
        for inputs, width, stride in ((16, 16, 1), (16, 32, 2), (32, 64, 2)):
            rest = (BasicBlock(width, width, 1) for _ in range((depth - 2) // 6 - 1))
            stages.append(nn.Sequential(BasicBlock(inputs, width, stride, PaddedShortcut), *rest))
        self.layer1, self.layer2, self.layer3 = stages
        self.average = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(64, classes)
        _initialise(self)

    def forward(self, images: Tensor) -> Tensor:
        x = self.stem((images - self.mean) / self.deviation)
        return self.head(self.average(self.layer3(self.layer2(self.layer1(x)))).flatten(1))


class WideBlock(nn.Module):
    """x + f(x) with f norm, ReLU, 3x3 convolution, dropout, norm, ReLU, 3x3 convolution.

    Norm and ReLU come before the convolutions, so the sum stays linear from block to block. Dropout is elementwise, as
    MC dropout in Uncertainty Baselines has it; where the shape changes, x is projected after its norm and ReLU.
    """

    def __init__(self, inputs: int, outputs: int, stride: int, dropout: float) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(inputs)
        self.conv1 = _convolution(inputs, outputs, 3, stride)
        self.dropout = nn.Dropout(dropout) if dropout > 0 else nn.Identity()
        self.bn2 = nn.BatchNorm2d(outputs)
        self.conv2 = _convolution(outputs, outputs, 3)
        self.relu = nn.ReLU()
        same = stride == 1 and inputs == outputs
        self.shortcut = None if same else _convolution(inputs, outputs, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        active = self.relu(self.bn1(x))
        inner = self.dropout(self.conv1(active))
        inner = self.conv2(self.relu(self.bn2(inner)))
        return inner + (x if self.shortcut is None else self.shortcut(active))


class WideResNet(nn.Module):
    """WRN-depth-widen for 32 x 32 images: three stages of (depth − 4) / 6 blocks, 16·widen, 32·widen, 64·widen wide."""

    def __init__(self, depth: int, widen: int, classes: int, dropout: float = 0.0) -> None:
        super().__init__()
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout is a rate in [0, 1); got {dropout}.")
        self.stem = _convolution(3, 16, 3)
        channels, stages = 16, list[nn.Sequential]()
        for stride, outputs in ((1, 16 * widen), (2, 32 * widen), (2, 64 * widen)):
            rest = (WideBlock(outputs, outputs, 1, dropout) for _ in range((depth - 4) // 6 - 1))
            stages.append(nn.Sequential(WideBlock(channels, outputs, stride, dropout), *rest))
            channels = outputs
        self.layer1, self.layer2, self.layer3 = stages
        self.bn = nn.BatchNorm2d(64 * widen)
        self.relu = nn.ReLU()
        self.average = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(64 * widen, classes)
        _initialise(self)

    def forward(self, images: Tensor) -> Tensor:
        x = self.layer3(self.layer2(self.layer1(self.stem(images))))
        return self.head(self.average(self.relu(self.bn(x))).flatten(1))


NETWORKS: dict[str, Callable[..., nn.Module]] = {
    "vgg16": partial(VGG, [[64] * 2, [128] * 2, [256] * 3, [512] * 3, [512] * 3]),
    "vgg19": partial(VGG, [[64] * 2, [128] * 2, [256] * 4, [512] * 4, [512] * 4]),
    "resnet18": partial(ResNet, BasicBlock, (2, 2, 2, 2), (64, 128, 256, 512)),
    "resnet50": partial(ResNet, Bottleneck, (3, 4, 6, 3), (64, 128, 256, 512)),
    "wide_resnet_28_10": partial(WideResNet, 28, 10),
    "mobilenet": partial(MobileNet, MOBILENET_STAGES),
    "convnet_group_norm": partial(VGG, [[64] * 2, [128] * 2, [256] * 3, [512] * 3], norm=partial(nn.GroupNorm, 32)),
    "small_vit": partial(SmallViT, 256, 9, 4),
    **{f"resnet{depth}": partial(CifarResNet, depth) for depth in (20, 32, 44, 56)},
    "vgg11_half": partial(VGG, [[32], [64], [128] * 2, [256] * 2, [256] * 2]),
    "resnet18_half": partial(ResNet, BasicBlock, (2, 2, 2, 2), (32, 64, 128, 256)),
    "tiny_vgg": partial(VGG, [[8], [16], [32, 32]]),
    "tiny_resnet": partial(ResNet, BasicBlock, (1, 1, 1, 1), (8, 16, 32, 32)),
}


def build_network(name: str, classes: int, *, dropout: float = 0.0, large_images: bool = False) -> nn.Module:
    """The network called `name`; dropout exists in wide_resnet_28_10 only, an ImageNet stem in the ResNets only."""
    if name not in NETWORKS:
        raise ValueError(f'Unknown network "{name}". Networks: {", ".join(NETWORKS)}.')
    options: dict[str, Any] = {}
    if dropout > 0:
        if name != "wide_resnet_28_10":
            raise ValueError(f"{name} has no dropout; only wide_resnet_28_10 takes a rate.")
        options["dropout"] = dropout
    if large_images:
        if name not in ("resnet18", "resnet50"):
            raise ValueError(f"{name} has no ImageNet stem; only resnet18 and resnet50 have one.")
        options["stem"] = "large"
    return NETWORKS[name](classes, **options)
