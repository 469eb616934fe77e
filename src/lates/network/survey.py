"""What the first batch shows of a network: which blocks can be recorded, and how their outputs are pooled."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from lates.network.batches import take_rows
from lates.network.blocks import layer_behind
from lates.network.pooling import Pooling, find_tensor, has_class_token, read_pooling, tensors_in
from lates.network.reading import Reading
from lates.network.recorder import call_recorded, prepare_recorded, refuse_originals
from lates.runtime import Run, warn_caller

NO_BLOCK = "No block is left to probe, so this is temperature scaling."


def survey_network(
    model: nn.Module, names: Sequence[str], inputs: Any, rows: int, reading: Reading, dropout: bool, run: Run
) -> dict[str, Pooling]:
    """How each of the blocks of these names is pooled, seen in one forward pass of the first batch, of `rows` rows.

    A block that cannot be recorded is an error where the user named it. The automatic choice leaves it out, and also a block
    whose output is the logits: that is the head, though unused modules may follow it.
    """
    settings, named = reading.settings, isinstance(reading.blocks, Sequence)
    network = prepare_recorded(model, dict.fromkeys(names, lambda output, mask: output), dropout, run)
    with refuse_originals(model):
        logits, outputs = call_recorded(network, inputs)
    shapes = [tensor.shape for tensor in tensors_in(outputs) if not tensor.is_nested]
    if rows > 1 and any(len(shape) == 3 and shape[:2] == (rows, rows) for shape in shapes):  # which axis is the tokens'?
        inputs, rows = take_rows(inputs, rows, rows - 1), rows - 1
        logits, outputs = call_recorded(network, inputs)
    width = None
    if settings.pooling in ("flat", "spatial") and reading.budget is not None and names:
        width = int(reading.budget * count_parameters(model) / len(names) / logits.shape[1]) - 1
        if width < 1:
            warn_caller(f"{NO_BLOCK} budget={reading.budget} leaves not one feature per block.")
            return {}
    modules, class_token = dict(network.network.named_modules()), has_class_token(model)
    poolings: dict[str, Pooling] = {}
    faults: list[str] = []
    for name in names:
        try:
            output = only_output(outputs, name)
            pooling = read_pooling(name, layer_behind(modules, name), output, rows, class_token, settings, width)
        except ValueError as fault:
            if named:
                raise
            faults.append(str(fault))
            continue
        values = find_tensor(output)
        is_head = not values.is_nested and torch.equal(values, logits)
        if named or not is_head:
            poolings[name] = pooling
    if not poolings and not named and reading.blocks != 0:
        warn_caller(f"{NO_BLOCK} {faults[0] if faults else 'The network has no layer but its head.'}")
    elif repeated := [name for name in names if len(outputs.get(name, [])) > 1]:
        warn_caller(f"These blocks get no probe, because they run several times in a forward pass: {', '.join(repeated)}.")
    return poolings


def only_output(outputs: Mapping[str, Sequence[Any]], name: str) -> Any:
    """What was recorded of a block, which must have run exactly once."""
    recorded = outputs.get(name, [])
    if len(recorded) != 1:
        times = "is never called" if not recorded else f"runs {len(recorded)} times"
        raise ValueError(
            f'Block "{name}" {times} in a forward pass; to get a probe it must run exactly once. To probe other modules, name '
            "them in blocks=."
        )
    return recorded[0]


def count_parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())
