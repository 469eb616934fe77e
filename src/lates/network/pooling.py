"""A block's output -> a row of features [n, width].

What a block puts out is read once, from the first batch: which axis holds the rows, which the channels, and whether the
rest is a raster or a sequence of tokens. What was read is a small frozen `Pooling`, saved with the calibrated model.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lates.settings import Settings

Layout = Literal["vector", "tokens", "raster"]
Method = Literal["class", "mean", "grid", "spatial", "flat", "none"]
CLASS_TOKENS = ("cls_token", "class_token", "class_embedding")


@dataclass(frozen=True)
class Pooling:
    """How to turn a block's output into features: call it with (output, attention mask or None).

    layout        "vector" [n, c]; "tokens" [n, tokens, c]; "raster" [n, c, …] or [n, …, c], one to three dimensions deep.
    rows_axis     0, or 1 for sequence-first tokens [tokens, n, c].
    channels_axis of the output: 1 or -1.
    size          grid: the cells per dimension; spatial: these and the width; flat: (width,); otherwise ().
    method        "class" token, "mean" over tokens, "grid" over a raster, "none" for vectors; the paper's: "spatial", averaged
                  over a raster or tokens, then flattened and averaged to a width; "flat", the same without the raster.
    """

    layout: Layout
    rows_axis: int
    channels_axis: int
    size: tuple[int, ...]
    method: Method

    def __call__(self, output: Any, mask: Tensor | None) -> Tensor:
        values = find_tensor(output)
        if values.is_nested:
            mask = torch.nested.to_padded_tensor(torch.ones_like(values), 0.0)[:, :, 0]
            values = torch.nested.to_padded_tensor(values, 0.0)
        if values.dtype in (torch.float16, torch.bfloat16):
            values = values.float()
        if self.rows_axis == 1:
            values = values.transpose(0, 1)
        if self.method == "none":
            return values.clone()
        if self.method == "class":
            return values[:, 0].clone()
        if self.method == "mean":
            return _mean_over_tokens(values, mask)
        last = values.movedim(1, -1) if self.channels_axis == 1 else values
        if self.layout == "tokens" and (self.method == "spatial" or mask is not None):
            last = _mean_over_tokens(last, mask)  # flattened, padding would shift every number behind it
        if self.method == "flat" or self.layout != "raster":
            return _average_to(last, self.size[-1])
        extent = last.dim() - 2
        average = getattr(F, f"adaptive_avg_pool{extent}d")
        cells = average(last.movedim(-1, 1), self.size[:extent])  # [n, c, *size]
        return cells.flatten(1) if self.method == "grid" else _average_to(cells, self.size[-1])


def read_pooling(
    name: str, layer: nn.Module, output: Any, rows: int, class_token: bool, settings: Settings, width: int | None
) -> Pooling:
    """Read the layout of one block's output in a batch of `rows` rows.

    layer   the block, or the layer whose output it passes on: its sizes tell channels from extent
    width   of flat and spatial pooling, what the budget gives
    """
    values = find_tensor(output)
    shape = list(values.shape) if not values.is_nested else [values.size(0), -1, values.size(-1)]
    layout, rows_axis, channels_axis = _read_layout(layer, shape, rows)
    extent = (shape[2:] if channels_axis == 1 else shape[1:-1]) if layout == "raster" else []
    if len(shape) < 2 or shape[rows_axis] != rows or len(extent) > 3:
        raise ValueError(
            f'Block "{name}" puts out shape {shape} for {rows} rows. Expected [n, c], [n, tokens, c], [n, c, h, w] or '
            "[n, h, w, c] with n rows; leave this block out by naming the others in blocks=."
        )
    size: tuple[int, ...] = ()
    method: Method = "none"
    if settings.pooling == "spatial":
        channels = shape[channels_axis]
        sides = range(1, max(extent, default=1) + 1)
        side = max(side for side in sides if side == 1 or not width or channels * side ** len(extent) <= width)
        cells = [min(side, length) for length in extent]
        numbers = channels * math.prod(cells)
        size, method = (*cells, min(width or numbers, numbers)), "spatial"
    elif settings.pooling == "flat":
        numbers = values[0].numel() if rows_axis == 0 else values[:, 0].numel()
        size, method = (min(width or numbers, numbers),), "flat"
    elif layout == "tokens":
        method = "class" if class_token and settings.tokens == "class" else "mean"
    elif layout == "raster":
        size, method = tuple(min(settings.grid, side) for side in extent), "grid"
    return Pooling(layout, rows_axis, channels_axis, size, method)


def has_class_token(model: nn.Module) -> bool:
    """Whether a learned class token stands before the other tokens, as in most vision transformers."""
    return any(name.rpartition(".")[2] in CLASS_TOKENS for name, _ in model.named_parameters())


def find_tensor(output: Any) -> Tensor:
    """The first floating-point tensor of two or more dimensions in a block's output: itself, in a tuple, in a mapping."""
    for candidate in tensors_in(output):
        if candidate.is_floating_point() and candidate.dim() >= 2:
            return candidate
    raise ValueError(f"A block put out a {type(output).__name__} that holds no floating-point tensor of two dimensions.")


def tensors_in(output: Any) -> Iterable[Tensor]:
    """Every tensor of a block's output, in order: itself, or those in tuples, mappings and objects."""
    if isinstance(output, Tensor):
        yield output
    elif isinstance(output, Mapping):
        for value in output.values():
            yield from tensors_in(value)
    elif isinstance(output, (tuple, list)):  # no union: torch 2.9 would not compile it
        for value in output:
            yield from tensors_in(value)
    elif hasattr(output, "__dict__"):
        for value in vars(output).values():
            if isinstance(value, Tensor):
                yield value


def _read_layout(layer: nn.Module, shape: list[int], rows: int) -> tuple[Layout, int, int]:
    """(layout, axis of the rows, axis of the channels)."""
    if len(shape) <= 2:
        return "vector", 0, -1
    channels_first = shape[1] in _convolution_channels(layer)
    channels_last = shape[-1] in _linear_channels(layer)
    if len(shape) == 3:
        if channels_first and not channels_last:
            return "raster", 0, 1
        return "tokens", int(shape[0] != rows and shape[1] == rows), -1
    if channels_first != channels_last:
        return "raster", 0, 1 if channels_first else -1
    looks_last = shape[1] == shape[2] != shape[-1]
    return "raster", 0, -1 if looks_last else 1


def _convolution_channels(layer: nn.Module) -> set[int]:
    channels = {part.out_channels for part in layer.modules() if isinstance(part, nn.modules.conv._ConvNd)}
    norms = (part for part in layer.modules() if isinstance(part, nn.modules.batchnorm._BatchNorm))
    return channels | {norm.num_features for norm in norms}


def _linear_channels(layer: nn.Module) -> set[int]:
    """A norm over several axes at once, such as [c, h, w], does not tell which of them holds the channels."""
    channels = {part.out_features for part in layer.modules() if isinstance(part, nn.Linear)}
    normed = [part.normalized_shape for part in layer.modules() if isinstance(part, nn.LayerNorm)]
    return channels | {shape[0] for shape in normed if len(shape) == 1}


def _mean_over_tokens(values: Tensor, mask: Tensor | None) -> Tensor:
    """Mean of the tokens that the mask keeps, [n, tokens, c] -> [n, c]: padding never changes a prediction."""
    if mask is None or mask.dim() != 2:
        return values.mean(1)
    tokens, masked = values.shape[1], mask.shape[1]
    if tokens < masked:
        raise ValueError(
            f"A block puts out {tokens} tokens under an attention mask of {masked}: which of them are padding is unknown. "
            "Leave this block out by naming the others in blocks=."
        )
    kept = F.pad(mask.to(values.dtype), (tokens - masked, 0), value=1.0)[:, :, None] > 0
    return torch.where(kept, values, 0.0).sum(1) / kept.sum(1).clamp(min=1)


def _average_to(values: Tensor, width: int) -> Tensor:
    """[n, …] -> [n, width], neighbours in the flattened order averaged."""
    return F.adaptive_avg_pool1d(values.flatten(1)[:, None], width)[:, 0]
