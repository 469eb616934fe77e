"""Read a loader and record the network: loader -> batches -> outputs of the blocks -> pooled rows -> `Features`.

`extract_samples` is all of it; the other functions say with which arguments, or are its steps.
"""

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from lates.network.batches import IGNORED, check_call, copy_inputs, count_batches, read_batches
from lates.network.blocks import HEAD, choose_blocks
from lates.network.duplicates import digest_rows, warn_of_overlap
from lates.network.features import LABELS, Features, check_features, collect_features
from lates.network.pooling import Pooling
from lates.network.reading import Reading
from lates.network.recorder import RecordedNetwork, call_recorded, device_of, prepare_recorded
from lates.network.sampling import Ensemble
from lates.network.sharding import refuse_padding, refuse_shared_rows
from lates.network.survey import count_parameters, only_output, survey_network
from lates.network.views import Views
from lates.runtime import Progress, RowStore, Run, check_budget, check_labels, mix_seeds, seeded_globally
from lates.settings import DEFAULT, Settings

Sample = tuple[RecordedNetwork, dict[str, Pooling], RowStore]
"""A network recorded, how its blocks are pooled, and the rows read of it."""


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
    if like is not None and blocks is not None:
        raise ValueError("Both blocks= and like= were given; like= brings the blocks of earlier features. Pass one.")
    reading = Reading(role, blocks, views, passes, budget=check_budget(budget), settings=settings)
    with Run.start(device or device_of(model), seed=seed, memory=memory, progress=progress) as run:
        return extract_samples(Ensemble((model,)), loader, reading, run, None if like is None else [like])[0]


def extract_samples(
    ensemble: Ensemble, loader: Iterable[Any], reading: Reading, run: Run, like: Sequence[Features] | None = None
) -> list[Features]:
    """As `extract`, for every sample of a prediction in one reading, so that their rows align: each network of an ensemble, or
    one network several times with dropout on. `like` has earlier features of each network.

    Views and dropout are drawn for each batch by its number: they do not depend on what was drawn before.
    """
    asked = [reading.blocks] * len(ensemble.networks) if like is None else [list(features.poolings) for features in like]
    pairs = zip(ensemble.networks, asked, strict=True)
    names = [choose_blocks(network, blocks, reading.settings.last_block) for network, blocks in pairs]
    if run.processes.world_size > 1:
        refuse_padding(loader, reading.role)
    with seeded_globally(run.seed, run.device):
        view = reading.choose_view(loader, run.device)
    passes, batches, read = reading.count_passes(view), count_batches(loader), 0
    generator = torch.Generator(run.device)
    samples: list[Sample] = []
    digests: list[Tensor] = []
    with ExitStack() as contexts:
        for number_of_pass in range(passes):
            change = None if reading.copies_for and number_of_pass == 0 else view
            order = mix_seeds(run.seed, 0 if reading.copies_for else number_of_pass)
            contexts.enter_context(seeded_globally(order, run.device))
            for number, (inputs, labels) in enumerate(read_batches(loader, run.device, reading.role)):
                if not samples:
                    samples = _record_networks(ensemble, names, inputs, len(labels), reading, run, like)
                    for *_, store in samples:
                        contexts.enter_context(store)
                if number_of_pass == 0:
                    digests.append(digest_rows(inputs, len(labels)))
                seed = mix_seeds(run.seed, number_of_pass, number * run.processes.world_size + run.processes.rank + 1)
                with seeded_globally(seed, run.device):
                    if change is not None:
                        inputs = change(copy_inputs(inputs), generator.manual_seed(seed))
                    for network, _, store in samples:
                        store.append(_read_rows(network, inputs, labels, reading))
                read += 1
                run.report(f"reading {reading.role}", read, batches and batches * passes)
            for *_, store in samples:
                store.halve()
        inputs_read = torch.cat(digests)
        refuse_shared_rows(inputs_read, reading.role, run.processes)
        parts = (passes, inputs_read, run.processes)
        features = [
            collect_features(store, poolings, count_parameters(network), *parts) for network, poolings, store in samples
        ]
    for sample in features:
        check_features(sample, reading.role)
    return features


def extract_training(
    ensemble: Ensemble, loader: Iterable[Any] | None, reading: Reading, run: Run, holdouts: Sequence[Features]
) -> list[Features]:
    """The training features of each network, blocks and poolings as in its hold-out; where there is no block to probe, the
    loader is not read and the hold-out's features are returned."""
    if loader is None or not any(features.blocks for features in holdouts):
        return list(holdouts)
    trainings = extract_samples(replace(ensemble, samples=1), loader, reading, run, holdouts)
    warn_of_overlap(trainings[0], holdouts[0])
    return trainings


def _record_networks(
    ensemble: Ensemble,
    names: Sequence[Sequence[str]],
    inputs: Any,
    rows: int,
    reading: Reading,
    run: Run,
    like: Sequence[Features] | None,
) -> list[Sample]:
    """Every sample, pooled as `like` says, or as rank 0 sees it in the first batch, of `rows` rows. Those of MC dropout share a
    network."""
    for network in ensemble.networks:
        check_call(network, inputs, reading.role)
    if like is not None:
        poolings = [features.poolings for features in like]
    else:
        pairs = zip(ensemble.networks, names, strict=True)
        surveys = [survey_network(*pair, inputs, rows, reading, ensemble.dropout, run) for pair in pairs]
        poolings = run.processes.gather(surveys)[0]
    if any(poolings):
        reading.check_train_views(inputs)
    pairs = zip(ensemble.networks, poolings, strict=True)
    recorded = [(prepare_recorded(network, blocks, ensemble.dropout, run), blocks) for network, blocks in pairs]
    samples = ensemble.per_sample(recorded)
    return [(*sample, RowStore(run.memory // len(samples), sample[1] if run.float16 else ())) for sample in samples]


def _read_rows(network: RecordedNetwork, inputs: Any, labels: Tensor, reading: Reading) -> dict[str, Tensor]:
    """The features of every block, the logits and the labels of one batch, without rows whose label is `IGNORED`."""
    logits, recorded = call_recorded(network, inputs)
    tensors = {HEAD: logits, **{name: only_output(recorded, name) for name in network.blocks}}
    for name, values in tensors.items():
        if len(values) != len(labels):
            what = "logits" if name == HEAD else f'features of block "{name}"'
            raise ValueError(
                f"A {reading.role} batch has {len(labels)} labels, but the network gave {len(values)} rows of {what}."
            )
    kept = labels != IGNORED
    labels = check_labels(labels[kept], int(kept.sum()), logits.shape[1], name=f"The {reading.role} labels")
    # copies, because a network may reuse the memory of its outputs
    tensors = {name: values[kept].float() for name, values in tensors.items()}
    if not reading.keep_logits:
        tensors[HEAD] = tensors[HEAD].new_empty(0, logits.shape[1])
    return {**tensors, LABELS: labels.to(logits.device, non_blocking=logits.device.type != "cpu")}
