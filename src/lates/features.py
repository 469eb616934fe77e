"""One reading of a loader -> what the probes and the stack learn from: features per block, logits, labels."""

import os
import random
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lates.batches import IGNORED, Batch, call_arguments, read_batches, refuse_one_shot
from lates.blocks import choose_blocks, named_modules, unwrap
from lates.checks import check_labels, check_logits
from lates.pooling import Pooling, has_class_token, read_pooling
from lates.progress import Progress
from lates.settings import DEFAULT, Settings
from lates.taps import RecordedNetwork, switch_to_evaluation
from lates.views import NAMES, View, Views, find_images, make_view, measure_channels

HEAD = "head"
MEASURED_IMAGES = 1024
"""From so many images the channel deviation is taken, in whose units views are drawn."""


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
    """

    blocks: dict[str, Tensor]
    logits: Tensor
    labels: Tensor
    poolings: dict[str, Pooling]
    centre: dict[str, Tensor]
    deviation: dict[str, Tensor]
    parameters: int
    mapped: bool

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
    passes: int = 1,
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
    each pass reads freshly drawn views; built-in views are for images. `budget` matters to flat pooling only, whose width
    it gives. Above `memory` bytes (default: a share of what is free) features go to a memory-mapped temporary file.
    The model is left as it was: flags, buffers, gradients, hooks, random state.
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
    passes: int = 1,
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
    refuse_one_shot(loader, role)
    target = torch.device(device) if device is not None else device_of(models[0])
    limit = (memory if memory is not None else default_memory(target)) // len(models)
    stores = [RowStore(limit) for _ in models]
    networks: list[RecordedNetwork] = []
    poolings: list[dict[str, Pooling]] = [features.poolings for features in like] if like else []
    total = len(loader) * passes if hasattr(loader, "__len__") else None  # pyright: ignore[reportArgumentType]
    done = 0
    with random_state_kept(target):
        torch.manual_seed(seed)
        view = choose_view(views, loader, target, role, settings)
        for _ in range(passes):
            for batch in read_batches(loader, target, role):
                if not poolings:
                    poolings = [_survey(m, batch, blocks, budget, dropout, target, settings) for m in models]
                if not networks:
                    networks = _recorded(models, poolings, dropout, target)
                inputs = batch.inputs if view is None else view(batch.inputs)
                for network, store in zip(networks, stores, strict=True):
                    store.append(_record(network, inputs, batch, role))
                done += 1
                if progress is not None:
                    progress(f"reading {role}", done, total)
    return [store.finish(pooling, _parameters(m)) for store, pooling, m in zip(stores, poolings, models, strict=True)]


def choose_view(
    views: Views, loader: Iterable[Any], device: torch.device, role: str, settings: Settings
) -> View | None:
    """The function that draws views: None, the user's, or a built-in one in units of the loader's channel deviation."""
    if views is None or callable(views):
        return views
    if views not in (*NAMES, "auto"):
        raise ValueError(
            f'Unknown views="{views}". Known: None, {", ".join(NAMES)}, auto, or a function inputs -> inputs.'
        )
    name = settings.views if views == "auto" else views
    images: list[Tensor] = []
    for batch in read_batches(loader, device, role):
        found = find_images(batch.inputs)
        if found is None and views == "auto":
            return None
        if found is None:
            raise ValueError(
                f'views="{views}" needs floating-point images [n, channels, h, w] of at most four channels; the {role} '
                f"inputs are {_describe(batch.inputs)}. Pass views=None or a function inputs -> inputs."
            )
        images.append(found)
        if sum(map(len, images)) >= MEASURED_IMAGES or len({image.shape[1:] for image in images}) > 1:
            break
    same = [image for image in images if image.shape[1:] == images[0].shape[1:]]
    return None if name is None else make_view(name, measure_channels(torch.cat(same)))


def device_of(model: nn.Module) -> torch.device:
    return next((tensor.device for tensor in [*model.parameters(), *model.buffers()]), torch.device("cpu"))


def default_memory(device: torch.device) -> int:
    """Half of what is free on a CUDA device; a quarter of the machine's memory elsewhere."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0] // 2
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4


@contextmanager
def random_state_kept(device: torch.device) -> Iterator[None]:
    """Whatever is drawn inside, Python's, numpy's and torch's generators are afterwards as before."""
    python_state, numpy_state = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            yield
    finally:
        random.setstate(python_state)
        np.random.set_state(numpy_state)


class RowStore:
    """Rows of several tensors that grow batch by batch, kept in memory up to `limit` bytes and in unnamed files beyond."""

    def __init__(self, limit: int) -> None:
        self.limit, self.bytes, self.rows = limit, 0, 0
        self.chunks: dict[str, list[Tensor]] = {}
        self.files: dict[str, Any] = {}
        self.moments: dict[str, Moments] = {}

    def append(self, rows: dict[str, Tensor]) -> None:
        for name, values in rows.items():
            self.chunks.setdefault(name, []).append(values)
            self.bytes += values.numel() * values.element_size()
            if values.is_floating_point():
                self.moments.setdefault(name, Moments(values)).add(values)
        self.rows += len(next(iter(rows.values())))
        if self.bytes > self.limit:
            self._spill()

    def finish(self, poolings: dict[str, Pooling], parameters: int) -> Features:
        if not self.rows:
            raise ValueError(f"No row is left to learn from: every label is {IGNORED}, which marks rows to ignore.")
        mapped = bool(self.files)
        if mapped:
            self._spill()
        tensors = {name: self._collect(name) for name in list(self.chunks)}
        for name in poolings:
            if not self.moments[name].finite:
                raise ValueError(f'Block "{name}" puts out NaN or infinite values. Leave it out, or look for overflow.')
        return Features(
            {name: tensors[name] for name in poolings},
            check_logits(tensors[HEAD], "the network's logits"),
            tensors["labels"],
            poolings,
            {name: self.moments[name].centre for name in poolings},
            {name: self.moments[name].deviation for name in poolings},
            parameters,
            mapped,
        )

    def _spill(self) -> None:
        for name, chunks in self.chunks.items():
            file = self.files.get(name) or self.files.setdefault(name, tempfile.TemporaryFile(prefix="lates-"))  # noqa: SIM115
            for chunk in chunks:
                file.write(chunk.cpu().numpy().tobytes())
            self.chunks[name] = [chunks[0][:0]]

    def _collect(self, name: str) -> Tensor:
        chunks = self.chunks.pop(name)
        if name not in self.files:
            return torch.cat(chunks)
        file = self.files.pop(name)
        file.flush()
        shape = (self.rows, *chunks[0].shape[1:])
        mapped = np.memmap(file, dtype=chunks[0].cpu().numpy().dtype, mode="r+", shape=shape)
        file.close()  # the map keeps the nameless file alive, and nothing remains once it is gone
        return torch.from_numpy(mapped)


class Moments:
    """Mean and deviation per column in float64, by sums around the first batch's mean, so that nothing cancels."""

    def __init__(self, first: Tensor) -> None:
        self.shift = first.double().mean(0) if len(first) else first.new_zeros(first.shape[1:], dtype=torch.float64)
        self.count, self.total, self.squares = 0, torch.zeros_like(self.shift), torch.zeros_like(self.shift)

    def add(self, values: Tensor) -> None:
        moved = values.double() - self.shift
        self.count += len(values)
        self.total += moved.sum(0)
        self.squares += moved.square().sum(0)

    @property
    def finite(self) -> bool:
        return bool(torch.isfinite(self.total).all())

    @property
    def centre(self) -> Tensor:
        return self.shift + self.total / self.count

    @property
    def deviation(self) -> Tensor:
        variance = (self.squares / self.count - (self.total / self.count).square()).clamp(min=0)
        scale = self.centre.square() + variance
        return torch.where(variance > 1e-12 * scale, variance.sqrt(), 1.0)


def _survey(
    model: nn.Module,
    batch: Batch,
    blocks: Sequence[str] | int | None,
    budget: float | None,
    dropout: bool,
    device: torch.device,
    settings: Settings,
) -> dict[str, Pooling]:
    """Which of the chosen blocks can be recorded, and how: found in one forward pass of the first batch."""
    names = choose_blocks(model, blocks)
    modules, class_token = named_modules(model), has_class_token(unwrap(model))
    readings: dict[str, list[Any]] = {name: [] for name in names}

    def look(name: str) -> Callable[[Any, Tensor | None], Tensor]:
        def reduce(output: Any, mask: Tensor | None) -> Tensor:
            readings[name].append(output)
            return torch.empty(0)

        return reduce

    network = switch_to_evaluation(RecordedNetwork(model, {name: look(name) for name in names}), dropout)
    positional, named = call_arguments(batch.inputs)
    with torch.inference_mode():
        logits, _ = _own(network, device)(*positional, **named)
    width = None
    if settings.pooling == "flat" and budget is not None and names:
        width = max(int(budget * _parameters(model) / len(names) / logits.shape[1]) - 1, 0)
    poolings: dict[str, Pooling] = {}
    skipped: dict[str, str] = {}
    for name, outputs in readings.items():
        if len(outputs) != 1:
            times = "is never called" if not outputs else f"runs {len(outputs)} times"
            skipped[name] = f'Block "{name}" {times} in a forward pass; expected exactly once.'
            continue
        if width == 0:
            skipped[name] = f"budget={budget} leaves not one feature per block."
            continue
        try:
            poolings[name] = read_pooling(name, modules[name], outputs[0], batch.rows, class_token, settings, width)
        except ValueError as unreadable:
            skipped[name] = str(unreadable)
    if skipped and width != 0 and isinstance(blocks, Sequence):
        raise ValueError(next(iter(skipped.values())))
    if names and not poolings:
        reason = next(iter(skipped.values()))
        warnings.warn(f"No block is left to probe, so this is temperature scaling. {reason}", UserWarning, stacklevel=4)
    return poolings


def _recorded(
    models: Sequence[nn.Module], poolings: Sequence[dict[str, Pooling]], dropout: bool, device: torch.device
) -> list[RecordedNetwork]:
    made: dict[int, RecordedNetwork] = {}
    for model, pooling in zip(models, poolings, strict=True):
        if id(model) not in made:
            made[id(model)] = _own(switch_to_evaluation(RecordedNetwork(model, pooling), dropout), device)
    return [made[id(model)] for model in models]


def _own(network: RecordedNetwork, device: torch.device) -> RecordedNetwork:
    """Move the copy and give it buffers of its own, for modules that write into them even in evaluation."""
    for module in network.modules():
        module._buffers.update({key: None if b is None else b.clone() for key, b in module._buffers.items()})
    return network.to(device)


def _record(network: RecordedNetwork, inputs: Any, batch: Batch, role: str) -> dict[str, Tensor]:
    positional, named = call_arguments(inputs)
    with torch.inference_mode():
        logits, features = network(*positional, **named)
        if len(logits) != batch.rows:
            raise ValueError(
                f"A {role} batch has {batch.rows} labels, but the network gave {len(logits)} rows of logits."
            )
        kept = batch.labels != IGNORED
        labels = check_labels(batch.labels[kept], int(kept.sum()), logits.shape[1])
        rows = {name: values[0][kept].float() for name, values in features.items()}
        return {**rows, HEAD: logits[kept].float(), "labels": labels}


def _parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def _describe(inputs: Any) -> str:
    if isinstance(inputs, Tensor):
        return f"a {inputs.dtype} tensor of shape {list(inputs.shape)}"
    return f"a {type(inputs).__name__}"
