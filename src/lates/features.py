"""One reading of a loader -> what the probes and the stack learn from: features per block, logits, labels."""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from lates.batches import (
    IGNORED,
    Batch,
    call_arguments,
    copy_inputs,
    count_batches,
    first_rows,
    read_batches,
    refuse_one_shot,
)
from lates.blocks import HEAD, choose_blocks, layer_behind, named_modules, unwrap
from lates.checks import check_labels, check_logits, level_of_the_caller
from lates.pooling import Pooling, find_tensor, has_class_token, read_pooling, tensors_in
from lates.progress import Progress
from lates.rows import RowStore, default_memory
from lates.settings import DEFAULT, Settings
from lates.taps import RecordedNetwork, Reduce, device_of, random_state_kept, switch_to_evaluation
from lates.views import Views, choose_view

LABELS = ".labels"
"""Their name in the store, beside the blocks and the head: no module's name begins with a dot."""


@dataclass(frozen=True)
class Features:
    """What one reading of a loader gave, rows aligned; the tensors may be views of a memory-mapped temporary file.

    blocks     name -> features [n, width], float32
    logits     [n, classes], float32, of the network itself
    labels     [n], int64
    poolings   name -> how the features were made from the block's output
    centre, deviation   name -> [width], float64, over these rows; the deviation of a constant feature is 1
    parameters of the network, the measure of the budget
    mapped     whether the tensors lie in a temporary file rather than in memory
    passes     how often the loader was read: each input has so many rows
    """

    blocks: dict[str, Tensor]
    logits: Tensor
    labels: Tensor
    poolings: dict[str, Pooling]
    centre: dict[str, Tensor]
    deviation: dict[str, Tensor]
    parameters: int
    mapped: bool
    passes: int = 1

    @property
    def rows(self) -> int:
        return len(self.labels)

    @property
    def classes(self) -> int:
        return self.logits.shape[1]


def extract(
    model: nn.Module,
    loader: Iterable[Any],
    blocks: Sequence[str] | int | None = None,
    *,
    like: Features | None = None,
    views: Views = None,
    passes: int | None = 1,
    budget: float | None = None,
    memory: int | None = None,
    seed: int = 0,
    device: torch.device | str | None = None,
    progress: Progress | None = None,
    settings: Settings = DEFAULT,
    role: str = "loader",
) -> Features:
    """Read `loader` once per pass and record what each block of `model` puts out, pooled to one row per input.

    `like` takes blocks and poolings from earlier features, so that a hold-out matches its training split. With `views`
    each pass reads freshly drawn views; built-in views are for images. `passes=None` means as many as the settings say, and
    one without views, for a second would see the same; so does "auto" where it finds no images. `budget` matters to flat
    pooling only, whose width it gives. Above `memory` bytes (default: a share of what is free) features go to memory-mapped
    temporary files. The model is left as it was: flags, buffers, gradients, hooks; and so is the random state.
    """
    return extract_samples(
        [model], loader, blocks, like=like and [like], views=views, passes=passes, budget=budget, memory=memory, seed=seed,
        device=device, progress=progress, settings=settings, role=role,
    )[0]  # fmt: skip


def extract_samples(
    models: Sequence[nn.Module],
    loader: Iterable[Any],
    blocks: Sequence[str] | int | None = None,
    *,
    like: Sequence[Features] | None = None,
    dropout: bool = False,
    views: Views = None,
    passes: int | None = 1,
    budget: float | None = None,
    memory: int | None = None,
    seed: int = 0,
    device: torch.device | str | None = None,
    progress: Progress | None = None,
    settings: Settings = DEFAULT,
    role: str = "loader",
) -> list[Features]:
    """As `extract`, for several models in one reading, so that their rows align: an ensemble, or one model given several
    times with `dropout` on, each time another draw."""
    _check_arguments(models, loader, blocks, like, passes, role)
    target = torch.device(device) if device is not None else device_of(models[0])
    limit = (memory if memory is not None else default_memory(target)) // len(models)
    poolings = [features.poolings for features in like] if like else []
    networks: list[RecordedNetwork] = []
    with torch.inference_mode(False), random_state_kept(target, seed), ExitStack() as stack:
        stores = [stack.enter_context(RowStore(limit)) for _ in models]
        view = choose_view(views, loader, target, role, settings)
        if view is None and (passes is None or views == "auto"):
            passes = 1
        passes = settings.passes if passes is None else passes
        length, done = count_batches(loader), 0
        for _ in range(passes):
            for batch in read_batches(loader, target, role):
                if not poolings:
                    poolings = [_survey(model, batch, blocks, budget, dropout, target, settings) for model in models]
                if not networks:
                    networks = _record_all(models, poolings, dropout, target)
                inputs = batch.inputs if view is None else view(copy_inputs(batch.inputs))
                for network, store in zip(networks, stores, strict=True):
                    store.append(_read_rows(network, inputs, batch, role))
                done += 1
                if progress is not None:
                    progress(f"reading {role}", done, length and length * passes)
        parameters = [_parameters(model) for model in models]
        return [_finish(*parts, passes) for parts in zip(stores, poolings, parameters, strict=True)]


def _check_arguments(
    models: Sequence[nn.Module],
    loader: Iterable[Any],
    blocks: Sequence[str] | int | None,
    like: Sequence[Features] | None,
    passes: int | None,
    role: str,
) -> None:
    refuse_one_shot(loader, role)
    if passes is not None and passes < 1:
        raise ValueError(f"passes={passes}: expected at least 1.")
    if like is None:
        for model in models:
            choose_blocks(model, blocks)
    elif blocks is not None:
        raise ValueError("Both blocks= and like= were given; like= brings the blocks of earlier features. Pass one.")


def _finish(store: RowStore, poolings: dict[str, Pooling], parameters: int, passes: int) -> Features:
    if not store.rows:
        raise ValueError(f"No row is left to learn from: every label is {IGNORED}, which marks rows to ignore.")
    for name in poolings:
        if not store.moments[name].finite:
            raise ValueError(f'Block "{name}" puts out NaN or infinite values. Leave it out, or look for overflow.')
    mapped, tensors = store.spilled, store.collect()
    return Features(
        {name: tensors[name] for name in poolings},
        check_logits(tensors[HEAD], "the network's logits"),
        tensors[LABELS],
        poolings,
        {name: store.moments[name].centre for name in poolings},
        {name: store.moments[name].deviation for name in poolings},
        parameters,
        mapped,
        passes,
    )


def _survey(
    model: nn.Module,
    batch: Batch,
    blocks: Sequence[str] | int | None,
    budget: float | None,
    dropout: bool,
    device: torch.device,
    settings: Settings,
) -> dict[str, Pooling]:
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
    logits, _ = _run(network, batch.inputs)
    if any(_is_ambiguous(seen, batch.rows) for seen in outputs.values()):
        batch = Batch(first_rows(batch.inputs, batch.rows, batch.rows - 1), batch.labels[:-1])
        for seen in outputs.values():
            seen.clear()
        logits, _ = _run(network, batch.inputs)
    width = None
    if settings.pooling == "flat" and budget is not None and names:
        width = int(budget * _parameters(model) / len(names) / logits.shape[1]) - 1
        if width < 1:
            _warn_no_block(f"budget={budget} leaves not one feature per block.")
            return {}
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
    if not poolings and not isinstance(blocks, Sequence) and blocks != 0:
        _warn_no_block(faults[0] if faults else "The network has no layer but its head.")
    return poolings


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
        raise ValueError(f'Block "{name}" {times} in a forward pass; expected exactly once. Leave it out of blocks=.')
    return outputs[0]


def _warn_no_block(reason: str) -> None:
    text = f"No block is left to probe, so this is temperature scaling. {reason}"
    warnings.warn(text, UserWarning, stacklevel=level_of_the_caller())


def _record_all(
    models: Sequence[nn.Module], poolings: Sequence[Mapping[str, Pooling]], dropout: bool, device: torch.device
) -> list[RecordedNetwork]:
    """One recorded network per model; a model given several times is copied once."""
    made: dict[int, RecordedNetwork] = {}
    for model, pooling in zip(models, poolings, strict=True):
        if id(model) not in made:
            made[id(model)] = _on(device, switch_to_evaluation(RecordedNetwork(model, pooling), dropout))
    return [made[id(model)] for model in models]


def _on(device: torch.device, network: RecordedNetwork) -> RecordedNetwork:
    """Move the copy and give it buffers of its own, for modules that write into them even in evaluation."""
    for module in network.modules():
        module._buffers.update({key: None if b is None else b.clone() for key, b in module._buffers.items()})
    return network.to(device)


def _run(network: RecordedNetwork, inputs: Any) -> tuple[Tensor, dict[str, list[Tensor]]]:
    with torch.inference_mode():
        positional, named = call_arguments(copy_inputs(inputs))
        return network(*positional, **named)


def _read_rows(network: RecordedNetwork, inputs: Any, batch: Batch, role: str) -> dict[str, Tensor]:
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
    rows = {name: values[kept].float() for name, values in features.items()}
    return {**rows, HEAD: logits[kept].float(), LABELS: labels}


def _parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())
