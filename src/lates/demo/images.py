"""The data: 12,000 images of Fashion-MNIST, shipped with the package, in three splits."""

from dataclasses import dataclass
from importlib.resources import files

import numpy as np
import torch
from torch import Tensor

SIZES = (6000, 2000, 4000)
"""Of train, holdout and test."""
BATCH = 500
CLASS_NAMES = "T-shirt", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"


@dataclass(frozen=True, eq=False)
class Split:
    """Images [n, 1, 28, 28] in [0, 1] and their labels [n]."""

    images: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def first(self, n: int) -> "Split":
        return Split(self.images[:n], self.labels[:n])

    @property
    def batches(self) -> list[tuple[Tensor, Tensor]]:
        """A list of (images, labels): all that `lates` needs of a loader."""
        return list(zip(self.images.split(BATCH), self.labels.split(BATCH), strict=True))


@dataclass(frozen=True, eq=False)
class Splits:
    """`train` trains network and probes, `holdout` fits the weights, `test` is only measured on."""

    train: Split
    holdout: Split
    test: Split

    def shrink(self, factor: int) -> "Splits":
        """The first 1 / factor of each split: faster, less precise."""
        return Splits(*(split.first(len(split) // factor) for split in (self.train, self.holdout, self.test)))


def load_splits() -> Splits:
    """The shipped images, which are in random order, cut into consecutive splits."""
    with files("lates").joinpath("data", "fashion.npz").open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        images = torch.from_numpy(arrays["images"]).float().div(255).unsqueeze(1)
        labels = torch.from_numpy(arrays["labels"]).long()
    return Splits(*(Split(*part) for part in zip(images.split(SIZES), labels.split(SIZES), strict=True)))
