"""Plain convolutions: VGG (Simonyan and Zisserman 2015)."""

from collections import OrderedDict
from collections.abc import Callable, Sequence

from torch import nn

from experiments.training.networks.parts import classifier, convolution, initialise


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
                layers += [convolution(channels, width, 3), norm(width), nn.ReLU(inplace=True)]
                channels = width
        super().__init__(OrderedDict(features=nn.Sequential(*layers), **classifier(channels, classes)))
        initialise(self)
