"""Do the unfinished cells of a recipe: train, evaluate, write; skip what is finished or claimed by another runner.

Everything lies in files, so a runner may be killed at any moment and any number of them may share the folders. A network
in `runs/<training>` goes on from its checkpoint; results appear whole or not at all; whoever holds the claim on
`runs/<training>` alone trains and evaluates it.
"""

import json
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import safetensors
import torch

from experiments.checkpoints import Progress, RunFolder
from experiments.claims import claimed, read_claim
from experiments.data import (
    IMAGENET,
    split_indices,
)
from experiments.evaluate import CellData, evaluate_cell
from experiments.faults import FAULTS, explain, tracebacks_wanted
from experiments.material import OutOfTimeError
from experiments.measuring import measuring_pool
from experiments.networks import build_network
from experiments.provenance import further_versions, recipe_of, refuse_other_recipe
from experiments.recipes import Experiment
from experiments.results import (
    Cell,
    describe_differences,
    is_finished,
    write_results,
)
from experiments.shelf import Shelf, rehearse_corruptions
from experiments.training import check_device, train_network

FAILED = "failed"
STOPPING_SECONDS = 15.0
"""Before the deadline everything is told to stop. A checkpoint waits for the steps that the host has asked for in advance, at
most an epoch (WRN-28-10: 4 s), and is then written (290 MB); a stage of an evaluation takes up to ten seconds to end."""


@dataclass(frozen=True)
class Folders:
    """data: the data sets; None: ./data, and what is missing there is downloaded. runs: networks. results: numbers."""

    data: Path | None = None
    runs: Path = Path("runs")
    results: Path = Path("results")


@dataclass(frozen=True)
class Moment:
    """Where a runner stands: `cell` is number `place` of the `total` unfinished; of its `stage`, `done` of `steps` is.

    reason    why the cell failed, where its stage is `FAILED`
    """

    cell: Cell
    place: int
    total: int
    stage: str
    done: int
    steps: int
    reason: str = ""


@dataclass(frozen=True)
class Outcome:
    """The cells of a selection by what became of them in this run; of the failed, the reason."""

    done: tuple[Cell, ...]
    skipped: tuple[Cell, ...]
    elsewhere: tuple[Cell, ...]
    left: tuple[Cell, ...]
    failed: Mapping[Cell, str] = field(default_factory=dict)


def choose_cells(
    experiment: Experiment,
    *,
    seeds: Sequence[int] | None = None,
    only: str | None = None,
    shard: tuple[int, int] = (1, 1),
) -> list[Cell]:
    """The experiment's cells, perhaps of some seeds only, of one `network/dataset`, or the i-th of n equal shares."""
    cells = experiment.cells(seeds)
    if only is not None:
        known = [f"{network}/{dataset}" for network in experiment.networks for dataset in experiment.datasets]
        if only not in known:
            raise ValueError(f'Unknown --only "{only}". {experiment.name} has: {", ".join(known)}.')
        cells = [cell for cell in cells if f"{cell.network}/{cell.dataset}" == only]
    part, parts = shard
    if not 1 <= part <= parts:
        raise ValueError(f"--shard {part}/{parts}: expected i/n with 1 <= i <= n, such as 2/4.")
    return cells[part - 1 :: parts]


def run_cells(
    experiment: Experiment,
    cells: Iterable[Cell],
    folders: Folders,
    device: torch.device | str,
    *,
    max_seconds: float = math.inf,
    report: Callable[[Moment], None] = lambda moment: None,
) -> Outcome:
    """Do what is unfinished, one cell after the other; stop when the time is up, with what was begun on disk.

    Cells that another runner holds are left to it, and looked at again once the others are done. A cell that fails is
    named in the outcome, and the others go on.
    """
    target = check_device(device)
    deadline = time.monotonic() + max_seconds
    wanted = list(cells)
    refuse_other_recipe(experiment, dict.fromkeys([*experiment.cells(), *wanted]), folders.results)
    skipped = [cell for cell in wanted if is_finished(folders.results, cell, recipe_of(experiment, cell))]
    unfinished = waiting = [cell for cell in wanted if cell not in skipped]
    if unfinished:
        rehearse_corruptions(experiment)
    shelf = Shelf(experiment, folders.data, target)
    done: list[Cell] = []
    failed: dict[Cell, str] = {}
    stopped = False
    while not stopped:
        held: list[Cell] = []
        for cell in waiting:
            moment = Moment(cell, unfinished.index(cell) + 1, len(unfinished), "", 0, 1)
            with claimed(folders.runs / cell.training) as mine:
                if not mine:
                    held.append(cell)
                    continue
                if is_finished(folders.results, cell, recipe_of(experiment, cell)):  # another runner was quicker
                    skipped.append(cell)
                    continue
                try:
                    stopped = not _do_cell(cell, experiment, folders, shelf, deadline, _reporter(report, moment))
                except FAULTS as fault:
                    if tracebacks_wanted():
                        raise
                    failed[cell] = explain(fault)
            if stopped:
                break
            if cell in failed:
                shelf.make_room()
                report(replace(moment, stage=FAILED, reason=failed[cell]))
            else:
                done.append(cell)
        if len(held) == len(waiting):
            break  # nothing is left, or nothing that other runners do not do already
        waiting = held
    rest = [cell for cell in unfinished if cell not in {*done, *skipped, *failed}]
    elsewhere = [cell for cell in rest if read_claim(folders.runs / cell.training) is not None]
    left = [cell for cell in rest if cell not in elsewhere]
    return Outcome(tuple(done), tuple(skipped), tuple(elsewhere), tuple(left), failed)


def _reporter(report: Callable[[Moment], None], moment: Moment) -> Callable[[str, int, int], None]:
    return lambda stage, done, steps: report(replace(moment, stage=stage, done=done, steps=steps))


def _do_cell(
    cell: Cell,
    experiment: Experiment,
    folders: Folders,
    shelf: Shelf,
    deadline: float,
    report: Callable[[str, int, int], None],
) -> bool:
    """Train and evaluate one cell; False when the time was up before its results were written."""
    if time.monotonic() + STOPPING_SECONDS > deadline:
        return False
    if not shelf.knows(cell.dataset):
        report("loading", 0, 1)
    available, test = shelf.load(cell.dataset)
    split = split_indices(
        available.labels,
        train_fraction=cell.train_fraction,
        holdout_fraction=cell.holdout_fraction,
        seed=cell.seed,
    )
    with torch.random.fork_rng([]):
        torch.manual_seed(cell.seed)
        network = build_network(
            cell.network, len(available.classes), dropout=cell.dropout, large_images=cell.dataset == IMAGENET
        )
    train = available.select(split.train)
    progress = train_network(
        experiment.training_of(cell),
        network,
        train,
        seed=cell.seed,
        device=shelf.device,
        folder=folders.runs / cell.training,
        max_seconds=deadline - STOPPING_SECONDS - time.monotonic(),
        report=lambda progress: report("training", progress.step, progress.steps),
    )
    if not progress.finished:
        return False
    data = CellData(
        train=shelf.resident(shelf.fitted_part(train)),
        holdout=shelf.resident(shelf.fitted_part(available.select(split.holdout))),
        test=test,
        split=split.digest,
    )
    try:
        with measuring_pool(shelf.device) as pool:
            results = evaluate_cell(
                cell,
                network,
                data,
                shelf.corrupted(cell.dataset),
                pool=pool,
                training_seconds=progress.seconds,
                deadline=deadline - STOPPING_SECONDS,
                report=report,
            )
    except OutOfTimeError:
        return False
    facts = {
        **results.facts,
        "recipe": recipe_of(experiment, cell),
        "versions": {**results.facts["versions"], **further_versions()},
    }
    refuse_other_recipe(experiment, [cell], folders.results)
    write_results(folders.results, replace(results, facts=facts))
    return True


# Status


@dataclass(frozen=True)
class Standing:
    """What the folders say about a cell: finished; claimed by a runner; the share of its training that is done.

    other_recipe    there are results, but not of what the recipe asks for now
    """

    cell: Cell
    finished: bool
    running: bool
    trained: float
    other_recipe: bool = False


def read_standing(experiment: Experiment, cell: Cell, folders: Folders) -> Standing:
    folder, recipe = folders.runs / cell.training, recipe_of(experiment, cell)
    return Standing(
        cell,
        finished=is_finished(folders.results, cell, recipe),
        running=read_claim(folder) is not None,
        trained=_share_trained(RunFolder(folder, {})),
        other_recipe=bool(describe_differences(folders.results, cell, recipe)),
    )


def _share_trained(run: RunFolder) -> float:
    if run.finished.exists():
        return 1.0
    try:
        with safetensors.safe_open(run.checkpoint, framework="pt") as file:
            progress = Progress(**json.loads(file.metadata()["lates"])["progress"])
    except (OSError, safetensors.SafetensorError, KeyError, TypeError, ValueError):
        return 0.0
    return progress.step / progress.steps
