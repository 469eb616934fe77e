"""The network as it is recorded: which blocks can be, how their outputs become features, and a batch's rows of them."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from lates.batches import IGNORED, Batch, call_arguments, copy_inputs, take_rows
from lates.blocks import HEAD, choose_blocks, layer_behind, named_modules, unwrap
from lates.checks import check_labels, level_of_the_caller
from lates.copies import originals_at_rest
from lates.pooling import Pooling, find_tensor, has_class_token, read_pooling, tensors_in
from lates.settings import Settings
from lates.taps import RecordedNetwork, Reduce, switch_to_evaluation
from lates.team import Team

LABELS = ".labels"
"""Their name among the rows, beside the blocks and the head: no module's name begins with a dot."""


@dataclass(frozen=True)
class Survey:
    """What the first batch told of a network: how its blocks are pooled, and how many columns those items [n, columns] have
    that it returned, in a tuple, beside the one taken for its logits."""

    poolings: dict[str, Pooling]
    columns_beside: tuple[int, ...] = ()


def survey(
    model: nn.Module,
    batch: Batch,
    blocks: Sequence[str] | int | None,
    budget: float | None,
    dropout: bool,
    device: torch.device,
    settings: Settings,
) -> Survey:
    """Which of the chosen blocks can be recorded, and how: found in one forward pass of the first batch.

    A block that cannot is an error where the user named it; the automatic choice goes on without, and without one whose
    output is the logits: that is the head, though unused modules stand behind it.
    """
    names = choose_blocks(model, blocks)
    outputs: dict[str, list[Any]] = {name: [] for name in names}

    def look(name: str) -> Reduce:
        def reduce(output: Any, mask: Tensor | None) -> Tensor:
            outputs[name].append(output)
            return torch.empty(0)

        return reduce

    network = _on(device, switch_to_evaluation(RecordedNetwork(model, {name: look(name) for name in names}), dropout))
    returned: list[Any] = []
    network.network.register_forward_hook(lambda module, inputs, output: returned.append(output))
    with originals_at_rest([network.network]):
        logits, _ = _run(network, batch.inputs)
        columns_beside = _columns_beside(returned[-1], batch.rows) if returned else ()
        if any(_is_ambiguous(seen, batch.rows) for seen in outputs.values()):
            batch = Batch(take_rows(batch.inputs, batch.rows, batch.rows - 1), batch.labels[:-1])
            for seen in outputs.values():
                seen.clear()
            logits, _ = _run(network, batch.inputs)
    width = None
    if settings.pooling == "flat" and budget is not None and names:
        width = int(budget * count_parameters(model) / len(names) / logits.shape[1]) - 1
        if width < 1:
            _warn_no_block(f"budget={budget} leaves not one feature per block.")
            return Survey({}, columns_beside)
    modules, class_token = named_modules(model), has_class_token(unwrap(model))
    poolings: dict[str, Pooling] = {}
    faults: list[str] = []
    for name in names:
        try:
            output = _only_output(name, outputs[name])
            layer = layer_behind(modules, name)
            pooling = read_pooling(name, layer, output, batch.rows, class_token, settings, width)
        except ValueError as fault:
            if isinstance(blocks, Sequence):
                raise
            faults.append(str(fault))
            continue
        if isinstance(blocks, Sequence) or not _is_head(output, logits):
            poolings[name] = pooling
    automatic = not isinstance(blocks, Sequence) and blocks != 0
    repeated = [name for name in names if len(outputs[name]) > 1]
    if automatic and not poolings:
        _warn_no_block(faults[0] if faults else "The network has no layer but its head.")
    elif repeated:
        text = f"Without a probe, for they run several times in a forward pass: {', '.join(repeated)}."
        warnings.warn(text, UserWarning, stacklevel=level_of_the_caller())
    return Survey(poolings, columns_beside)


def _columns_beside(output: Any, rows: int) -> tuple[int, ...]:
    if not isinstance(output, tuple | list) or hasattr(output, "logits"):
        return ()
    others = [item for item in output[1:] if isinstance(item, Tensor) and item.is_floating_point() and item.dim() == 2]
    return tuple(item.shape[1] for item in others if len(item) == rows and item.shape[1] > 1)


def warn_of_other_logits(found: Survey, labels: Tensor, classes: int) -> None:
    """Warn where the first item of a tuple, taken for the logits, has columns that no label [n] names, and another item has
    fewer, enough for all labels: features may come first and logits later."""
    used = int(labels.max()) + 1 if len(labels) else classes
    fitting = [columns for columns in found.columns_beside if used <= columns < classes]
    if fitting:
        warnings.warn(
            f"The network returned a tuple, whose first item, [n, {classes}], is taken for its logits; but labels go up to "
            f"{used - 1} only, and a later item is [n, {fitting[0]}]. If that holds the logits, wrap the network so that it "
            "returns them alone.",
            UserWarning,
            stacklevel=level_of_the_caller(),
        )


def _is_ambiguous(outputs: Sequence[Any], rows: int) -> bool:
    """Whether rows could be taken for tokens, or tokens for rows: as many of the one as of the other."""
    found = [tensor for output in outputs for tensor in tensors_in(output) if not tensor.is_nested]
    return rows > 1 and any(tensor.dim() == 3 and list(tensor.shape[:2]) == [rows, rows] for tensor in found)


def _is_head(output: Any, logits: Tensor) -> bool:
    values = find_tensor(output)
    return not values.is_nested and torch.equal(values, logits)


def _only_output(name: str, outputs: Sequence[Any]) -> Any:
    if len(outputs) != 1:
        times = "is never called" if not outputs else f"runs {len(outputs)} times"
        raise ValueError(
            f'Block "{name}" {times} in a forward pass; to get a probe it must run exactly once. To probe other modules, name '
            "them in blocks=."
        )
    return outputs[0]


def _warn_no_block(reason: str) -> None:
    text = f"No block is left to probe, so this is temperature scaling. {reason}"
    warnings.warn(text, UserWarning, stacklevel=level_of_the_caller())


def record_all(
    models: Sequence[nn.Module],
    poolings: Sequence[Mapping[str, Pooling]],
    dropout: bool,
    device: torch.device,
    team: Team,
) -> list[RecordedNetwork]:
    """One recorded network per model; a model given several times is copied once."""
    made: dict[int, RecordedNetwork] = {}
    for model, pooling in zip(models, poolings, strict=True):
        if id(model) not in made:
            network = _on(device, switch_to_evaluation(RecordedNetwork(model, pooling), dropout))
            made[id(model)] = _as_in_the_first(network, team)
    return [made[id(model)] for model in models]


def _as_in_the_first(network: RecordedNetwork, team: Team) -> RecordedNetwork:
    """With the first process's buffers: data-parallel training leaves every process with batch statistics of its own.

    Parameters, however, must be the same.
    """
    if team.size == 1:
        return network
    everywhere = team.gather([_checksum(parameter.detach()) for parameter in network.parameters()])
    for place, found in enumerate(everywhere):
        if found != everywhere[0]:
            raise ValueError(
                f"Processes 0 and {place} calibrate different networks: their parameters differ. Load the same checkpoint "
                "in all processes."
            )
    of_the_first = team.gather(
        {name: buffer.cpu() for name, buffer in network.named_buffers()} if not team.place else None
    )
    for name, buffer in network.named_buffers():
        buffer.copy_(of_the_first[0][name])
    return network


def _on(device: torch.device, network: RecordedNetwork) -> RecordedNetwork:
    """Move the copy and give it buffers of its own, for modules that write into them even in evaluation."""
    for module in network.modules():
        module._buffers.update({key: None if b is None else b.clone() for key, b in module._buffers.items()})
    return network.to(device)


def _run(network: RecordedNetwork, inputs: Any) -> tuple[Tensor, dict[str, list[Tensor]]]:
    with torch.inference_mode():
        positional, named = call_arguments(copy_inputs(inputs))
        return network(*positional, **named)


def read_rows(network: RecordedNetwork, inputs: Any, batch: Batch, role: str) -> dict[str, Tensor]:
    """Of one batch the features of every block, the logits and the labels, without rows whose label is `IGNORED`."""
    logits, recorded = _run(network, inputs)
    features = {name: _only_output(name, recorded.get(name, [])) for name in network.blocks}
    for name, values in {"logits": logits, **features}.items():
        if len(values) != batch.rows:
            what = "logits" if values is logits else f'features of block "{name}"'
            raise ValueError(
                f"A {role} batch has {batch.rows} labels, but the network gave {len(values)} rows of {what}."
            )
    kept = batch.labels != IGNORED
    try:
        labels = check_labels(batch.labels[kept], int(kept.sum()), logits.shape[1])
    except ValueError as fault:
        raise ValueError(f"In a {role} batch: {fault}") from fault
    rows = {**features, HEAD: logits.clone()}  # a network may reuse the memory of its logits
    if len(labels) < batch.rows:
        rows = {name: values[kept] for name, values in rows.items()}
    labels = labels.to(logits.device, non_blocking=logits.device.type != "cpu")
    return {**{name: values.float() for name, values in rows.items()}, LABELS: labels}


def count_parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def _checksum(values: Tensor) -> int:
    """The sum of the bytes: exact, hence the same on every device."""
    return int(values.contiguous().flatten().view(torch.uint8).sum(dtype=torch.int64))
