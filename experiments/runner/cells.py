"""Do the unfinished cells of a recipe: train, evaluate, write; skip what is finished or claimed by another runner.

Everything is in files, so a runner may be killed at any moment and any number of them may share the folders. A network
in `runs/<training>` goes on from its checkpoint; results appear whole or not at all; only the runner that has the claim on
`runs/<training>` trains and evaluates it.
"""

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import torch

from experiments.evaluation.clock import OutOfTimeError
from experiments.evaluation.evaluate import CellData, evaluate_network
from experiments.recipes import Cell, Recipe
from experiments.runner.cache import DataCache, try_corruptions
from experiments.runner.claims import claimed, read_claim
from experiments.runner.faults import FAULTS, explain, tracebacks_wanted
from experiments.runner.provenance import conditions_of, refuse_other_recipe
from experiments.runner.results import CellResults, describe_differences, is_finished, write_results
from experiments.training.checkpoints import RunFolder
from experiments.training.loop import check_device, train_network
from experiments.training.released import RELEASED, load_released

FAILED = "failed"
STOPPING_SECONDS = 15.0
"""How long before the deadline everything stops. A checkpoint waits for the steps that the host has queued, at most an epoch
(WRN-28-10: 4 s), and is then written (290 MB); a stage of an evaluation takes up to ten seconds to end."""


@dataclass(frozen=True)
class Folders:
    """data: the data sets; None: ./data, and what is missing there is downloaded. runs: networks. results: numbers."""

    data: Path | None = None
    runs: Path = Path("runs")
    results: Path = Path("results")


@dataclass(frozen=True)
class Moment:
    """What a runner reports: `cell` is number `place` of the `total` unfinished; `done` of `steps` of its `stage` are done.

    reason    why the cell failed, where its stage is `FAILED`
    """

    cell: Cell
    place: int
    total: int
    stage: str = ""
    done: int = 0
    steps: int = 1
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
    recipe: Recipe, *, seeds: Sequence[int] | None = None, only: str | None = None, shard: tuple[int, int] = (1, 1)
) -> list[Cell]:
    """The recipe's cells: those of some seeds, of one `network/dataset`, the i-th of n equal shards."""
    cells = recipe.cells(seeds)
    if only is not None:
        known = [f"{network}/{dataset}" for network in recipe.networks for dataset in recipe.datasets]
        if only not in known:
            raise ValueError(f'Unknown --only "{only}". {recipe.name} has: {", ".join(known)}.')
        cells = [cell for cell in cells if f"{cell.network}/{cell.dataset}" == only]
    part, parts = shard
    if not 1 <= part <= parts:
        raise ValueError(f"--shard {part}/{parts}: expected i/n with 1 <= i <= n, such as 2/4.")
    return cells[part - 1 :: parts]


def run_cells(
    recipe: Recipe,
    cells: Iterable[Cell],
    folders: Folders,
    device: torch.device | str,
    *,
    max_seconds: float = math.inf,
    report: Callable[[Moment], None] = lambda moment: None,
) -> Outcome:
    """Do what is unfinished, one cell after the other; stop when the time is up, with what was begun on disk.

    Cells that another runner has claimed are left to it, and tried again once the others are done. A cell that fails is
    named in the outcome, and the others go on.
    """
    target = check_device(device)
    deadline = time.monotonic() + max_seconds
    wanted = list(cells)
    refuse_other_recipe(recipe, dict.fromkeys([*recipe.cells(), *wanted]), folders.results)
    skipped = [cell for cell in wanted if is_finished(folders.results, cell, conditions_of(recipe, cell))]
    unfinished = waiting = [cell for cell in wanted if cell not in skipped]
    if unfinished:
        try_corruptions(recipe)
    cache = DataCache(recipe, folders.data, target)
    done: list[Cell] = []
    failed: dict[Cell, str] = {}
    stopped = False
    while not stopped:
        refused: list[Cell] = []
        for cell in waiting:
            moment = Moment(cell, unfinished.index(cell) + 1, len(unfinished))
            with claimed(folders.runs / cell.training) as mine:
                if not mine:
                    refused.append(cell)
                    continue
                if is_finished(folders.results, cell, conditions_of(recipe, cell)):  # another runner was quicker
                    skipped.append(cell)
                    continue
                try:
                    stopped = not _do_cell(cell, recipe, folders, cache, deadline, partial(_report, report, moment))
                except FAULTS as fault:
                    if tracebacks_wanted():
                        raise
                    failed[cell] = explain(fault)
            if stopped:
                break
            if cell in failed:
                cache.free_memory()
                report(replace(moment, stage=FAILED, reason=failed[cell]))
            else:
                done.append(cell)
        if len(refused) == len(waiting):
            break  # nothing is left, or nothing that other runners do not do already
        waiting = refused
    rest = [cell for cell in unfinished if cell not in {*done, *skipped, *failed}]
    elsewhere = [cell for cell in rest if read_claim(folders.runs / cell.training) is not None]
    left = [cell for cell in rest if cell not in elsewhere]
    return Outcome(tuple(done), tuple(skipped), tuple(elsewhere), tuple(left), failed)


def _report(report: Callable[[Moment], None], moment: Moment, stage: str, done: int, steps: int) -> None:
    report(replace(moment, stage=stage, done=done, steps=steps))


def _do_cell(
    cell: Cell,
    recipe: Recipe,
    folders: Folders,
    cache: DataCache,
    deadline: float,
    report: Callable[[str, int, int], None],
) -> bool:
    """Train and evaluate one cell; False when the time was up before its results were written."""
    last_moment = deadline - STOPPING_SECONDS
    if time.monotonic() > last_moment:
        return False
    if cell.dataset not in cache.loaded:
        report("loading", 0, 1)
    available, test = cache.load(cell.dataset)
    train, holdout, split = cache.divide(cell)
    network, folder, seconds = cell.build_network(len(available.classes)), folders.runs / cell.training, 0.0
    if recipe.released:
        load_released(network, folder / RELEASED, recipe.released[cell.network])
        network.to(cache.device, memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
    else:
        progress = train_network(
            recipe.training_of(cell),
            network,
            train,
            seed=cell.seed,
            device=cache.device,
            folder=folder,
            max_seconds=last_moment - time.monotonic(),
            report=lambda progress: report("training", progress.step, progress.steps),
        )
        if not progress.finished:
            return False
        seconds = progress.seconds
    data = CellData(cache.fitting_part(train), cache.fitting_part(holdout), test, split)
    try:
        evaluation = evaluate_network(
            network,
            data,
            cache.corrupted(cell.dataset),
            seed=cell.seed,
            mc_dropout=cell.dropout > 0,
            methods=recipe.methods,
            per_class=recipe.per_class,
            training_seconds=seconds,
            deadline=last_moment,
            report=report,
        )
    except OutOfTimeError:
        return False
    refuse_other_recipe(recipe, [cell], folders.results)
    facts = {**evaluation.facts, "recipe": conditions_of(recipe, cell)}
    write_results(folders.results, CellResults(cell, evaluation.rows, facts, evaluation.blocks))
    return True


def read_status(recipe: Recipe, cell: Cell, folders: Folders) -> str:
    """Done; measured by another recipe; or how much of its training is done, and whether a runner works on it."""
    folder, conditions = folders.runs / cell.training, conditions_of(recipe, cell)
    if is_finished(folders.results, cell, conditions):
        return "done"
    if describe_differences(folders.results, cell, conditions):
        return "measured by another recipe: `run` says what differs"
    running = ", running" if read_claim(folder) is not None else ""
    if recipe.released:
        return f"released{running}"
    return f"trained {RunFolder(folder, {}).share_trained():.0%}{running}"
