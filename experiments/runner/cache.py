"""The data of a recipe: read once, kept on the device, corrupted once."""

from pathlib import Path

import torch

from experiments.data.archives import DataError
from experiments.data.corruptions import corrupt
from experiments.data.datasets import TINY_IMAGENET, FolderSet, ImageSet, decode_batches, in_order, load_dataset
from experiments.data.natural import select_natural
from experiments.data.splits import divide, first_of_each_class
from experiments.evaluation.measuring import CorruptedSets
from experiments.recipes import Cell, Recipe
from experiments.training.released import divide_test


class DataCache:
    """The data sets of a runner, read when first needed and kept on the device, with their corrupted test sets."""

    def __init__(self, recipe: Recipe, folder: Path | None, device: torch.device) -> None:
        self.recipe, self.folder, self.device = recipe, folder, device
        self.loaded: dict[str, tuple[ImageSet | FolderSet, ImageSet]] = {}
        self.sets: dict[str, CorruptedSets] = {}
        self.unseen: dict[str, tuple[ImageSet, str]] = {}

    def load(self, dataset: str) -> tuple[ImageSet | FolderSet, ImageSet]:
        """The training split, on the device but for ImageNet's, and the test images: half of them where the network was
        released."""
        if dataset not in self.loaded:
            available, test = load_dataset(dataset, self.folder)
            if isinstance(available, ImageSet) or dataset == TINY_IMAGENET:
                available = self.resident(available)
            test = self.resident(test)
            if self.recipe.released:
                unseen, test, digest = divide_test(test)
                self.unseen[dataset] = unseen, digest
            self.loaded[dataset] = available, test
        return self.loaded[dataset]

    def divide(self, cell: Cell) -> tuple[ImageSet | FolderSet, ImageSet | FolderSet, str]:
        """What trained the cell's network, its hold-out, and the digest of that division."""
        available, _ = self.load(cell.dataset)
        if self.recipe.released:
            return available, *self.unseen[cell.dataset]
        return divide(available, cell.train_fraction, cell.holdout_fraction, cell.seed)

    def corrupted(self, dataset: str) -> CorruptedSets:
        if dataset not in self.sets:
            _, test = self.load(dataset)
            synsets = self.recipe.natural.get(dataset)
            natural = None
            if synsets:  # photographs of these classes, from a data set that lies beside the others
                available, _ = load_dataset(TINY_IMAGENET, self.folder)
                assert isinstance(available, FolderSet)
                natural = self.resident(select_natural(available, synsets, test.classes))
            self.sets[dataset] = CorruptedSets(test, self.recipe.corruptions, self.recipe.severities, natural)
        return self.sets[dataset]

    def fitting_part(self, dataset: str, split: ImageSet | FolderSet) -> ImageSet:
        """What probes or weights learn from, on the device: all of a split, or the first images of each class."""
        images = self.recipe.probe_images.get(dataset)
        if images is not None:
            split = split.select(first_of_each_class(split.labels.cpu(), images))
        return self.resident(split)

    def resident(self, data: ImageSet | FolderSet) -> ImageSet:
        """All images on the device as uint8: ImageNet's test set takes 8 GB."""
        if isinstance(data, ImageSet):
            return data.to(self.device)
        images = torch.empty((len(data), 3, data.size, data.size), dtype=torch.uint8, device=self.device)
        start = 0
        for batch, _ in decode_batches(data, in_order(len(data), 256)):
            images[start : start + len(batch)] = batch.to(self.device)
            start += len(batch)
        return ImageSet(images, data.labels.to(self.device), data.classes)


def try_corruptions(recipe: Recipe) -> None:
    """Apply each corruption to one blank image: a missing file is reported now, not after hours of training."""
    blank = torch.zeros((1, 3, 32, 32), dtype=torch.uint8)
    for name in recipe.corruptions:
        try:
            corrupt(blank, name, recipe.severities[0], seed=0)
        except OSError as error:
            raise DataError(
                f"{recipe.name} measures under {name}. {error} `pip install --no-deps imagecorruptions-imaug` is "
                "enough: nothing but its photographs is read."
            ) from error
