"""Logits for methods that come later, and so need not wait for another training: of the hold-out and of some test sets."""

import io
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from experiments.data.datasets import ImageSet
from experiments.data.files import write_whole
from experiments.evaluation.measuring import CLEAN, NATURAL
from experiments.evaluation.prepared import read_logits

HOLDOUT = "holdout"
KEPT_SETS = (CLEAN, NATURAL, "gaussian_noise-3", "defocus_blur-3", "fog-3", "contrast-3", "jpeg_compression-3")


def keep_logits(path: Path, network: nn.Module, holdout: ImageSet, sets: Mapping[str, ImageSet]) -> None:
    """Of the hold-out and those of `KEPT_SETS` that there are: for each the largest logit of each row, float32, the
    differences from it, float16, which are exact where probabilities are large, and the labels."""
    arrays: dict[str, np.ndarray] = {}
    for name, images in {HOLDOUT: holdout, **{name: sets[name] for name in sets if name in KEPT_SETS}}.items():
        logits = read_logits(network, images).float().cpu()
        largest = logits.amax(1, keepdim=True)
        arrays[f"{name}.largest"], arrays[f"{name}.below"] = largest.numpy(), (logits - largest).half().numpy()
        arrays[f"{name}.labels"] = images.labels.cpu().numpy().astype(np.int16)
    content = io.BytesIO()
    np.savez_compressed(content, allow_pickle=False, **arrays)
    write_whole(path, content.getvalue())


def load_logits(path: Path) -> dict[str, tuple[Tensor, Tensor]]:
    """Set -> logits float32 [n, classes], labels [n]."""
    with np.load(path, allow_pickle=False) as arrays:
        names = [name.removesuffix(".labels") for name in arrays.files if name.endswith(".labels")]
        return {
            name: (
                torch.from_numpy(arrays[f"{name}.largest"] + arrays[f"{name}.below"].astype(np.float32)),
                torch.from_numpy(arrays[f"{name}.labels"].astype(np.int64)),
            )
            for name in names
        }
