"""Further kinds of network for 32 x 32 images, trained by the strong recipe: depthwise convolutions and attention."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

MOBILENET_STAGES = (
    (1, 16, 1, 1), (6, 24, 2, 1), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1),
)  # fmt: skip


class InvertedResidual(nn.Module):
    """Widen by 1x1, filter each channel by 3x3, narrow by 1x1 without activation; plus x where the shape stays."""

    def __init__(self, inputs: int, outputs: int, widen: int, stride: int) -> None:
        super().__init__()
        inner = widen * inputs
        widened = _convolution(inputs, inner, 1) if widen > 1 else []
        filtered = _convolution(inner, inner, 3, stride, groups=inner)
        narrowed = [nn.Conv2d(inner, outputs, 1, bias=False), nn.BatchNorm2d(outputs)]
        self.branch = nn.Sequential(*widened, *filtered, *narrowed)
        self.same = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        return x + self.branch(x) if self.same else self.branch(x)


class MobileNet(nn.Module):
    """MobileNetV2 (Sandler et al. 2018); for 32 x 32 images the stem and the second stage keep the size."""

    def __init__(self, stages: Sequence[tuple[int, int, int, int]], classes: int) -> None:
        """Stages: (widen, channels, blocks, stride of the first)."""
        super().__init__()
        self.stem = nn.Sequential(*_convolution(3, 32, 3))
        channels, blocks = 32, list[nn.Module]()
        for widen, outputs, depth, stride in stages:
            for place in range(depth):
                blocks.append(InvertedResidual(channels, outputs, widen, stride if place == 0 else 1))
                channels = outputs
        self.blocks = nn.Sequential(*blocks)
        self.last = nn.Sequential(*_convolution(channels, 1280, 1))
        self.average = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(1280, classes)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.average(self.last(self.blocks(self.stem(images)))).flatten(1))


def _convolution(inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    """With its norm and activation."""
    layer = nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, groups=groups, bias=False)
    return [layer, nn.BatchNorm2d(outputs), nn.ReLU6(inplace=True)]


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
        self.stem = nn.Sequential(
            nn.Conv2d(3, width // 4, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(width // 4),
            nn.ReLU(inplace=True),
            nn.Conv2d(width // 4, width // 2, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(width // 2),
            nn.ReLU(inplace=True),
            nn.Conv2d(width // 2, width, 1),
        )
        self.positions = nn.Parameter(0.02 * torch.randn(1, (size // 4) ** 2, width))
        self.blocks = nn.Sequential(*(EncoderBlock(width, heads) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)
        self.average = TokenMean()
        self.head = nn.Linear(width, classes)

    def forward(self, images: Tensor) -> Tensor:
        tokens = self.stem(images).flatten(2).transpose(1, 2) + self.positions
        return self.head(self.average(self.norm(self.blocks(tokens))))
