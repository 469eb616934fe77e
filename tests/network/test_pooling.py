"""Every layout of a block's output becomes the row of features that averaging by hand gives."""

from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import lates
from lates.network.pooling import Pooling, find_tensor, has_class_token, read_pooling
from lates.settings import DEFAULT, PAPER, PAPER_LITERAL, Settings

LINEAR, CONV1D, CONV2D, CONV3D = nn.Linear(6, 6), nn.Conv1d(6, 6, 1), nn.Conv2d(6, 6, 1), nn.Conv3d(6, 6, 1)
ENCODER = nn.TransformerEncoderLayer(6, 2, 12, batch_first=True)
SEQUENCE_FIRST = nn.TransformerEncoderLayer(6, 2, 12)


def draw(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def pool(
    layer: nn.Module, output: Any, rows: int, settings: Settings = DEFAULT, class_token: bool = False, mask: Any = None
) -> Tensor:
    return read_pooling("block", layer, output, rows, class_token, settings, None)(output, mask)


def quarters(raster: Tensor) -> Tensor:
    """[n, c, 4, 4] -> [n, c · 4], the means of the four quarters."""
    cells = [raster[:, :, i : i + 2, j : j + 2].mean((2, 3)) for i in (0, 2) for j in (0, 2)]
    return torch.stack(cells, dim=2).flatten(1)


@pytest.mark.parametrize(
    ("layer", "output", "expected"),
    [
        (LINEAR, draw(5, 6), draw(5, 6)),
        (LINEAR, draw(5, 9, 6), draw(5, 9, 6).mean(1)),
        (ENCODER, draw(5, 9, 6), draw(5, 9, 6).mean(1)),
        (LINEAR, draw(5, 5, 6), draw(5, 5, 6).mean(1)),
        (SEQUENCE_FIRST, draw(9, 5, 6), draw(9, 5, 6).mean(0)),
        (SEQUENCE_FIRST, draw(5, 9, 6), draw(5, 9, 6).mean(1)),  # it turned its sequence itself
        (CONV1D, draw(5, 6, 4), draw(5, 6, 4).unflatten(2, (2, 2)).mean(3).flatten(1)),
        (CONV2D, draw(5, 6, 4, 4), quarters(draw(5, 6, 4, 4))),
        (LINEAR, draw(5, 4, 4, 6), quarters(draw(5, 4, 4, 6).permute(0, 3, 1, 2))),
        (LINEAR, draw(5, 2, 1, 6), draw(5, 2, 6).mT.flatten(1)),
        (CONV2D, draw(5, 6, 1, 1), draw(5, 6)),
        (CONV2D, draw(5, 6, 6, 2), draw(5, 6, 2, 3, 2).mean(3).flatten(1)),
        (CONV2D, draw(5, 6, 6, 4), draw(5, 6, 2, 3, 2, 2).mean((3, 5)).flatten(1)),
        (CONV3D, draw(5, 6, 2, 2, 2), draw(5, 6 * 8)),
        (nn.BatchNorm2d(6), draw(5, 6, 2, 2), draw(5, 24)),
        (nn.LayerNorm(6), draw(5, 2, 2, 6), draw(5, 2, 2, 6).permute(0, 3, 1, 2).flatten(1)),
        (nn.LayerNorm([6, 4, 4]), draw(5, 6, 4, 4), quarters(draw(5, 6, 4, 4))),
        (nn.LayerNorm([4, 4, 6]), draw(5, 4, 4, 6), quarters(draw(5, 4, 4, 6).permute(0, 3, 1, 2))),
        (nn.Identity(), draw(5, 6, 2, 2), draw(5, 24)),
        (nn.Identity(), draw(5, 2, 2, 2), draw(5, 8)),
        (nn.Identity(), draw(5, 2, 2, 6), draw(5, 2, 2, 6).permute(0, 3, 1, 2).flatten(1)),
    ],
)
def test_layouts(layer: nn.Module, output: Tensor, expected: Tensor) -> None:
    assert torch.allclose(pool(layer, output, rows=5), expected, atol=1e-6)


def test_a_recurrent_layer_is_read_sequence_first_unless_told() -> None:
    for batch_first in (False, True):
        layer = nn.LSTM(3, 6, batch_first=batch_first)
        output = layer(draw(*((5, 9, 3) if batch_first else (9, 5, 3))))
        assert torch.allclose(pool(layer, output, rows=5), output[0].mean(1 if batch_first else 0), atol=1e-6)


@pytest.mark.parametrize("grid", [1, 2, 3, 9])
def test_the_grid_is_never_finer_than_the_raster(grid: int) -> None:
    features = pool(CONV2D, draw(5, 6, 3, 2), 5, replace(DEFAULT, grid=grid))
    assert features.shape == (5, 6 * min(grid, 3) * min(grid, 2))
    if grid == 1:
        assert torch.allclose(features, draw(5, 6, 3, 2).mean((2, 3)), atol=1e-6)


@pytest.mark.parametrize(("tokens", "expected"), [("class", draw(5, 9, 6)[:, 0]), ("mean", draw(5, 9, 6).mean(1))])
def test_the_class_token_or_the_mean(tokens: Any, expected: Tensor) -> None:
    features = pool(LINEAR, draw(5, 9, 6), 5, replace(DEFAULT, tokens=tokens), class_token=True)
    assert torch.allclose(features, expected, atol=1e-6)


def test_a_class_token_is_known_by_its_parameter() -> None:
    model = nn.Module()
    model.inner = nn.Module()
    assert not has_class_token(model)
    model.inner.cls_token = nn.Parameter(torch.zeros(1, 1, 4))
    assert has_class_token(model)


@settings(deadline=None)
@given(st.lists(st.integers(1, 7), min_size=1, max_size=4), st.integers(0, 3), st.booleans())
def test_masked_tokens_do_not_count(lengths: list[int], extra: int, sequence_first: bool) -> None:
    tokens = max(lengths) + extra
    values = draw(len(lengths), tokens, 6)
    mask = torch.arange(tokens) < torch.tensor(lengths)[:, None]
    expected = torch.stack([row[:length].mean(0) for row, length in zip(values, lengths, strict=True)])
    pooling = Pooling("tokens", int(sequence_first), -1, (), "mean")
    output = torch.where(mask[:, :, None], values, torch.tensor(torch.nan))
    features = pooling(output.transpose(0, 1) if sequence_first else output, mask.long())
    assert torch.allclose(features, expected, atol=1e-5)


def test_tokens_before_those_of_the_mask_count_and_padding_alone_gives_zeros() -> None:
    mask = torch.tensor([[1, 1, 0]])
    assert torch.allclose(pool(LINEAR, draw(1, 4, 6), 1, mask=mask), draw(1, 4, 6)[:, :3].mean(1), atol=1e-6)
    assert pool(LINEAR, draw(1, 4, 6), 1, mask=torch.zeros(1, 4)).tolist() == [[0.0] * 6]
    with pytest.raises(ValueError, match=r"4 tokens under an attention mask of 6.*naming the others in blocks="):
        pool(LINEAR, draw(1, 4, 6), 1, mask=torch.ones(1, 6))


def test_nested_tensors_are_averaged_over_their_own_tokens() -> None:
    rows = [draw(3, 6), draw(7, 6), draw(1, 6)]
    nested = torch.nested.nested_tensor(rows)
    features = pool(ENCODER, nested, rows=3, mask=torch.ones(3, 9))
    assert torch.allclose(features, torch.stack([row.mean(0) for row in rows]), atol=1e-6)


def test_flat_pooling_reads_the_paper_literally() -> None:
    """Channels last, flattened, one-dimensional average pooling to the width that the budget gives."""
    output, vector = draw(5, 6, 2, 2), draw(5, 6)
    pooling = read_pooling("block", CONV2D, output, 5, False, PAPER_LITERAL, 8)
    flat = output.permute(0, 2, 3, 1).flatten(1)
    assert torch.allclose(pooling(output, None), flat.unflatten(1, (8, 3)).mean(2), atol=1e-6)
    assert torch.equal(read_pooling("block", CONV2D, output, 5, False, PAPER_LITERAL, 999)(output, None), flat)
    assert torch.equal(read_pooling("block", LINEAR, vector, 5, False, PAPER_LITERAL, None)(vector, None), vector)


@pytest.mark.parametrize(("width", "side", "features"), [(None, 8, 384), (999, 8, 384), (60, 3, 54), (6, 1, 6), (3, 1, 3)])
def test_spatial_pooling_takes_the_finest_raster_within_the_width(width: int | None, side: int, features: int) -> None:
    output = draw(5, 6, 8, 8)
    pooling = read_pooling("block", CONV2D, output, 5, False, PAPER, width)
    assert pooling.size == (side, side, features)
    raster = F.adaptive_avg_pool2d(output, side).flatten(1)
    expected = raster.unflatten(1, (features, -1)).mean(2) if features < raster.shape[1] else raster
    torch.testing.assert_close(pooling(output, None), expected)


def test_spatial_pooling_of_volumes_takes_cubes_that_just_fit() -> None:
    pooling = read_pooling("block", CONV3D, draw(5, 6, 5, 5, 5), 5, False, PAPER, 6 * 4**3)
    assert pooling.size == (4, 4, 4, 6 * 4**3)


def test_spatial_pooling_averages_tokens_and_keeps_vectors() -> None:
    tokens, vector = draw(5, 9, 6), draw(5, 6)
    averaged = read_pooling("block", LINEAR, tokens, 5, False, PAPER, 3)(tokens, None)
    torch.testing.assert_close(averaged, tokens.mean(1).unflatten(1, (3, 2)).mean(2))
    assert torch.equal(read_pooling("block", LINEAR, vector, 5, False, PAPER, 20)(vector, None), vector)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("shape", [(5, 6), (5, 9, 6), (5, 6, 4, 4)])
def test_half_precision_is_averaged_in_single(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    output = draw(*shape).to(dtype)
    layer = CONV2D if len(shape) == 4 else LINEAR
    assert torch.equal(pool(layer, output, 5), pool(layer, output.float(), 5))


# Outputs that hold the tensor


@dataclass
class Output:
    flag: bool
    hidden: Tensor


@pytest.mark.parametrize(
    "output",
    [
        (draw(5, 6), draw(5, 7)),
        [None, draw(5, 6)],
        (torch.zeros(5, 6).long(), torch.zeros(()), draw(5, 6)),
        {"index": torch.zeros(5).long(), "hidden": draw(5, 6)},
        OrderedDict(nested=(draw(5, 6),)),
        Output(True, draw(5, 6)),
    ],
)
def test_the_first_tensor_of_two_dimensions_is_found(output: Any) -> None:
    assert torch.equal(find_tensor(output), draw(5, 6))


@pytest.mark.parametrize("output", [None, (), {"a": 1}, torch.zeros(5), torch.zeros(5, 6).long(), "text"])
def test_an_output_without_one_is_refused(output: Any) -> None:
    with pytest.raises(ValueError, match=rf"put out a {type(output).__name__} that holds no floating-point tensor"):
        find_tensor(output)


@pytest.mark.parametrize("shape", [(20, 6), (5, 6, 2, 2, 2, 2)])
def test_outputs_of_other_shapes_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=rf'Block "block" puts out shape \[{shape[0]}, .* for 5 rows.*naming the others'):
        pool(nn.Identity(), draw(*shape), rows=5)


# The layer behind an activation tells the layout


@pytest.mark.parametrize(
    ("model", "inputs", "expected"),
    [
        (nn.Sequential(nn.Conv1d(2, 6, 1), nn.ReLU(), nn.Flatten(), nn.Linear(24, 3)), draw(5, 2, 4), (5, 12)),
        (nn.Sequential(nn.Conv2d(2, 6, 1), nn.ReLU(), nn.Flatten(), nn.Linear(48, 3)), draw(5, 2, 2, 4), (5, 24)),
        (nn.Sequential(nn.Conv2d(2, 4, 1), nn.ReLU(), nn.Flatten(), nn.Linear(32, 3)), draw(5, 2, 4, 2), (5, 16)),
    ],
)
def test_activations_of_convolutions_are_rasters(model: nn.Sequential, inputs: Tensor, expected: tuple[int, int]) -> None:
    features = lates.extract(model, [(inputs, torch.zeros(5).long())])
    assert features.poolings["1"].channels_axis == 1
    assert features.blocks["1"].shape == expected
    activations = model[1](model[0](inputs)).flatten(2)
    cells = features.blocks["1"].unflatten(1, (activations.shape[1], -1))
    assert torch.allclose(cells.mean(2), activations.mean(2), atol=1e-6)
