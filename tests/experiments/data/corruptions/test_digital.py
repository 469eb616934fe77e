"""Contrast, colours, JPEG, pixels and elastic sheets against Pillow, colorsys and scipy."""

import colorsys
import io

import numpy as np
import pytest
import torch
from PIL import Image
from scipy import ndimage
from torch import Tensor

from experiments.data.corruptions import SEVERITIES, corrupt
from experiments.data.corruptions.constants import CIFAR, IMAGENET
from tests.experiments.data.corruptions.references import FEW, LARGE, SEED, as_bytes, assert_pixels, draws, unit


@pytest.mark.parametrize("severity", SEVERITIES)
def test_contrast(severity: int) -> None:
    (factor,) = CIFAR["contrast"][severity - 1]
    mean = unit(FEW).mean(axis=(2, 3), keepdims=True)
    assert_pixels(corrupt(FEW, "contrast", severity, SEED), as_bytes((unit(FEW) - mean) * factor + mean))


@pytest.mark.parametrize("severity", SEVERITIES)
def test_brightness_and_saturation_are_those_of_hsv(severity: int) -> None:
    colours = torch.tensor([0, 1, 60, 128, 200, 254, 255], dtype=torch.uint8)
    images = torch.cartesian_prod(colours, colours, colours)[: 18 * 19].T.reshape(1, 3, 18, 19)
    (amount,) = CIFAR["brightness"][severity - 1]
    factor, shift = CIFAR["saturate"][severity - 1]
    brighter, saturated = np.empty(images.shape), np.empty(images.shape)
    for row, column in np.ndindex(18, 19):
        hue, saturation, value = colorsys.rgb_to_hsv(*unit(images)[0, :, row, column])
        brighter[0, :, row, column] = colorsys.hsv_to_rgb(hue, saturation, min(value + amount, 1))
        saturated[0, :, row, column] = colorsys.hsv_to_rgb(hue, min(saturation * factor + shift, 1), value)
    assert_pixels(corrupt(images, "brightness", severity, SEED), as_bytes(brighter))
    assert_pixels(corrupt(images, "saturate", severity, SEED), as_bytes(saturated))


def as_pictures(images: Tensor) -> list[Image.Image]:
    return [Image.fromarray(image) for image in images.permute(0, 2, 3, 1).contiguous().numpy()]


@pytest.mark.parametrize("severity", SEVERITIES)
def test_jpeg_compression_is_that_of_pillow(severity: int) -> None:
    (quality,) = CIFAR["jpeg_compression"][severity - 1]
    expected = []
    for picture in as_pictures(FEW):
        file = io.BytesIO()
        picture.save(file, "JPEG", quality=int(quality))
        expected.append(np.asarray(Image.open(file)).transpose(2, 0, 1))
    assert_pixels(corrupt(FEW, "jpeg_compression", severity, SEED), np.stack(expected))


@pytest.mark.parametrize("severity", SEVERITIES)
def test_pixelate_is_that_of_pillow(severity: int) -> None:
    for images, table in ((FEW, CIFAR), (FEW[:, :, :19, :29], CIFAR), (LARGE, IMAGENET)):
        (share,) = table["pixelate"][severity - 1]
        height, width = images.shape[-2:]
        small = [
            picture.resize((int(width * share), int(height * share)), Image.Resampling.BOX) for picture in as_pictures(images)
        ]
        expected = [np.asarray(picture.resize((width, height), Image.Resampling.BOX)) for picture in small]
        assert_pixels(corrupt(images, "pixelate", severity, SEED), np.stack(expected).transpose(0, 3, 1, 2))


@pytest.mark.parametrize("severity", SEVERITIES)
def test_elastic_transform(severity: int) -> None:
    for images, table in ((FEW, CIFAR), (LARGE, IMAGENET)):
        shift, smoothness, affine = table["elastic_transform"][severity - 1]
        height, width = images.shape[-2:]
        source = draws("elastic_transform", severity, len(images))
        moves = affine * (2 * source.uniform("affine", 3, 2).numpy() - 1)
        noise = shift * (2 * source.uniform("displacement", 2, height, width).numpy() - 1)
        reach, centre = min(height, width) // 3, np.array([width // 2, height // 2])
        points = centre + reach * np.array([[1, 1], [1, -1], [-1, -1]])
        grid = np.mgrid[0:height, 0:width].astype(np.float64)
        expected = np.empty(images.shape)
        for i, image in enumerate(unit(images)):
            columns = np.linalg.inv(np.column_stack([points + moves[i], np.ones(3)])) @ points  # [x y 1] @ columns
            linear, offset = columns[:2].T[::-1, ::-1], columns[2][::-1]  # scipy counts rows first
            dx, dy = (ndimage.gaussian_filter(d, smoothness, mode="reflect", truncate=3) for d in noise[i])
            for c, channel in enumerate(image):
                turned = ndimage.affine_transform(channel, linear, offset, order=1, mode="mirror")
                expected[i, c] = ndimage.map_coordinates(turned, grid + np.stack([dy, dx]), order=1, mode="reflect")
        assert_pixels(corrupt(images, "elastic_transform", severity, SEED), as_bytes(expected))
