"""Read a loader and record the network: loader -> batches -> outputs of the blocks -> pooled rows -> `Features`.

`extract_draws` is all of it; the other functions say with which arguments, or are its steps.
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
        return extract_draws(Ensemble((model,)), loader, reading, run, None if like is None else [like])[0]


def extract_draws(
    ensemble: Ensemble, loader: Iterable[Any], reading: Reading, run: Run, like: Sequence[Features] | None = None
) -> list[Features]:
    """As `extract`, for all draws in one reading, so that their rows align: the networks of an ensemble, or one network several
    times with dropout on. `like` has earlier features of each network.

    Views and dropout are drawn for each batch by its number: they do not depend on what was drawn before.
    """
    models, role, processes = ensemble.per_draw(ensemble.networks), reading.role, run.processes
    asked = (
        [reading.blocks for _ in ensemble.networks] if like is None else [list(features.poolings) for features in like]
    )
    pairs = zip(ensemble.networks, asked, strict=True)
    names = [choose_blocks(network, blocks, reading.settings.last_block) for network, blocks in pairs]
    if processes.world_size > 1:
        refuse_padding(loader, role)
    with seeded_globally(run.seed, run.device):
        view = reading.choose_view(loader, run.device)
    passes, batches, read = reading.count_passes(view), count_batches(loader), 0
    generator = torch.Generator(run.device)
    networks: list[RecordedNetwork] = []
    poolings: list[dict[str, Pooling]] = []
    digests: list[Tensor] = []
    with ExitStack() as contexts:
        stores: list[RowStore] = []
        for number_of_pass in range(passes):
            change = None if reading.copies_for and number_of_pass == 0 else view
            order = mix_seeds(run.seed, 0 if reading.copies_for else number_of_pass)
            contexts.enter_context(seeded_globally(order, run.device))
            for number, (inputs, labels) in enumerate(read_batches(loader, run.device, role)):
                if not networks:
                    networks, poolings = _record_networks(ensemble, names, inputs, len(labels), reading, run, like)
                    opened = (RowStore(run.memory // len(models), blocks if run.half else ()) for blocks in poolings)
                    stores = [contexts.enter_context(store) for store in opened]
                if number_of_pass == 0:
                    digests.append(digest_rows(inputs, len(labels)))
                seed = mix_seeds(run.seed, number_of_pass, number * processes.world_size + processes.rank + 1)
                with seeded_globally(seed, run.device):
                    if change is not None:
                        inputs = change(copy_inputs(inputs), generator.manual_seed(seed))
                    for network, store in zip(networks, stores, strict=True):
                        store.append(_read_rows(network, inputs, labels, reading))
                read += 1
                run.report(f"reading {role}", read, batches and batches * passes)
            for store in stores:
                store.halve()
        inputs_read = torch.cat(digests)
        refuse_shared_rows(inputs_read, role, processes)
        draws = [
            collect_features(store, pooling, count_parameters(model), passes, inputs_read, processes)
            for store, pooling, model in zip(stores, poolings, models, strict=True)
        ]
    for features in draws:
        check_features(features, role)
    return draws


def extract_training(
    ensemble: Ensemble, loader: Iterable[Any] | None, reading: Reading, run: Run, holdouts: Sequence[Features]
) -> list[Features]:
    """The training features of each network, blocks and poolings as in its hold-out; where there is no block to probe, the
    loader is not read and the hold-out's features are returned."""
    if loader is None or not any(features.blocks for features in holdouts):
        return list(holdouts)
    trainings = extract_draws(replace(ensemble, samples=1), loader, reading, run, holdouts)
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
) -> tuple[list[RecordedNetwork], list[dict[str, Pooling]]]:
    """The recorded network of every draw, and how its blocks are pooled: as `like` says, or as rank 0 sees it in the first
    batch, of `rows` rows. The samples of MC dropout share one."""
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
    networks = [
        prepare_recorded(network, blocks, ensemble.dropout, run)
        for network, blocks in zip(ensemble.networks, poolings, strict=True)
    ]
    return ensemble.per_draw(networks), ensemble.per_draw(poolings)


def _read_rows(network: RecordedNetwork, inputs: Any, labels: Tensor, reading: Reading) -> dict[str, Tensor]:
    """The features of every block, the logits and the labels of one batch, without rows whose label is `IGNORED`."""
    logits, recorded = call_recorded(network, inputs)
    rows = {HEAD: logits, **{name: only_output(recorded, name) for name in network.blocks}}
    for name, values in rows.items():
        if len(values) != len(labels):
            what = "logits" if name == HEAD else f'features of block "{name}"'
            raise ValueError(
                f"A {reading.role} batch has {len(labels)} labels, but the network gave {len(values)} rows of {what}."
            )
    kept = labels != IGNORED
    labels = check_labels(labels[kept], int(kept.sum()), logits.shape[1], name=f"The {reading.role} labels")
    # copies, because a network may reuse the memory of its outputs
    rows = {name: values[kept].float() for name, values in rows.items()}
    if not reading.keep_logits:
        rows[HEAD] = logits.new_empty(0, logits.shape[1]).float()
    return {**rows, LABELS: labels.to(logits.device, non_blocking=logits.device.type != "cpu")}
