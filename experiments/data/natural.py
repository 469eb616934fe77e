"""Natural shift: photographs from another source of what CIFAR-10's classes are, as in CINIC-10.

They are training images of Tiny-ImageNet, 64 x 64 pixels, reduced to 32 x 32 by averaging areas: `IMAGES` of a class, spread
evenly over its synsets, the first of each by name. Airplane, deer and horse have none; networks still choose among ten classes.

A synset counts if WordNet 3.0 has it below the synset that stands for the class: car n02958343, bird n01503061, domestic cat
n02121808, dog n02084071, frog n01639765, vessel n04530566, truck n04490091. Left out, being doubtful: police van (below truck,
but CIFAR-10 has "only big trucks"), gondola (a vessel, but rowed), go-kart (no car in WordNet), cougar (below cat, not below
domestic cat); school bus, trolleybus, tractor, freight car, bullet train and jinrikisha (vehicles of no class).
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch

from experiments.data.datasets import FolderSet

IMAGES = 500
"""Of each class; a few less where its synsets do not divide them."""
SYNSETS: Mapping[str, tuple[str, ...]] = {
    "automobile": ("n02814533", "n03100240", "n03670208", "n04285008"),  # beach wagon, convertible, limousine, sports car
    "bird": ("n01855672", "n02002724", "n02056570", "n02058221"),  # goose, black stork, king penguin, albatross
    "cat": ("n02123045", "n02123394", "n02124075"),  # tabby, Persian cat, Egyptian cat
    "dog": (  # Chihuahua, Yorkshire terrier, golden and Labrador retriever, German shepherd, standard poodle
        "n02085620", "n02094433", "n02099601", "n02099712", "n02106662", "n02113799",
    ),
    "frog": ("n01641577", "n01644900"),  # bullfrog, tailed frog
    "ship": ("n03662601",),  # lifeboat
    "truck": ("n03796401",),  # moving van
}  # fmt: skip


def select_natural(tiny_imagenet: FolderSet, synsets: Mapping[str, Sequence[str]], classes: Sequence[str]) -> FolderSet:
    """Of the training images of Tiny-ImageNet those of the `classes` that have `synsets`, 32 x 32 pixels."""
    rows: list[torch.Tensor] = []
    labels: list[int] = []
    for name, below in synsets.items():
        for synset in below:
            of_synset = tiny_imagenet.labels == tiny_imagenet.classes.index(synset)
            rows.append(of_synset.nonzero()[: IMAGES // len(below), 0])
            labels += [classes.index(name)] * len(rows[-1])
    chosen = tiny_imagenet.select(torch.cat(rows))
    return replace(chosen, labels=torch.tensor(labels), classes=tuple(classes), size=32)
