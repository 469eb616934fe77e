"""A small vision transformer."""

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from experiments.training.networks.parts import convolution


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
    """A vision transformer whose patches of 4 x 4 pixels are made by convolutions (Xiao et al. 2021)."""

    def __init__(self, width: int, depth: int, heads: int, classes: int, size: int = 32) -> None:
        super().__init__()
        halving: list[nn.Module] = []
        for inputs, outputs in ((3, width // 4), (width // 4, width // 2)):
            halving += [convolution(inputs, outputs, 3, stride=2), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)]
        self.stem = nn.Sequential(*halving, nn.Conv2d(width // 2, width, 1))
        self.positions = nn.Parameter(0.02 * torch.randn(1, (size // 4) ** 2, width))
        self.blocks = nn.Sequential(*(EncoderBlock(width, heads) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)
        self.average = TokenMean()
        self.head = nn.Linear(width, classes)

    def forward(self, images: Tensor) -> Tensor:
        tokens = self.stem(images).flatten(2).transpose(1, 2) + self.positions
        return self.head(self.average(self.norm(self.blocks(tokens))))
