"""Synthetic members, like a network's blocks: one truth seen through noise, the head best, all overconfident."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

SHARPNESS = 1.7


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


def save_logits(folder: Path, n: int, classes: int) -> dict[str, str]:
    """Files of one member's logits and labels, for the workers; made once."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = {name: folder / f"{n}x{classes}-{name}.npy" for name in ("logits", "labels")}
    if not all(path.exists() for path in paths.values()):
        (logits,), labels = make_members(n, classes, 1)
        np.save(paths["logits"], logits.numpy())
        np.save(paths["labels"], labels.numpy())
    return {name: str(path) for name, path in paths.items()}
