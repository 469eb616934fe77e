"""Train and hold-out parts of a training set, drawn from a seed."""

import hashlib
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from experiments.data.datasets import FolderSet, ImageSet

Data = TypeVar("Data", bound=ImageSet | FolderSet)


@dataclass(frozen=True)
class Split:
    """Disjoint indices into a training set; `digest` names them in the results."""

    train: Tensor  # int64 [n_train], ascending
    holdout: Tensor  # int64 [n_holdout], ascending
    digest: str


def split_indices(labels: Tensor, *, train_fraction: float, holdout_fraction: float, seed: int) -> Split:
    """Draw a stratified train and hold-out part of `labels` [n] from a seed.

    Each class is shuffled once by (seed, class). Its hold-out is taken from the front and its train part from the back,
    so for one seed the same hold-out serves every train fraction, smaller parts are nested in larger ones, and the two
    never meet. A class of m images gives round(fraction · m) to each part.
    """
    train_parts: list[np.ndarray] = []
    holdout_parts: list[np.ndarray] = []
    values = labels.cpu().numpy()
    for label in np.unique(values):
        members = np.random.default_rng([seed, int(label)]).permutation(np.flatnonzero(values == label))
        n_holdout = round(holdout_fraction * len(members))
        n_train = min(round(train_fraction * len(members)), len(members) - n_holdout)
        holdout_parts.append(members[:n_holdout])
        train_parts.append(members[len(members) - n_train :])
    train, holdout = np.sort(np.concatenate(train_parts)), np.sort(np.concatenate(holdout_parts))
    digest = hashlib.sha256(f"{len(train)} {len(holdout)} ".encode())
    for indices in (train, holdout):
        digest.update(indices.astype("<i8").tobytes())
    return Split(torch.from_numpy(train), torch.from_numpy(holdout), digest.hexdigest()[:12])


def divide(data: Data, train_fraction: float, holdout_fraction: float, seed: int) -> tuple[Data, Data, str]:
    """The train part, the hold-out and the digest of the split."""
    split = split_indices(data.labels, train_fraction=train_fraction, holdout_fraction=holdout_fraction, seed=seed)
    return data.select(split.train), data.select(split.holdout), split.digest


def first_of_each_class(labels: Tensor, images: int) -> Tensor:
    """Indices of at most `images` rows of each class, ascending: the classes stay mixed."""
    return torch.cat([(labels == label).nonzero()[:images, 0] for label in labels.unique()]).sort().values
