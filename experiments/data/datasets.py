"""CIFAR-10 and CIFAR-100 in the official Python layout, ImageFolder trees and Tiny-ImageNet's.

Images are uint8 until the moment a network sees them; `scale` then maps 0…255 to [0, 1] and does nothing else.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from experiments.data.archives import DataError, fetch, read_pickle, unpack

WORKERS = min(8, os.cpu_count() or 1)
"""Processes that decode image files."""
SAMPLE = Path(__file__).parents[2] / "tests" / "experiments" / "cifar10_600.npz"


def scale(images: Tensor) -> Tensor:
    """uint8 in 0…255 -> float32 in [0, 1], the paper's only preprocessing."""
    return images.float() / 255


def as_inputs(images: Tensor) -> Tensor:
    """uint8 images -> float32 in [0, 1], channels last, the layout in which convolutions are quickest."""
    return scale(images).contiguous(memory_format=torch.channels_last)


@dataclass(frozen=True)
class ImageSet:
    """Images of one size, held in memory on any device."""

    images: Tensor  # uint8 [n, 3, height, width]
    labels: Tensor  # int64 [n]
    classes: tuple[str, ...]

    def __post_init__(self) -> None:
        if self.images.dtype != torch.uint8 or self.images.ndim != 4 or self.images.shape[1] != 3:
            received = f"{self.images.dtype} {list(self.images.shape)}"
            raise DataError(f"Images have to be uint8 of shape [n, 3, height, width]; got {received}.")
        if self.labels.dtype != torch.int64 or self.labels.shape != self.images.shape[:1]:
            received = f"{self.labels.dtype} {list(self.labels.shape)}"
            raise DataError(f"Labels have to be int64 of shape [{len(self.images)}]; got {received}.")
        if len(self) and not 0 <= int(self.labels.min()) <= int(self.labels.max()) < len(self.classes):
            received = f"{int(self.labels.min())}…{int(self.labels.max())}"
            raise DataError(f"Labels of {len(self.classes)} classes lie in 0…{len(self.classes) - 1}; got {received}.")

    def __len__(self) -> int:
        return len(self.labels)

    def select(self, indices: Tensor) -> Self:
        """The images at `indices` [k], in that order."""
        indices = indices.to(self.images.device)
        return replace(self, images=self.images[indices], labels=self.labels[indices])

    def to(self, device: torch.device | str) -> "ImageSet":
        return replace(self, images=self.images.to(device), labels=self.labels.to(device))


# CIFAR


@dataclass(frozen=True)
class CifarLayout:
    """Where one CIFAR data set lies, on the web and inside its archive."""

    url: str
    sha256: str
    folder: str
    train: tuple[str, ...]
    test: str
    meta: str
    labels_key: bytes
    names_key: bytes

    @property
    def archive(self) -> str:
        return self.url.rsplit("/", 1)[-1]


CIFAR: dict[str, CifarLayout] = {
    "cifar10": CifarLayout(
        url="https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
        sha256="6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
        folder="cifar-10-batches-py",
        train=("data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5"),
        test="test_batch",
        meta="batches.meta",
        labels_key=b"labels",
        names_key=b"label_names",
    ),
    "cifar100": CifarLayout(
        url="https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
        sha256="85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7",
        folder="cifar-100-python",
        train=("train",),
        test="test",
        meta="meta",
        labels_key=b"fine_labels",
        names_key=b"fine_label_names",
    ),
}


def load_cifar(layout: CifarLayout, folder: Path, *, download: bool = False) -> tuple[ImageSet, ImageSet]:
    """The train and test images of `CIFAR["cifar10"]` or `CIFAR["cifar100"]` below `folder`.

    An unpacked archive is read as it is. Otherwise the archive itself, if it lies in `folder` or may be downloaded, is
    checked against its checksum and unpacked, so that later calls read without the web.
    """
    root = folder / layout.folder
    if not root.is_dir():
        archive = folder / layout.archive
        if not archive.is_file() and not download:
            raise DataError(
                f"No {layout.folder} in {folder}. Give --data the folder that holds {root.name}/ or {archive.name}, or "
                f"leave --data out: then it is downloaded from {layout.url} to ./data."
            )
        fetch(layout.url, layout.sha256, archive)
        unpack(archive, layout.folder)
    names = _entry(read_pickle(root / layout.meta), layout.names_key, list, root / layout.meta)
    classes = tuple(name.decode() for name in names)
    return _read_batches(layout, root, layout.train, classes), _read_batches(layout, root, (layout.test,), classes)


def _read_batches(layout: CifarLayout, root: Path, files: tuple[str, ...], classes: tuple[str, ...]) -> ImageSet:
    images: list[np.ndarray] = []
    labels: list[int] = []
    for path in (root / file for file in files):
        content = read_pickle(path)
        rows = _entry(content, b"data", np.ndarray, path)
        if rows.dtype != np.uint8 or rows.ndim != 2 or rows.shape[1] != 3 * 32 * 32:
            raise DataError(f"{path} holds {rows.dtype} images of shape {list(rows.shape)}; expected uint8 [n, 3072].")
        images.append(rows.reshape(-1, 3, 32, 32))
        labels += _entry(content, layout.labels_key, list, path)
    return ImageSet(torch.from_numpy(np.concatenate(images)), torch.tensor(labels, dtype=torch.int64), classes)


def _entry(content: dict[bytes, Any], key: bytes, kind: type, path: Path) -> Any:
    if not isinstance(content.get(key), kind):
        raise DataError(
            f"{path} has no {kind.__name__} {key!r}; it holds {sorted(map(repr, content))}. Unpack the archive again."
        )
    return content[key]


def load_sample(path: Path) -> tuple[ImageSet, ImageSet]:
    """Two image sets from one .npz file: `{train,test}_images` [n, 3, h, w], `{train,test}_labels` [n], `classes`."""
    with np.load(path, allow_pickle=False) as arrays:
        classes = tuple(arrays["classes"].tolist())
        parts = [(arrays[f"{part}_images"], arrays[f"{part}_labels"]) for part in ("train", "test")]
    train, test = (ImageSet(torch.from_numpy(i), torch.from_numpy(k.astype(np.int64)), classes) for i, k in parts)
    return train, test


# Folders of images


@dataclass(frozen=True)
class FolderSet(Dataset[tuple[Tensor, int]]):
    """Image files in one folder per class, decoded when asked for, as a DataLoader's workers do; `whole`: not cut."""

    paths: tuple[str, ...]
    labels: Tensor  # int64 [n]
    classes: tuple[str, ...]
    size: int
    whole: bool = False

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        """uint8 [3, size, size] and the label."""
        return _decode(self.paths[index], self.size, self.whole), int(self.labels[index])

    def select(self, indices: Tensor) -> Self:
        return replace(self, paths=tuple(self.paths[i] for i in indices.tolist()), labels=self.labels[indices])


def load_folder(root: Path, size: int = 224, inside: str = "") -> FolderSet:
    """The tree `root/<class>/<inside>/<image>.{jpg,jpeg,png}`; classes are numbered in the order of their names."""
    classes = sorted(entry.name for entry in root.iterdir() if entry.is_dir()) if root.is_dir() else []
    if not classes:
        raise DataError(f"{root} has no folders. Expected one folder of JPEG or PNG files per class.")
    paths: list[str] = []
    labels: list[int] = []
    for label, name in enumerate(classes):
        folder = root / name / inside
        found = folder.iterdir() if folder.is_dir() else ()
        files = sorted(str(p) for p in found if p.suffix.lower() in (".jpg", ".jpeg", ".png"))
        if not files:
            raise DataError(f"{folder} holds no JPEG or PNG file. Remove the folder or fill it.")
        paths += files
        labels += [label] * len(files)
    return FolderSet(tuple(paths), torch.tensor(labels), tuple(classes), size)


TINY_IMAGENET_FOLDER, TINY_IMAGENET_URL = "tiny-imagenet-200", "http://cs231n.stanford.edu/tiny-imagenet-200.zip"


def load_tiny_imagenet(root: Path) -> tuple[FolderSet, FolderSet]:
    """Its training images, `train/<synset>/images/`, and the labelled ones of `val/images/`: 64 x 64 pixels."""
    annotations = root / "val" / "val_annotations.txt"
    if not annotations.is_file():
        raise DataError(f"There is no {annotations}. Unpack {TINY_IMAGENET_URL} in {root.parent}.")
    train = replace(load_folder(root / "train", 64, inside="images"), whole=True)
    numbers = {name: number for number, name in enumerate(train.classes)}
    try:
        rows = [line.split("\t")[:2] for line in annotations.read_text().splitlines()]
        labels = torch.tensor([numbers[synset] for _, synset in rows])
    except (KeyError, ValueError) as error:
        raise DataError(f"{annotations} has a line without a file and a synset of {root / 'train'}: {error}.") from error
    return train, replace(train, paths=tuple(str(root / "val" / "images" / file) for file, _ in rows), labels=labels)


def decode_batches(
    data: FolderSet, batches: Sequence[Sequence[int]], workers: int = WORKERS, *, pinned: bool = False
) -> Iterator[tuple[Tensor, Tensor]]:
    """Images uint8 [b, 3, size, size] and labels [b] of each batch of indices, decoded by worker processes.

    A file that cannot be decoded is named in a sentence; torch would put the worker's traceback around it.
    """
    try:
        yield from DataLoader(data, batch_sampler=[[*batch] for batch in batches], num_workers=workers, pin_memory=pinned)
    except DataError as error:
        raise DataError(str(error).rpartition(f"{DataError.__name__}: ")[2].strip()) from None


def in_order(images: int, batch: int) -> list[range]:
    """Batches of indices, one after the other, the last one perhaps smaller."""
    return [range(start, min(start + batch, images)) for start in range(0, images, batch)]


def _decode(path: str, size: int, whole: bool) -> Tensor:
    """The central square, 7/8 of the shorter side wide (224 of 256), or all of it averaged by area: uint8 [3, size, size]."""
    try:
        with Image.open(path) as image:
            picture = image.convert("RGB")
    except (OSError, UnidentifiedImageError, SyntaxError) as error:
        raise DataError(f"Cannot decode {path}: {error}. Replace or remove the file.") from error
    side = min(picture.size) * (1 if whole else 7 / 8)
    method = Image.Resampling.BOX if whole else Image.Resampling.BILINEAR
    left, top = ((length - side) / 2 for length in picture.size)
    square = picture.resize((size, size), method, box=(left, top, left + side, top + side))
    return torch.from_numpy(np.array(square)).permute(2, 0, 1)


# All by name

SHIPPED, IMAGENET, TINY_IMAGENET = "cifar10_600", "imagenet", "tiny_imagenet"
LARGE = (IMAGENET, TINY_IMAGENET)
"""Those whose networks have ImageNet's stem and schedule."""
DATASETS = (SHIPPED, *CIFAR, *LARGE)


def load_dataset(dataset: str, folder: Path | None) -> tuple[ImageSet, ImageSet] | tuple[FolderSet, FolderSet]:
    """The training split and the test set of that name below `folder`; None: ./data, which may be filled from the web."""
    if dataset == SHIPPED:
        return load_sample(SAMPLE)
    place = folder or Path("data")
    if dataset == IMAGENET:
        return load_folder(place / "train"), load_folder(place / "val")
    if dataset == TINY_IMAGENET:
        return load_tiny_imagenet(place / TINY_IMAGENET_FOLDER)
    return load_cifar(CIFAR[dataset], place, download=folder is None)
