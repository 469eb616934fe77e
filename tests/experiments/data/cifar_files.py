"""CIFAR-10 as its makers publish it, made of the sample."""

import pickle
from pathlib import Path

import torch

from experiments.data.datasets import SAMPLE, load_sample


def write_cifar10(folder: Path, protocol: int = 2) -> Path:
    """The sample in the official layout: 400 images in five batches, 200 for the test."""
    root = folder / "cifar-10-batches-py"
    root.mkdir(parents=True)
    train, test = load_sample(SAMPLE)
    parts = {f"data_batch_{i + 1}": train.select(torch.arange(80) + 80 * i) for i in range(5)} | {"test_batch": test}
    for name, part in parts.items():
        content = {
            b"batch_label": b"a batch",
            b"data": part.images.flatten(1).numpy(),
            b"labels": part.labels.tolist(),
            b"filenames": [b"one.png"] * len(part),
        }
        (root / name).write_bytes(pickle.dumps(content, protocol=protocol))
    names = [name.encode() for name in train.classes]
    (root / "batches.meta").write_bytes(pickle.dumps({b"label_names": names}, protocol=protocol))
    return root
