"""The five networks of the paper, further kinds for the strong recipe and tiny ones for trials, defined plainly.

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
whose trained weights others have released.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import pad, scaled_dot_product_attention

# Parts


def _convolution(inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> nn.Conv2d:
    """A convolution that keeps the size at stride 1; no bias, for a batch norm always sits beside it."""
    return nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, groups=groups, bias=False)


def _stages(
    block: Callable[[int, int, int], nn.Module], depths: Sequence[int], widths: Sequence[int]
) -> dict[str, Any]:
    """`layer1`, `layer2`, … of `depths` blocks (channels in, channels out, stride) and `widths` channels, the input first. Each
    stage after the first halves the height and width."""
    stages: dict[str, nn.Module] = {}
    for number, (depth, (inputs, outputs)) in enumerate(zip(depths, pairwise(widths), strict=True), 1):
        first = block(inputs, outputs, 1 if number == 1 else 2)
        stages[f"layer{number}"] = nn.Sequential(first, *(block(outputs, outputs, 1) for _ in range(depth - 1)))
    return stages


def _classifier(channels: int, classes: int) -> dict[str, nn.Module]:
    """What every convolutional network ends in: global average, linear head."""
    return {"average": nn.AdaptiveAvgPool2d(1), "flatten": nn.Flatten(), "head": nn.Linear(channels, classes)}


def _initialise(network: nn.Module) -> None:
    """He's initialisation: weights of variance 2 / fan-out keep the gradient's scale through ReLUs of any depth."""
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")


# Plain convolutions


class VGG(nn.Sequential):
    """3x3 convolutions, each with a norm and ReLU; 2x2 max pooling between stages; global average; linear head."""

    def __init__(
        self, stages: Sequence[Sequence[int]], classes: int, norm: Callable[[int], nn.Module] = nn.BatchNorm2d
    ) -> None:
        layers: list[nn.Module] = []
        channels = 3
        for index, widths in enumerate(stages):
            if index > 0:
                layers.append(nn.MaxPool2d(2))
            for width in widths:
                layers += [_convolution(channels, width, 3), norm(width), nn.ReLU(inplace=True)]
                channels = width
        super().__init__(OrderedDict(features=nn.Sequential(*layers), **_classifier(channels, classes)))
        _initialise(self)


# Residual networks


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

    def __init__(self, inputs: int, outputs: int, stride: int, shortcut: Shortcut = _projection) -> None:
        super().__init__()
        self.conv1 = _convolution(inputs, outputs, 3, stride)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = _convolution(outputs, outputs, 3)
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


class Normalise(nn.Module):
    """Inputs in [0, 1] by ImageNet's means and deviations."""

    mean: Tensor
    deviation: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor([0.485, 0.456, 0.406])[:, None, None], persistent=False)
        self.register_buffer("deviation", torch.tensor([0.229, 0.224, 0.225])[:, None, None], persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        return (images - self.mean) / self.deviation


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
        normalise: bool = False,
    ) -> None:
        kernel, stride = (3, 1) if stem == "small" else (7, 2)
        entry = nn.Sequential(
            _convolution(3, widths[0], kernel, stride), nn.BatchNorm2d(widths[0]), nn.ReLU(inplace=True)
        )
        if stem == "large":
            entry.append(nn.MaxPool2d(3, stride=2, padding=1))
        before = {"normalise": Normalise()} if normalise else {}
        stages = _stages(block, depths, widths)
        super().__init__(OrderedDict(**before, stem=entry, **stages, **_classifier(widths[-1], classes)))
        _initialise(self)


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


class WideResNet(nn.Sequential):
    """WRN-depth-widen for 32 x 32 images: three stages of (depth − 4) / 6 blocks, 16·widen, 32·widen, 64·widen wide."""

    def __init__(self, depth: int, widen: int, classes: int, dropout: float = 0.0) -> None:
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout is a rate in [0, 1); got {dropout}.")
        widths = (16, 16 * widen, 32 * widen, 64 * widen)
        stem = _convolution(3, 16, 3)
        stages = _stages(partial(WideBlock, dropout=dropout), [(depth - 4) // 6] * 3, widths)
        last = {"bn": nn.BatchNorm2d(widths[-1]), "relu": nn.ReLU(), **_classifier(widths[-1], classes)}
        super().__init__(OrderedDict(stem=stem, **stages, **last))
        _initialise(self)


# Depthwise convolutions


class InvertedResidual(nn.Module):
    """Widen by 1x1, filter each channel by 3x3, narrow by 1x1 without activation; plus x where the shape stays."""

    def __init__(self, inputs: int, outputs: int, stride: int, widen: int) -> None:
        super().__init__()
        inner = widen * inputs
        widened = _activated(inputs, inner, 1) if widen > 1 else []
        filtered = _activated(inner, inner, 3, stride, groups=inner)
        self.branch = nn.Sequential(*widened, *filtered, _convolution(inner, outputs, 1), nn.BatchNorm2d(outputs))
        self.same = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        return x + self.branch(x) if self.same else self.branch(x)


def _activated(inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    """A convolution with its norm and activation."""
    layer = _convolution(inputs, outputs, kernel, stride, groups)
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
        super().__init__(OrderedDict(stem=stem, blocks=blocks, last=last, **_classifier(1280, classes)))


# Attention


class EncoderBlock(nn.Module):
    """x + attention(norm(x)), then x + MLP(norm(x)), of tokens [n, tokens, width]."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attend, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        rows, tokens, width = x.shape
        parts = self.attend(self.norm1(x)).view(rows, tokens, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        mixed = scaled_dot_product_attention(query, key, value).transpose(1, 2).reshape(rows, tokens, width)
        x = x + self.project(mixed)
        return x + self.mlp(self.norm2(x))


class TokenMean(nn.Module):
    def forward(self, tokens: Tensor) -> Tensor:
        return tokens.mean(1)


class SmallViT(nn.Module):
    """A vision transformer whose patches of 4 x 4 pixels are made by convolutions: so SGD can train it (Xiao et al. 2021)."""

    def __init__(self, width: int, depth: int, heads: int, classes: int, size: int = 32) -> None:
        super().__init__()
        halving: list[nn.Module] = []
        for inputs, outputs in ((3, width // 4), (width // 4, width // 2)):
            halving += [_convolution(inputs, outputs, 3, stride=2), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)]
        self.stem = nn.Sequential(*halving, nn.Conv2d(width // 2, width, 1))
        self.positions = nn.Parameter(0.02 * torch.randn(1, (size // 4) ** 2, width))
        self.blocks = nn.Sequential(*(EncoderBlock(width, heads) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)
        self.average = TokenMean()
        self.head = nn.Linear(width, classes)

    def forward(self, images: Tensor) -> Tensor:
        tokens = self.stem(images).flatten(2).transpose(1, 2) + self.positions
        return self.head(self.average(self.norm(self.blocks(tokens))))


# By name

_PADDED = partial(BasicBlock, shortcut=PaddedShortcut)
_MOBILENET_STAGES = (
    (1, 16, 1, 1), (6, 24, 2, 1), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1),
)  # fmt: skip
NETWORKS: dict[str, Callable[..., nn.Module]] = {
    "vgg16": partial(VGG, [[64] * 2, [128] * 2, [256] * 3, [512] * 3, [512] * 3]),
    "vgg19": partial(VGG, [[64] * 2, [128] * 2, [256] * 4, [512] * 4, [512] * 4]),
    "resnet18": partial(ResNet, BasicBlock, (2, 2, 2, 2), (64, 64, 128, 256, 512)),
    "resnet50": partial(ResNet, Bottleneck, (3, 4, 6, 3), (64, 256, 512, 1024, 2048)),
    "wide_resnet_28_10": partial(WideResNet, 28, 10),
    "mobilenet": partial(MobileNet, _MOBILENET_STAGES),
    "convnet_group_norm": partial(VGG, [[64] * 2, [128] * 2, [256] * 3, [512] * 3], norm=partial(nn.GroupNorm, 32)),
    "small_vit": partial(SmallViT, 256, 9, 4),
    **{
        f"resnet{6 * n + 2}": partial(ResNet, _PADDED, (n, n, n), (16, 16, 32, 64), normalise=True)
        for n in (3, 5, 7, 9)
    },
    "tiny_vgg": partial(VGG, [[8], [16], [32, 32]]),
    "tiny_resnet": partial(ResNet, BasicBlock, (1, 1, 1, 1), (8, 8, 16, 32, 32)),
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
