"""Do the unfinished cells of a recipe: train, evaluate, write; skip what is finished or claimed by another runner.

Everything is in files, so a runner may be killed at any moment and any number of them may share the folders. A network
in `runs/<training>` goes on from its checkpoint, an evaluation after the test sets that are measured; results appear whole or
not at all; only the runner that has the claim on `runs/<training>` trains and evaluates it.
"""

import hashlib
import json
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import torch
from torch import nn

from experiments.evaluation.clock import OutOfTimeError
from experiments.evaluation.dropout import OFF, ON
from experiments.evaluation.environment import current_commit, multiply_in_float32, require_commit
from experiments.evaluation.evaluate import CellData, evaluate_network
from experiments.evaluation.kept_logits import keep_logits
from experiments.evaluation.measured_sets import MeasuredSets
from experiments.evaluation.methods import METHODS
from experiments.recipes import Cell, Recipe
from experiments.runner.cache import DataCache, try_corruptions
from experiments.runner.claims import claimed, is_claimed, share_of_cores
from experiments.runner.faults import OF_ONE_CELL, explain, tracebacks_wanted
from experiments.runner.results import (
    CellResults,
    conditions_of,
    describe_differences,
    is_finished,
    read_results,
    refuse_other_recipe,
    results_path,
    write_results,
)
from experiments.training.checkpoints import RunFolder
from experiments.training.loop import check_device, train_network
from experiments.training.networks import place
from experiments.training.released import RELEASED, load_released

STOPPING_SECONDS = 15.0
"""How long before the deadline everything stops. A checkpoint waits for the steps that the host has queued, at most an epoch
(WRN-28-10: 4 s), and is then written (290 MB); a stage of an evaluation takes up to ten seconds to end."""


@dataclass(frozen=True)
class Folders:
    """data: the data sets; None: ./data, and what is missing there is downloaded. runs: networks. results: numbers."""

    data: Path | None = None
    runs: Path = Path("runs")
    results: Path = Path("results")


Report = Callable[[str, str, int, int], None]
"""Which cell of the unfinished, in words; its stage; how many steps of that are done, and of how many."""


@dataclass(frozen=True)
class Outcome:
    """The cells of a selection by what became of them in this run; of the failed, the reason."""

    done: tuple[Cell, ...]
    skipped: tuple[Cell, ...]
    elsewhere: tuple[Cell, ...]
    left: tuple[Cell, ...]
    failed: Mapping[Cell, str] = field(default_factory=dict)


def choose_cells(recipe: Recipe, *, seeds: Sequence[int] | None = None, only: Sequence[str] = ()) -> list[Cell]:
    """The recipe's cells: those of some seeds, of some `network/dataset`."""
    known = [f"{network}/{dataset}" for network in recipe.networks for dataset in recipe.datasets]
    for name in only:
        if name not in known:
            raise ValueError(f'Unknown --only "{name}". {recipe.name} has: {", ".join(known)}.')
    return [cell for cell in recipe.cells(seeds) if f"{cell.network}/{cell.dataset}" in (only or known)]


def run_cells(
    recipe: Recipe,
    cells: Iterable[Cell],
    folders: Folders,
    device: torch.device | str,
    *,
    max_seconds: float = math.inf,
    workers: int | None = None,
    keep: bool = False,
    report: Report = lambda cell, stage, done, steps: None,
) -> Outcome:
    """Do what is unfinished, one cell after the other; stop when the time is up, with what was begun on disk.

    Cells that another runner has claimed are left to it. A cell that fails is named in the outcome, and the others go on.

    workers    processes that score beside a GPU; None: an equal share of the cores for each runner
    keep       leave the network in half precision, and some logits, beside each network that is trained
    """
    cache = DataCache(recipe, folders.data, check_device(device))
    require_commit(cache.device)
    deadline = time.monotonic() + max_seconds
    wanted = list(cells)
    refuse_other_recipe(recipe, dict.fromkeys([*recipe.cells(), *wanted]), folders.results)

    def is_done(cell: Cell) -> bool:
        return is_finished(folders.results, cell, conditions_of(recipe, cell))

    skipped = list(filter(is_done, wanted))
    unfinished = [cell for cell in wanted if cell not in skipped]
    if unfinished:
        try_corruptions(recipe)
    done: list[Cell] = []
    failed: dict[Cell, str] = {}
    for number, cell in enumerate(unfinished, 1):
        report_stage = partial(report, f"[{number}/{len(unfinished)}] {cell.training}")
        with claimed(folders.runs / cell.training) as mine:
            if not mine:
                continue
            if is_done(cell):  # another runner was quicker
                skipped.append(cell)
                continue
            try:
                _do_cell(cell, folders, cache, deadline - STOPPING_SECONDS, workers, keep, report_stage)
                done.append(cell)
            except OutOfTimeError:
                break
            except OF_ONE_CELL as fault:
                if tracebacks_wanted():
                    raise
                reason = explain(fault)
                if reason not in failed.values():
                    report_stage(f"failed: {reason}", 0, 1)
                failed[cell] = reason
    rest = [cell for cell in unfinished if cell not in {*done, *skipped, *failed}]
    elsewhere = [cell for cell in rest if is_claimed(folders.runs / cell.training)]
    left = [cell for cell in rest if cell not in elsewhere]
    return Outcome(tuple(done), tuple(skipped), tuple(elsewhere), tuple(left), failed)


def _do_cell(
    cell: Cell,
    folders: Folders,
    cache: DataCache,
    deadline: float,
    workers: int | None,
    keep: bool,
    report: Callable[[str, int, int], None],
) -> None:
    """Train and evaluate one cell; `OutOfTimeError` when the time was up before its results were written."""
    recipe = cache.recipe
    if time.monotonic() > deadline:
        raise OutOfTimeError("The time was up before the cell was begun.")
    if cell.dataset not in cache.loaded:
        report("loading", 0, 1)
    available, test = cache.load(cell.dataset)
    train, holdout, split = cache.divide(cell)
    network, folder, seconds = cell.build_network(len(available.classes)), folders.runs / cell.training, 0.0
    if recipe.released:
        load_released(network, folder / RELEASED, recipe.released[f"{cell.network}/{cell.dataset}"])
        place(network, cache.device)
    else:
        progress = train_network(
            recipe.training_of(cell),
            network,
            train,
            seed=cell.seed,
            device=cache.device,
            folder=folder,
            max_seconds=deadline - time.monotonic(),
            report=lambda progress: report("training", progress.step, progress.steps),
        )
        if not progress.finished:
            raise OutOfTimeError(f"The time was up after step {progress.step} of {progress.steps}.")
        seconds = progress.seconds
        if keep and RunFolder(folder).finished.exists():
            RunFolder(folder).save_half(network)
    fitting = [cache.fitting_part(cell.dataset, part) for part in (train, holdout)]
    data = CellData(fitting[0], fitting[1], test, split)
    sets, weights = cache.corrupted(cell.dataset), digest_weights(network)
    if keep:
        multiply_in_float32()
        keep_logits(folder / f"logits-{recipe.name}.npz", network, data.holdout, sets)
    methods, conditions = methods_of(recipe, cell), json.loads(json.dumps(conditions_of(recipe, cell)))
    identity = {"recipe": conditions, "methods": [*methods], "weights": weights, "commit": current_commit()}
    kept = MeasuredSets(_measured_folder(folders, cell), {**identity, "per_class": recipe.per_class})
    evaluation = evaluate_network(
        network,
        data,
        sets,
        seed=cell.seed,
        mc_dropout=cell.dropout > 0,
        methods=methods,
        per_class=recipe.per_class,
        training_seconds=seconds,
        deadline=deadline,
        report=report,
        kept=kept,
        workers=workers or share_of_cores(folders.runs),
    )
    refuse_other_recipe(recipe, [cell], folders.results)
    file = RELEASED if recipe.released else getattr(RunFolder(folder).trained, "name", None)
    facts = {**evaluation.facts, "weights": {"file": file, "sha256": weights}, "recipe": conditions}
    write_results(folders.results, CellResults(cell, evaluation.scores, facts, evaluation.blocks))
    kept.remove()


def methods_of(recipe: Recipe, cell: Cell) -> Sequence[str]:
    """Those that are measured on the cell."""
    return (*OFF, *ON) if cell.dropout > 0 else recipe.methods or tuple(METHODS)


def digest_weights(network: nn.Module) -> str:
    digest = hashlib.sha256()
    for tensor in network.state_dict().values():
        digest.update(tensor.detach().contiguous().cpu().numpy().tobytes())
    return digest.hexdigest()


def _measured_folder(folders: Folders, cell: Cell) -> Path:
    return folders.runs / cell.training / f"measured-{cell.recipe}"


def read_status(recipe: Recipe, cell: Cell, folders: Folders) -> str:
    """Done, and which methods came later; measured by another recipe; or how much of its training and evaluation is done, and
    whether a runner works on it."""
    folder, conditions = folders.runs / cell.training, conditions_of(recipe, cell)
    if is_finished(folders.results, cell, conditions):
        measured = read_results(results_path(folders.results, cell)).facts["methods"]
        missing = [method for method in methods_of(recipe, cell) if method not in measured]
        return "done" + (f", lacks: {', '.join(missing)}" if missing else "")
    if describe_differences(folders.results, cell, conditions):
        return "measured by another recipe: `run` says what differs"
    running = ", running" if is_claimed(folder) else ""
    trained = "released" if recipe.released else f"trained {RunFolder(folder).share_trained():.0%}"
    sets = len(MeasuredSets(_measured_folder(folders, cell), {}))
    return trained + (f", {sets} test sets measured" if sets else "") + running
