"""Read a loader and record the network: loader -> `Features`."""

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from lates.network.batches import IGNORED, Batch, check_loader, copy_inputs, count_batches, read_batches
from lates.network.blocks import HEAD, choose_blocks
from lates.network.features import LABELS, Collected, Features
from lates.network.inputs import check_call
from lates.network.overlap import digest_rows, warn_of_overlap
from lates.network.recorder import RecordedNetwork, call_recorded, device_of, prepare_recorded
from lates.network.sampling import Draws
from lates.network.shards import refuse_padding, refuse_shared_batch
from lates.network.survey import Survey, count_parameters, only_output, survey_network, warn_of_other_logits
from lates.network.tokens import Tokenizer
from lates.network.views import Views, choose_view
from lates.runtime import (
    Processes,
    Progress,
    RowStore,
    Run,
    check_integer,
    check_labels,
    check_share,
    mix_seeds,
    seeded_globally,
)
from lates.settings import DEFAULT, Settings


@dataclass(frozen=True)
class Reading:
    """How a loader is read.

    role         its name in errors and progress: "train", "holdout"
    views        what changes the inputs in each pass
    passes       None: as many as the settings say, one without views; with `plain_first` one plain and one changed
    plain_first  the first pass reads the inputs as they are, and a loader that shuffles does so alike in all passes
    tokenizer    of text, for views="auto"
    keep_logits  probes need no logits of the training split, which with many classes would be larger than all features
    """

    role: str = "loader"
    views: Views = None
    passes: int | None = 1
    plain_first: bool = False
    tokenizer: Tokenizer | None = None
    keep_logits: bool = True


def extract(
    model: nn.Module,
    loader: Iterable[Any],
    blocks: Sequence[str] | int | None = None,
    *,
    like: Features | None = None,
    views: Views = None,
    passes: int | None = 1,
    budget: float | str | None = None,
    memory: int | None = None,
    seed: int = 0,
    device: torch.device | str | None = None,
    progress: Progress | None = None,
    settings: Settings = DEFAULT,
    role: str = "loader",
) -> Features:
    """Read `loader` once per pass and record what each block of `model` puts out, pooled to one row per input.

    `like` takes blocks and poolings from earlier features, so that a training split matches its hold-out. With `views` each
    pass reads freshly drawn views. `passes=None` means as many as the settings say, and one without views, because a second
    would see the same; so does "auto" where it finds no images. `budget` matters where a pooling's width depends on it, "flat"
    and "spatial". Above `memory` bytes (default: a share of what is free) features go to memory-mapped temporary files. The
    model is left as it was: flags, buffers, gradients, hooks; and so is the random state.
    """
    reading, budget = Reading(role, views, passes), None if budget is None else check_share(budget, "budget")
    with Run.start(device or device_of(model), seed=seed, memory=memory, progress=progress) as run:
        same = None if like is None else [like]
        return extract_draws(Draws((model,)), loader, reading, run, settings, blocks, like=same, budget=budget)[0]


def extract_draws(
    draws: Draws,
    loader: Iterable[Any],
    reading: Reading,
    run: Run,
    settings: Settings,
    blocks: Sequence[str] | int | None = None,
    *,
    like: Sequence[Features] | None = None,
    budget: float | None = None,
) -> list[Features]:
    """As `extract`, for all draws in one reading, so that their rows align: the networks of an ensemble, or one network several
    times with dropout on.

    Views and dropout are drawn for each batch by its number: they do not depend on what was drawn before.
    """
    models, role, processes = draws.models, reading.role, run.processes
    _check_arguments(models, loader, blocks, like, role)
    passes = None if reading.passes is None else check_integer(reading.passes, "passes", least=1)
    if processes.world_size > 1:
        refuse_padding(loader, role)
    surveys = [Survey(features.poolings) for features in like] if like else []
    networks: list[RecordedNetwork] = []
    digests: list[Tensor] = []
    read = 0
    with ExitStack() as contexts:
        limit = run.memory // len(models)
        collected = [Collected(contexts.enter_context(RowStore(limit)), reading.keep_logits, processes) for _ in models]
        with seeded_globally(run.seed, run.device):
            view = choose_view(reading.views, loader, run.device, role, settings, reading.tokenizer)
        if view is None and (passes is None or reading.views == "auto"):
            passes = 1
        if passes is None:
            passes = 2 if reading.plain_first else settings.passes
        batches, generator = count_batches(loader), torch.Generator(run.device)
        for number_of_pass in range(passes):
            change = None if reading.plain_first and number_of_pass == 0 else view
            contexts.enter_context(
                seeded_globally(mix_seeds(run.seed, 0 if reading.plain_first else number_of_pass), run.device)
            )
            for number, batch in enumerate(read_batches(loader, run.device, role)):
                if not networks:
                    for model in draws.networks:
                        check_call(model, batch.inputs, role)
                    surveys = surveys or _survey_all(draws, batch, blocks, budget, run, settings)
                    networks = _recorded_networks(draws, surveys, batch, run, role)
                if number_of_pass == 0:
                    digests.append(digest_rows(batch.inputs, batch.rows))
                drawn = number * processes.world_size + processes.rank + 1
                seed = mix_seeds(run.seed, number_of_pass, drawn)
                with seeded_globally(seed, run.device):
                    inputs = (
                        batch.inputs
                        if change is None
                        else change(copy_inputs(batch.inputs), generator.manual_seed(seed))
                    )
                    rows_of_draws = [_read_rows(network, inputs, batch, role) for network in networks]
                for of_draw, rows in zip(collected, rows_of_draws, strict=True):
                    of_draw.append(rows)
                read += 1
                run.report(f"reading {role}", read, batches and batches * passes)
        features = [
            of_draw.as_features(survey.poolings, count_parameters(model), passes, torch.cat(digests), role)
            for of_draw, survey, model in zip(collected, surveys, models, strict=True)
        ]
    warn_of_other_logits(surveys[0], features[0].labels, features[0].classes)
    return features


def extract_holdout(
    draws: Draws,
    loader: Iterable[Any],
    views: Views,
    blocks: Sequence[str] | int | None,
    budget: float | None,
    settings: Settings,
    run: Run,
    tokenizer: Tokenizer | None,
) -> list[Features]:
    """The hold-out's features of every draw: its rows as they are and, with views, one changed copy of each."""
    reading = Reading("holdout", views, passes=None, plain_first=True, tokenizer=tokenizer)
    return extract_draws(draws, loader, reading, run.with_memory(1 / 4), settings, blocks, budget=budget)


def extract_training(
    draws: Draws,
    loader: Iterable[Any] | None,
    views: Views,
    passes: int | None,
    holdouts: Sequence[Features],
    settings: Settings,
    run: Run,
    tokenizer: Tokenizer | None,
) -> list[Features]:
    """The training features of each network, blocks and poolings as in its hold-out; where there is no block to probe, the
    loader is not read and the hold-out stands in."""
    if loader is None or not any(rows.blocks for rows in holdouts):
        return list(holdouts)
    reading = Reading("train", views, passes, tokenizer=tokenizer, keep_logits=False)
    once = replace(draws, samples=1)
    trainings = extract_draws(once, loader, reading, run.with_memory(1 / 2), settings, like=holdouts)
    warn_of_overlap(trainings[0], holdouts[0])
    return trainings


def _check_arguments(
    models: Sequence[nn.Module],
    loader: Iterable[Any],
    blocks: Sequence[str] | int | None,
    like: Sequence[Features] | None,
    role: str,
) -> None:
    check_loader(loader, role)
    if like is None:
        for model in models:
            choose_blocks(model, blocks)
    elif blocks is not None:
        raise ValueError("Both blocks= and like= were given; like= brings the blocks of earlier features. Pass one.")


def _survey_all(
    draws: Draws,
    batch: Batch,
    blocks: Sequence[str] | int | None,
    budget: float | None,
    run: Run,
    settings: Settings,
) -> list[Survey]:
    """One survey per draw, rank 0's in all processes."""
    surveys = [
        survey_network(network, batch, blocks, budget, draws.dropout, run.device, settings)
        for network in draws.networks
    ]
    return run.processes.gather(draws.repeat(surveys))[0]


def _recorded_networks(
    draws: Draws, surveys: Sequence[Survey], batch: Batch, run: Run, role: str
) -> list[RecordedNetwork]:
    """One recorded network per draw; the samples of MC dropout share one."""
    if run.processes.world_size > 1:
        refuse_shared_batch(batch, role, run.processes)
    networks = [
        _synchronised(prepare_recorded(model, survey.poolings, draws.dropout, run.device), run.processes)
        for model, survey in zip(draws.networks, surveys[:: draws.samples], strict=True)
    ]
    return draws.repeat(networks)


def _synchronised(network: RecordedNetwork, processes: Processes) -> RecordedNetwork:
    """With rank 0's buffers: data-parallel training leaves every process with its own batch statistics. Parameters, however,
    must be the same."""
    if processes.world_size == 1:
        return network
    checksums = processes.gather([_checksum(parameter.detach()) for parameter in network.parameters()])
    for rank, of_rank in enumerate(checksums):
        if of_rank != checksums[0]:
            raise ValueError(
                f"Processes 0 and {rank} calibrate different networks: their parameters differ. Load the same checkpoint "
                "in all processes."
            )
    buffers = processes.gather({name: buffer.cpu() for name, buffer in network.named_buffers()})[0]
    for name, buffer in network.named_buffers():
        buffer.copy_(buffers[name])
    return network


def _checksum(values: Tensor) -> int:
    """The sum of the bytes: exact, hence the same on every device."""
    return int(values.contiguous().flatten().view(torch.uint8).sum(dtype=torch.int64))


def _read_rows(network: RecordedNetwork, inputs: Any, batch: Batch, role: str) -> dict[str, Tensor]:
    """The features of every block, the logits and the labels of one batch, without rows whose label is `IGNORED`."""
    logits, recorded = call_recorded(network, inputs)
    features = {name: only_output(name, recorded.get(name, [])) for name in network.blocks}
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
