"""The five networks of the paper and two tiny ones for trials, defined plainly.

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
"""

from collections.abc import Callable, Sequence

from torch import Tensor, nn


def _convolution(inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Conv2d:
    """A convolution that keeps the size at stride 1; no bias, for a batch norm always sits beside it."""
    return nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=kernel // 2, bias=False)


def _initialise(network: nn.Module) -> None:
    """He's initialisation: weights of variance 2 / fan-out keep the gradient's scale through ReLUs of any depth."""
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")


class VGG(nn.Module):
    """3x3 convolutions, each with batch norm and ReLU; 2x2 max pooling between stages; global average; linear head."""

    def __init__(self, stages: Sequence[Sequence[int]], classes: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        channels = 3
        for index, widths in enumerate(stages):
            if index > 0:
                layers.append(nn.MaxPool2d(2))
            for width in widths:
                layers += [_convolution(channels, width, 3), nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
                channels = width
        self.features = nn.Sequential(*layers)
        self.average = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(channels, classes)
        _initialise(self)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.average(self.features(images)).flatten(1))


class BasicBlock(nn.Module):
    """relu(x + f(x)) with f two 3x3 convolutions; a 1x1 projection of x where the shape changes."""

    expansion = 1

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = _convolution(inputs, width, 3, stride)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = _convolution(width, width, 3)
        self.bn2 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut = _projection(inputs, width, stride)

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
        self.shortcut = _projection(inputs, outputs, stride)

    def forward(self, x: Tensor) -> Tensor:
        inner = self.relu(self.bn1(self.conv1(x)))
        inner = self.relu(self.bn2(self.conv2(inner)))
        return self.relu(self.shortcut(x) + self.bn3(self.conv3(inner)))


def _projection(inputs: int, outputs: int, stride: int) -> nn.Module:
    if stride == 1 and inputs == outputs:
        return nn.Identity()
    return nn.Sequential(_convolution(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))


class ResNet(nn.Module):
    """Stem, four stages of residual blocks, global average, linear head.

    `stem="small"` is a 3x3 convolution for images of about 32 x 32; `stem="large"` is ImageNet's 7x7 convolution with
    stride 2 and a max pooling with stride 2. Every stage after the first halves the height and width.
    """

    def __init__(
        self,
        block: type[BasicBlock] | type[Bottleneck],
        depths: tuple[int, int, int, int],
        widths: tuple[int, int, int, int],
        classes: int,
        stem: str = "small",
    ) -> None:
        super().__init__()
        if stem not in ("small", "large"):
            raise ValueError(f'Unknown stem "{stem}". Stems: small (32 x 32 images), large (ImageNet).')
        first = widths[0]
        kernel, stride = (3, 1) if stem == "small" else (7, 2)
        self.stem = nn.Sequential(_convolution(3, first, kernel, stride), nn.BatchNorm2d(first), nn.ReLU(inplace=True))
        if stem == "large":
            self.stem.append(nn.MaxPool2d(3, stride=2, padding=1))
        inputs = [first, *(width * block.expansion for width in widths)]
        self.layer1 = self._stage(block, inputs[0], widths[0], 1, depths[0])
        self.layer2 = self._stage(block, inputs[1], widths[1], 2, depths[1])
        self.layer3 = self._stage(block, inputs[2], widths[2], 2, depths[2])
        self.layer4 = self._stage(block, inputs[3], widths[3], 2, depths[3])
        self.average = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(inputs[4], classes)
        _initialise(self)

    @staticmethod
    def _stage(
        block: type[BasicBlock] | type[Bottleneck], inputs: int, width: int, stride: int, depth: int
    ) -> nn.Sequential:
        first = block(inputs, width, stride)
        return nn.Sequential(first, *(block(width * block.expansion, width, 1) for _ in range(depth - 1)))

    def forward(self, images: Tensor) -> Tensor:
        x = self.layer4(self.layer3(self.layer2(self.layer1(self.stem(images)))))
        return self.head(self.average(x).flatten(1))


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
        if depth < 10 or (depth - 4) % 6:
            raise ValueError(f"A wide residual network has depth 6·k + 4 with k >= 1, for example 28; got {depth}.")
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout is a rate in [0, 1); got {dropout}.")
        blocks = (depth - 4) // 6
        self.stem = _convolution(3, 16, 3)
        self.layer1 = self._stage(16, 16 * widen, 1, blocks, dropout)
        self.layer2 = self._stage(16 * widen, 32 * widen, 2, blocks, dropout)
        self.layer3 = self._stage(32 * widen, 64 * widen, 2, blocks, dropout)
        self.bn = nn.BatchNorm2d(64 * widen)
        self.relu = nn.ReLU()
        self.average = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(64 * widen, classes)
        _initialise(self)

    @staticmethod
    def _stage(inputs: int, outputs: int, stride: int, blocks: int, dropout: float) -> nn.Sequential:
        first = WideBlock(inputs, outputs, stride, dropout)
        return nn.Sequential(first, *(WideBlock(outputs, outputs, 1, dropout) for _ in range(blocks - 1)))

    def forward(self, images: Tensor) -> Tensor:
        x = self.layer3(self.layer2(self.layer1(self.stem(images))))
        return self.head(self.average(self.relu(self.bn(x))).flatten(1))


def vgg16(classes: int) -> VGG:
    return VGG([[64] * 2, [128] * 2, [256] * 3, [512] * 3, [512] * 3], classes)


def vgg19(classes: int) -> VGG:
    return VGG([[64] * 2, [128] * 2, [256] * 4, [512] * 4, [512] * 4], classes)


def resnet18(classes: int, stem: str = "small") -> ResNet:
    return ResNet(BasicBlock, (2, 2, 2, 2), (64, 128, 256, 512), classes, stem)


def resnet50(classes: int, stem: str = "small") -> ResNet:
    return ResNet(Bottleneck, (3, 4, 6, 3), (64, 128, 256, 512), classes, stem)


def wide_resnet_28_10(classes: int, dropout: float = 0.0) -> WideResNet:
    return WideResNet(28, 10, classes, dropout)


def tiny_vgg(classes: int) -> VGG:
    return VGG([[8], [16], [32, 32]], classes)


def tiny_resnet(classes: int) -> ResNet:
    return ResNet(BasicBlock, (1, 1, 1, 1), (8, 16, 32, 32), classes)


NETWORKS: dict[str, Callable[[int], nn.Module]] = {
    "vgg16": vgg16,
    "vgg19": vgg19,
    "resnet18": resnet18,
    "resnet50": resnet50,
    "wide_resnet_28_10": wide_resnet_28_10,
    "tiny_vgg": tiny_vgg,
    "tiny_resnet": tiny_resnet,
}


def build_network(name: str, classes: int, *, dropout: float = 0.0, large_images: bool = False) -> nn.Module:
    """The network called `name`; dropout exists in wide_resnet_28_10 only, an ImageNet stem in the ResNets only."""
    if name not in NETWORKS:
        raise ValueError(f'Unknown network "{name}". Networks: {", ".join(NETWORKS)}.')
    if dropout > 0:
        if name != "wide_resnet_28_10":
            raise ValueError(f"{name} has no dropout; only wide_resnet_28_10 takes a rate.")
        return wide_resnet_28_10(classes, dropout)
    if large_images:
        if name not in ("resnet18", "resnet50"):
            raise ValueError(f"{name} has no ImageNet stem; only resnet18 and resnet50 have one.")
        return resnet18(classes, "large") if name == "resnet18" else resnet50(classes, "large")
    return NETWORKS[name](classes)
