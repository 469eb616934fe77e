"""Blocks of test images: their means are the metrics, and redrawing them is redrawing images."""

from pathlib import Path

import numpy as np
import pytest
import torch

import lates
from experiments.evaluation.image_blocks import BLOCKS, IMAGE_METRICS, block_means
from experiments.reporting.significance import bootstrap, image_gains
from experiments.reporting.summaries import read_measured
from tests.experiments.reporting.synthetic import write_cell


def drawn(n: int, classes: int = 7, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, (n,), generator=generator)
    return 2 * torch.randn(n, classes, generator=generator) + 2 * torch.eye(classes)[labels], labels


def test_the_mean_of_the_blocks_is_the_metric() -> None:
    logits, labels = drawn(10 * BLOCKS)
    blocks = block_means(logits, labels)
    assert blocks.shape == (len(IMAGE_METRICS), BLOCKS)
    for metric, values in zip(IMAGE_METRICS, blocks, strict=True):
        assert values.mean() == pytest.approx(getattr(lates.metrics, metric)(logits, labels), abs=1e-9)


def test_fewer_images_than_blocks_stand_alone() -> None:
    logits, labels = drawn(30)
    blocks = block_means(logits, labels)
    assert blocks.shape == (len(IMAGE_METRICS), 30)
    np.testing.assert_array_equal(blocks[2], (logits.argmax(1) == labels).double())


def test_redrawing_blocks_spreads_the_mean_as_redrawing_images_does() -> None:
    logits, labels = drawn(50 * BLOCKS)
    losses = torch.nn.functional.cross_entropy(logits.double(), labels, reduction="none")
    found = bootstrap([block_means(logits, labels)[:1]])
    assert (found.high - found.low) / (2 * 1.96) == pytest.approx(float(losses.std()) / len(labels) ** 0.5, rel=0.15)


def test_gains_per_block_average_to_the_gain_of_the_sets(tmp_path: Path) -> None:
    for seed in (0, 1):
        write_cell(tmp_path, "in_distribution", "cifar100", "resnet18", seed)
    cells = read_measured(tmp_path)
    gains = image_gains(cells, "lates_none_1", "temperature", "nll", {"clean": 1})
    assert gains.shape == (2, BLOCKS)
    expected = [cell.mean("temperature", "nll") - cell.mean("lates_none_1", "nll") for cell in cells]
    np.testing.assert_allclose(gains.mean(axis=1), expected, atol=1e-5)
    pair = ("lates_none_1", "temperature", "accuracy")
    weighted = image_gains(cells, *pair, {"like_jitter": 1, "unlike_jitter": 3})
    parts = [image_gains(cells, *pair, {group: 1}) for group in ("like_jitter", "unlike_jitter")]
    np.testing.assert_allclose(weighted, (parts[0] + 3 * parts[1]) / 4)
    assert image_gains(cells, "lates_none_1", "mcd", "nll", {"clean": 1}).shape == (0, BLOCKS)
