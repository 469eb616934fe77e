"""A ResNet18 for images of CIFAR's size, and images for it: what rows 4 and 5 measure time on.

The weights are random: neither time nor operations of a forward pass depend on what a network has learnt.
"""

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from experiments.training.networks import build_network

CLASSES = 10


def make_network(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return build_network("resnet18", CLASSES).eval()


def make_loader(n: int, seed: int, batch: int = 128) -> DataLoader[tuple[Tensor, ...]]:
    """Images [3, 32, 32], each a mixture of its class's pattern and noise, so that there is something to learn."""
    patterns = torch.rand(CLASSES, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(CLASSES, (n,), generator=generator)
    images = 0.1 * patterns[labels] + 0.9 * torch.rand(n, 3, 32, 32, generator=generator)
    return DataLoader(TensorDataset(images, labels), batch_size=batch)
