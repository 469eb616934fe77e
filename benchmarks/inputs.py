"""Synthetic logits: members like a network's blocks, one truth seen through noise, the head best, all overconfident; and one
network's that is too sure of half the rows and not sure enough of the others."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

SHARPNESS, DULLNESS = 1.7, 0.6


def draw_truth(n: int, classes: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Logits [n, classes] and labels [n] drawn from their softmax."""
    generator = torch.Generator().manual_seed(seed)
    truth = 2 * torch.randn(n, classes, generator=generator)
    return truth, torch.multinomial(truth.softmax(dim=1), 1, generator=generator)[:, 0]


def views_of(truth: Tensor, members: int, seed: int = 1) -> Iterator[Tensor]:
    """Member k of d is 1.7 (truth + (d - k) / 2 · noise), k = 0 … d - 1: [n, classes] each."""
    generator = torch.Generator().manual_seed(seed)
    for k in range(members):
        yield torch.randn(truth.shape, generator=generator).mul_((members - k) / 2).add_(truth).mul_(SHARPNESS)


def make_members(n: int, classes: int, members: int) -> tuple[list[Tensor], Tensor]:
    truth, labels = draw_truth(n, classes)
    return list(views_of(truth, members)), labels


def make_logits(n: int, classes: int) -> tuple[Tensor, Tensor]:
    """Logits [n, classes], every other row flattened: confidence is too high where it is high, and too low where it is low, so
    that definitions differ which agree where all bins err to one side."""
    (logits,), labels = make_members(n, classes, 1)
    logits[::2] *= DULLNESS / SHARPNESS
    return logits, labels


def save_logits(folder: Path, n: int, classes: int) -> dict[str, str]:
    """Files of such logits and labels, for the workers; made once."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = {name: folder / f"{n}x{classes}-crossing-{name}.npy" for name in ("logits", "labels")}
    if not all(path.exists() for path in paths.values()):
        logits, labels = make_logits(n, classes)
        np.save(paths["logits"], logits.numpy())
        np.save(paths["labels"], labels.numpy())
    return {name: str(path) for name, path in paths.items()}
