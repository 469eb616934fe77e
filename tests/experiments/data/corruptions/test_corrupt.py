"""What holds for all corruptions: one result for an image however the set is cut, all chance from the seed."""

import pytest
import torch

from experiments.data.corruptions import (
    BAR_NAMES,
    CIFAR100_C,
    LIKE_JITTER,
    NAMES,
    SEVERITIES,
    STANDARD,
    UNLIKE_JITTER,
    corrupt,
)
from experiments.data.corruptions.constants import BAR, CIFAR, IMAGENET
from tests.experiments.data.corruptions.references import CIFAR10, FEW, LARGE, SEED

WITHOUT_CHANCE = (
    "defocus_blur", "zoom_blur", "brightness", "contrast", "pixelate", "jpeg_compression", "gaussian_blur", "saturate",
    "circular_motion_blur",
)  # fmt: skip


def test_the_sets_of_names() -> None:
    assert len(NAMES) == len(set(NAMES)) == 19
    assert len(STANDARD) == 15
    assert set(NAMES) - set(STANDARD) == {"gaussian_blur", "saturate", "spatter", "speckle_noise"}
    assert len(CIFAR100_C) == 17
    assert set(NAMES) - set(CIFAR100_C) == {"motion_blur", "snow"}
    assert set(LIKE_JITTER).isdisjoint(UNLIKE_JITTER)
    assert set(LIKE_JITTER) | set(UNLIKE_JITTER) == set(NAMES)
    assert len(BAR_NAMES) == 10
    for table, names in ((CIFAR, NAMES), (IMAGENET, NAMES), (BAR, BAR_NAMES)):
        assert set(table) == set(names)
        assert all(len(levels) == len(SEVERITIES) for levels in table.values())


@pytest.mark.parametrize("name", NAMES + BAR_NAMES)
def test_every_corruption_changes_images_and_ignores_what_follows(name: str) -> None:
    before = FEW.clone()
    for severity in SEVERITIES:
        whole = corrupt(FEW, name, severity, SEED)
        assert whole.dtype == torch.uint8
        assert whole.shape == FEW.shape
        assert not torch.equal(whole, FEW)
        assert torch.equal(corrupt(FEW[:3], name, severity, SEED), whole[:3])
    assert torch.equal(FEW, before)


@pytest.mark.parametrize("name", NAMES + BAR_NAMES)
def test_the_seed_decides_all_chance(name: str) -> None:
    twins = FEW[:1].repeat(4, 1, 1, 1)
    result = corrupt(twins, name, 4, 2**63 + 1)
    assert torch.equal(result, corrupt(twins, name, 4, 2**63 + 1))
    assert torch.equal(result, corrupt(twins, name, 4, 1)) == (name in WITHOUT_CHANCE)
    assert bool((result == result[:1]).all()) == (name in WITHOUT_CHANCE), "each image draws for itself"


@pytest.mark.parametrize("name", NAMES)
def test_other_sizes_and_no_images(name: str) -> None:
    for height, width in ((16, 40), (65, 16)):
        images = torch.zeros(2, 3, height, width, dtype=torch.uint8)
        assert corrupt(images, name, 5, SEED).shape == images.shape
        assert corrupt(images[:0], name, 5, SEED).shape == (0, 3, height, width)


def test_a_set_larger_than_one_chunk_has_the_same_result(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = corrupt(FEW, "shot_noise", 2, SEED)
    monkeypatch.setattr("experiments.data.corruptions.benchmark._VALUES_ON_CPU", 3 * FEW[0].numel())
    assert torch.equal(corrupt(FEW, "shot_noise", 2, SEED), whole)


def test_size_chooses_the_constants() -> None:
    for side, factor in ((64, 0.15), (65, 0.05)):
        half = torch.zeros(1, 3, side, 64, dtype=torch.uint8)
        half[..., :32] = 255
        assert corrupt(half, "contrast", 5, SEED).max() == int((0.5 + 0.5 * factor) * 255)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.parametrize("name", NAMES + BAR_NAMES)
def test_cuda_draws_what_the_cpu_draws(name: str) -> None:
    for images in (CIFAR10, LARGE) if name in NAMES else (CIFAR10,):
        for severity in SEVERITIES:
            there = corrupt(images.cuda(), name, severity, SEED)
            assert there.device.type == "cuda"
            apart = (there.cpu().int() - corrupt(images, name, severity, SEED).int()).abs()
            assert (apart > 0).double().mean() < 1e-4
