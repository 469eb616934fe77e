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

Not the paper's: mobilenet (2.2 M), convnet_group_norm (7.6 M) and small_vit (7.2 M); resnet20 to resnet56 (.27 to .85 M)
and densenet_100 (.8 M), whose trained weights others have released.

parts       what several networks are made of
plain       VGG
residual    ResNet, wide ResNet
dense       DenseNet
mobile      MobileNetV2
attention   a small vision transformer
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn.utils import convert_conv2d_weight_memory_format

from experiments.training.networks.attention import SmallViT
from experiments.training.networks.dense import DenseNet
from experiments.training.networks.mobile import MobileNet
from experiments.training.networks.parts import Normalise
from experiments.training.networks.plain import VGG
from experiments.training.networks.residual import BasicBlock, Bottleneck, PaddedShortcut, ResNet, WideBlock, WideResNet

__all__ = [
    "NETWORKS",
    "BasicBlock",
    "Bottleneck",
    "DenseNet",
    "PaddedShortcut",
    "ResNet",
    "WideBlock",
    "WideResNet",
    "build_network",
    "place",
]

_IMAGENET = partial(Normalise, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
_CIFAR = partial(Normalise, (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))
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
    **{f"resnet{6 * n + 2}": partial(ResNet, _PADDED, (n, n, n), (16, 16, 32, 64), normalise=_IMAGENET) for n in (3, 5, 7, 9)},
    "densenet_100": partial(DenseNet, 100, 12, normalise=_CIFAR),
    "tiny_vgg": partial(VGG, [[8], [16], [32, 32]]),
    "tiny_resnet": partial(ResNet, BasicBlock, (1, 1, 1, 1), (8, 8, 16, 32, 32)),
}


def build_network(name: str, classes: int, *, dropout: float = 0.0, large_images: bool = False) -> nn.Module:
    """The network called `name`; dropout exists in wide_resnet_28_10 only, an ImageNet stem in the ResNets only."""
    options: dict[str, Any] = {"dropout": dropout} if dropout else {}
    if large_images:
        options["stem"] = "large"
    return NETWORKS[name](classes, **options)


def place(network: nn.Module, device: torch.device | str) -> nn.Module:
    """On the device, in the memory format in which convolutions are fastest."""
    return convert_conv2d_weight_memory_format(network.to(device), torch.channels_last)
