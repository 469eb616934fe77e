"""What holds for all corruptions: one result for an image however the set is cut, all chance from the seed."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from experiments.corruptions import (
    CIFAR100_C,
    LIKE_JITTER,
    NAMES,
    SEVERITIES,
    STANDARD,
    UNLIKE_JITTER,
    contact_sheet,
    corrupt,
)
from experiments.corruptions.constants import CIFAR, IMAGENET
from tests.experiments.corruptions.references import CIFAR10, FEW, LARGE, SEED

WITHOUT_CHANCE = (
    "defocus_blur", "zoom_blur", "brightness", "contrast", "pixelate", "jpeg_compression", "gaussian_blur", "saturate",
)  # fmt: skip


def test_the_sets_of_names() -> None:
    assert len(NAMES) == len(set(NAMES)) == 19
    assert len(STANDARD) == 15
    assert set(NAMES) - set(STANDARD) == {"gaussian_blur", "saturate", "spatter", "speckle_noise"}
    assert len(CIFAR100_C) == 17
    assert set(NAMES) - set(CIFAR100_C) == {"motion_blur", "snow"}
    assert set(LIKE_JITTER).isdisjoint(UNLIKE_JITTER)
    assert set(LIKE_JITTER) | set(UNLIKE_JITTER) == set(NAMES)
    for table in (CIFAR, IMAGENET):
        assert set(table) == set(NAMES)
        assert all(len(levels) == len(SEVERITIES) for levels in table.values())


@pytest.mark.parametrize("name", NAMES)
def test_an_image_has_one_result_however_the_set_is_cut(name: str) -> None:
    before = FEW.clone()
    for severity in SEVERITIES:
        whole = corrupt(FEW, name, severity, SEED)
        assert whole.dtype == torch.uint8
        assert whole.shape == FEW.shape
        assert not torch.equal(whole, FEW)
        pieces = [corrupt(FEW[a:b], name, severity, SEED, first=a) for a, b in ((0, 1), (1, 7), (7, 10))]
        assert torch.equal(torch.cat(pieces), whole)
    assert torch.equal(FEW, before)


@pytest.mark.parametrize("name", NAMES)
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


def test_sets_larger_than_one_pass() -> None:
    many = CIFAR10.repeat(4, 1, 1, 1)
    whole = corrupt(many, "shot_noise", 2, SEED)
    assert torch.equal(whole[700:], corrupt(many[700:], "shot_noise", 2, SEED, first=700))


def test_results_are_truncated_not_rounded() -> None:
    half = torch.zeros(1, 3, 32, 32, dtype=torch.uint8)
    half[..., :16] = 255
    # (1 − ½)·¾ + ½ = .875, of 255: 223.125; (0 − ½)·¾ + ½ = .125, of 255: 31.875
    assert corrupt(half, "contrast", 1, SEED).unique().tolist() == [31, 223]


def test_size_chooses_the_constants() -> None:
    for side, factor in ((64, 0.15), (65, 0.05)):
        half = torch.zeros(1, 3, side, 64, dtype=torch.uint8)
        half[..., :32] = 255
        assert corrupt(half, "contrast", 5, SEED).max() == int((0.5 + 0.5 * factor) * 255)


@pytest.mark.parametrize(
    ("images", "name", "severity", "seed", "error", "message"),
    [
        (FEW, "gausian_noise", 1, 0, ValueError, r'Unknown corruption "gausian_noise"\. .*gaussian_noise'),
        (FEW, "fog", 6, 0, ValueError, "Unknown severity 6"),
        (FEW, "fog", 0, 0, ValueError, "Unknown severity 0"),
        (FEW.float() / 255, "fog", 1, 0, TypeError, "float32; corruptions take uint8"),
        (FEW.numpy(), "fog", 1, 0, TypeError, "ndarray; expected a torch tensor"),
        (FEW.permute(0, 2, 3, 1), "fog", 1, 0, ValueError, r"\[10, 32, 32, 3\]; expected \[n, 3, h, w\]"),
        (FEW[..., :8], "fog", 1, 0, ValueError, "at least 16"),
        (FEW, "fog", 1, -1, ValueError, "Seed -1"),
    ],
)
def test_bad_input_is_refused(
    images: Tensor, name: str, severity: int, seed: int, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        corrupt(images, name, severity, seed)


def test_a_negative_number_of_the_first_image_is_refused() -> None:
    with pytest.raises(ValueError, match="First image number -1"):
        corrupt(FEW, "fog", 1, 0, first=-1)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.parametrize("name", NAMES)
def test_cuda_draws_what_the_cpu_draws(name: str) -> None:
    for images in (CIFAR10, LARGE):
        for severity in SEVERITIES:
            there = corrupt(images.cuda(), name, severity, SEED)
            assert there.device.type == "cuda"
            apart = (there.cpu().int() - corrupt(images, name, severity, SEED).int()).abs()
            assert (apart > 0).double().mean() < 1e-4


def test_the_contact_sheet_shows_every_cell(tmp_path: Path, frost_folder: Path) -> None:
    contact_sheet(FEW[:2], tmp_path / "sheet.png", SEED, frost_folder=frost_folder)
    with Image.open(tmp_path / "sheet.png") as picture:
        sheet = np.asarray(picture.convert("RGB"))
    strips = sheet[::2, ::2]
    for shown in (FEW[1], corrupt(FEW[:2], "saturate", 5, SEED)[1]):
        wanted = shown.permute(1, 2, 0).numpy()
        windows = np.lib.stride_tricks.sliding_window_view(strips, wanted.shape)[:, :, 0]
        corners = (windows[:, :, 0, 0] == wanted[0, 0]).all(axis=-1)
        assert any((windows[y, x] == wanted).all() for y, x in np.argwhere(corners))
