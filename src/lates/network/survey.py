"""What the first batch shows of a network: which blocks can be recorded, and how their outputs are pooled."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from lates.network.batches import Batch, take_rows
from lates.network.blocks import choose_blocks, layer_behind, named_modules, unwrap
from lates.network.pooling import Pooling, find_tensor, has_class_token, read_pooling, tensors_in
from lates.network.recorder import Reducer, call_recorded, prepare_recorded, refuse_originals
from lates.network.views import Reading
from lates.runtime import warn_caller

NO_BLOCK = "No block is left to probe, so this is temperature scaling."


def survey_network(
    model: nn.Module, batch: Batch, reading: Reading, dropout: bool, device: torch.device
) -> dict[str, Pooling]:
    """How each of the chosen blocks is pooled, seen in one forward pass of the first batch.

    A block that cannot be recorded is an error where the user named it. The automatic choice leaves it out, and also a block
    whose output is the logits: that is the head, though unused modules may follow it.
    """
    settings, named = reading.settings, isinstance(reading.blocks, Sequence)
    names = choose_blocks(model, reading.blocks, reading.settings.last_block)
    outputs: dict[str, list[Any]] = {name: [] for name in names}

    def keep_output(name: str) -> Reducer:
        def reduce(output: Any, mask: Tensor | None) -> Tensor:
            outputs[name].append(output)
            return torch.empty(0)

        return reduce

    network = prepare_recorded(model, {name: keep_output(name) for name in names}, dropout, device)
    with refuse_originals(model):
        logits, _ = call_recorded(network, batch.inputs)
    if batch.rows > 1 and any(_is_square(output, batch.rows) for recorded in outputs.values() for output in recorded):
        batch = Batch(take_rows(batch.inputs, batch.rows, batch.rows - 1), batch.labels[:-1])
        outputs.update({name: [] for name in names})
        logits, _ = call_recorded(network, batch.inputs)
    width = None
    if settings.pooling in ("flat", "spatial") and reading.budget is not None and names:
        width = int(reading.budget * count_parameters(model) / len(names) / logits.shape[1]) - 1
        if width < 1:
            warn_caller(f"{NO_BLOCK} budget={reading.budget} leaves not one feature per block.")
            return {}
    modules, class_token = named_modules(model), has_class_token(unwrap(model))
    poolings: dict[str, Pooling] = {}
    faults: list[str] = []
    for name in names:
        try:
            output = only_output(name, outputs[name])
            layer = layer_behind(modules, name)
            pooling = read_pooling(name, layer, output, batch.rows, class_token, settings, width)
        except ValueError as fault:
            if named:
                raise
            faults.append(str(fault))
            continue
        if named or not _is_head(output, logits):
            poolings[name] = pooling
    if not poolings and not named and reading.blocks != 0:
        warn_caller(f"{NO_BLOCK} {faults[0] if faults else 'The network has no layer but its head.'}")
    elif repeated := [name for name in names if len(outputs[name]) > 1]:
        warn_caller(
            f"These blocks get no probe, because they run several times in a forward pass: {', '.join(repeated)}."
        )
    return poolings


def only_output(name: str, outputs: Sequence[Any]) -> Any:
    """The output of a block that ran exactly once."""
    if len(outputs) != 1:
        times = "is never called" if not outputs else f"runs {len(outputs)} times"
        raise ValueError(
            f'Block "{name}" {times} in a forward pass; to get a probe it must run exactly once. To probe other modules, name '
            "them in blocks=."
        )
    return outputs[0]


def count_parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def _is_square(output: Any, rows: int) -> bool:
    """Whether rows and tokens cannot be told apart: as many of the one as of the other."""
    dense = (tensor for tensor in tensors_in(output) if not tensor.is_nested)
    return any(tensor.dim() == 3 and list(tensor.shape[:2]) == [rows, rows] for tensor in dense)


def _is_head(output: Any, logits: Tensor) -> bool:
    values = find_tensor(output)
    return not values.is_nested and torch.equal(values, logits)
