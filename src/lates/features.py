"""One reading of a loader -> what the probes and the stack learn from: features per block, logits, labels."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lates.batches import IGNORED, check_loader, copy_inputs, read_batches
from lates.blocks import HEAD, choose_blocks
from lates.checks import check_finite, check_integer, check_logits
from lates.copies import originals_at_rest
from lates.memory import check_memory, default_memory
from lates.pooling import Pooling
from lates.progress import Progress
from lates.recording import LABELS, Survey, count_parameters, read_rows, record_all, survey, warn_of_other_logits
from lates.rows import Moments, RowStore
from lates.settings import DEFAULT, Settings
from lates.shares import Number, Share, Standing, beginning
from lates.taps import RecordedNetwork, choose_device, random_state_kept, set_random_state
from lates.team import ALONE, Team
from lates.views import Views, choose_view


@dataclass(frozen=True)
class Features:
    """What one reading of a loader gave, rows aligned; the tensors may be views of a memory-mapped temporary file.

    Where several processes read a loader together, the rows are this one's, and the moments those of all.

    blocks     name -> features [n, width], float32
    logits     [n, classes], float32, of the network itself; [0, classes] where they were not to be kept
    labels     [n], int64
    poolings   name -> how the features were made from the block's output
    centre, deviation   name -> [width], float64, over these rows; the deviation of a constant feature is 1
    parameters of the network, the measure of the budget
    mapped     whether the tensors lie in a temporary file rather than in memory
    passes     how often the loader was read: each input has so many rows
    standing   of these rows among those of all processes; None: these are all
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
    standing: Standing | None = None

    @property
    def rows(self) -> int:
        """Of this process."""
        return len(self.labels)

    @property
    def all_rows(self) -> int:
        """Of all processes."""
        return self.rows if self.standing is None else self.standing.total

    @property
    def places(self) -> Tensor:
        """Where each row stands among those of all processes: [n], int64, on the host."""
        return torch.arange(self.rows) if self.standing is None else self.standing.places

    @property
    def team(self) -> Team:
        return ALONE if self.standing is None else self.standing.team

    @property
    def held(self) -> int:
        """Bytes in memory."""
        return 0 if self.mapped else sum(values.nbytes for values in (*self.blocks.values(), self.logits, self.labels))

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
    keep_logits: bool = True,
    plain_first: bool = False,
    team: Team = ALONE,
) -> list[Features]:
    """As `extract`, for several models in one reading, so that their rows align: an ensemble, or one model given several
    times with `dropout` on, each time another draw.

    Views and dropout are drawn for each batch by its number, so that they are the same whoever of the `team` reads it.
    With `plain_first` the first pass reads the inputs as they are, and a loader that shuffles does so alike in all passes.
    Without `keep_logits` the features have none, [0, classes]: probes need no more of the training split, and with many
    classes its logits would be larger than all features.
    """
    _check_arguments(models, loader, blocks, like, role)
    seed = check_integer(seed, "seed")
    passes = None if passes is None else check_integer(passes, "passes", least=1)
    check_memory(memory)
    target = choose_device(device, models[0])
    limit = (memory if memory is not None else default_memory(target, team.neighbours())) // len(models)
    surveys = [Survey(features.poolings) for features in like] if like else []
    networks: list[RecordedNetwork] = []
    rows_of: dict[Number, int] = {}
    with torch.inference_mode(False), random_state_kept(target, seed), ExitStack() as stack:
        collected = [Collected(stack.enter_context(RowStore(limit)), keep_logits) for _ in models]
        share = Share(loader, team, role)
        view = choose_view(views, share.loader, target, role, settings)
        if view is None and (passes is None or views == "auto"):
            passes = 1
        passes = settings.passes if passes is None else passes
        for number_of_pass in range(passes):
            set_random_state(target, _mixed(seed, 0 if plain_first else number_of_pass))
            change = None if plain_first and number_of_pass == 0 else view
            for number, batch in share.read(target):
                if not surveys:
                    surveys = [survey(model, batch, blocks, budget, dropout, target, settings) for model in models]
                    surveys = team.gather(surveys)[0]
                if not networks:
                    networks = record_all(models, [found.poolings for found in surveys], dropout, target, team)
                    stack.enter_context(originals_at_rest({network.network for network in networks}))
                with random_state_kept(target, _mixed(seed, number_of_pass, number + 1)):
                    inputs = batch.inputs if change is None else change(copy_inputs(batch.inputs))
                    read = [read_rows(network, inputs, batch, role) for network in networks]
                for of_model, rows in zip(collected, read, strict=True):
                    of_model.append(rows if number >= 0 else {name: values[:0] for name, values in rows.items()})
                rows_of[number_of_pass, number] = len(read[0][LABELS]) if number >= 0 else 0
                if progress is not None:
                    progress(f"reading {role}", len(rows_of), share.batches and share.batches * passes)
        standing = None if team.size == 1 else Standing.of(rows_of, team)
        features = [
            of_model.as_features(found.poolings, count_parameters(model), passes, standing, role)
            for of_model, found, model in zip(collected, surveys, models, strict=True)
        ]
        warn_of_other_logits(surveys[0], features[0].labels, features[0].classes)
        return features


def check_beginning(
    models: Sequence[nn.Module], loader: Iterable[Any], *, dropout: bool, seed: int, device: torch.device, role: str
) -> None:
    """Read a first batch of `loader`, as fits will, where that leaves no trace: faults show before hours of other work."""
    first = beginning(loader)
    if first is None:
        return
    with torch.inference_mode(False), random_state_kept(device, seed):
        networks = record_all(models, [{} for _ in models], dropout, device, ALONE)
        with originals_at_rest({network.network for network in networks}), _uncompiled():
            for batch in read_batches(first, device, role):
                for network in networks:
                    logits = read_rows(network, batch.inputs, batch, role)[HEAD]
                    check_finite(logits, f"the network's logits of the {role} loader")


def _uncompiled() -> AbstractContextManager[Any]:
    """Inside, nothing is compiled: a graph made without recorders would be used again where they are.

    Without its compiler, whose import takes a second, torch has compiled nothing.
    """
    return torch.compiler.set_stance("force_eager") if "torch._dynamo" in sys.modules else nullcontext()


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


class Collected:
    """What was read of one model, batch by batch: the rows, in their store, and the moments of the features."""

    def __init__(self, store: RowStore, keep_logits: bool) -> None:
        self.store, self.keep_logits = store, keep_logits
        self.moments: dict[str, Moments] = {}
        self.no_logits: Tensor | None = None

    def append(self, rows: Mapping[str, Tensor]) -> None:
        for name in rows.keys() - {HEAD, LABELS}:
            if name not in self.moments:
                self.moments[name] = Moments(rows[name])
            self.moments[name].add(rows[name])
        self.no_logits = rows[HEAD][:0]
        self.store.append(rows if self.keep_logits else {name: rows[name] for name in rows if name != HEAD})

    def as_features(
        self, poolings: dict[str, Pooling], parameters: int, passes: int, standing: Standing | None, role: str
    ) -> Features:
        if not (self.store.rows if standing is None else standing.total):
            raise ValueError(f"No row is left to learn from: every label is {IGNORED}, which marks rows to ignore.")
        team = ALONE if standing is None else standing.team
        moments = {name: self.moments[name].over(team) for name in poolings}
        mapped, tensors = self.store.spilled, self.store.collect()
        for name in poolings:
            if not moments[name].finite:
                raise ValueError(_not_finite(name, tensors[name], passes, role))
        logits = tensors[HEAD] if self.keep_logits else self.no_logits
        assert logits is not None, "rows were read"
        return Features(
            {name: tensors[name] for name in poolings},
            check_logits(logits, f"the network's logits of the {role} loader", least_rows=0),
            tensors[LABELS],
            poolings,
            {name: moments[name].centre for name in poolings},
            {name: moments[name].deviation for name in poolings},
            parameters,
            mapped,
            passes,
            standing,
        )


def _not_finite(block: str, features: Tensor, passes: int, role: str) -> str:
    """What is wrong with a block, by its features [n, width], some of which are NaN or infinite."""
    faulty = features.isfinite().all(dim=1).logical_not().nonzero()[:, 0]
    where = f"rows of the {role} loader"
    if len(faulty):  # otherwise they are another process's
        first = int(faulty[0]) % (len(features) // passes)
        where = f"{len(faulty)} of {len(features)} {where}, the first of them row {first}"
    return (
        f'Block "{block}" puts out NaN or infinite values in {where}. Look for such values in that row\'s inputs, then for '
        "overflow in the network; or leave the block out of blocks=."
    )


def _mixed(*numbers: int) -> int:
    """One seed out of several numbers, each of which changes it beyond recognition."""
    entropy = [abs(number) for number in numbers]
    return int(np.random.SeedSequence(entropy).generate_state(1, np.uint64)[0]) >> 1
