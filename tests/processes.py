"""What several processes do together in the tests: a small problem, and calibrations of it that end alike or fail alike."""

import datetime
import os
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, Subset, TensorDataset
from torch.utils.data.distributed import DistributedSampler

import lates
from lates.team import OtherProcessError, form_team
from tests.networks import CLASSES, network

TRAIN, HELD = 601, 307
ONE_PROBE: dict[str, Any] = {"blocks": ["body.2"], "budget": None}
"""Where the loaders matter and the fit does not."""
TIMEOUT = datetime.timedelta(seconds=60)


@dataclass(frozen=True)
class Place:
    """This process among `size`."""

    number: int = 0
    size: int = 1


@dataclass(frozen=True)
class Outcome:
    """Of a calibration: what it learned, and its predictions for a few images."""

    weights: dict[str, float]
    probabilities: Tensor
    fit: Any


def rows(n: int, seed: int) -> TensorDataset:
    """Images whose labels follow the network and, beyond it, what a shallow probe can see."""
    generator = torch.Generator().manual_seed(seed)
    images = torch.randn(n, 2, 6, 6, generator=generator)
    seen = images.unflatten(2, (2, 3)).unflatten(4, (2, 3)).mean((3, 5)).flatten(1)
    shallow = torch.randn(seen.shape[1], CLASSES, generator=torch.Generator().manual_seed(5))
    with torch.no_grad():
        truth = network()(images) + 4 * seen @ shallow
    return TensorDataset(images, torch.multinomial(truth.softmax(1), 1, generator=generator)[:, 0])


def loaders(batch_size: int = 50) -> dict[str, DataLoader]:
    return {"train": DataLoader(rows(TRAIN, 1), batch_size), "holdout": DataLoader(rows(HELD, 2), batch_size)}


def outcome(calibrated: lates.CalibratedModel) -> Outcome:
    calibrated.generator.manual_seed(0)
    return Outcome(calibrated.weights, calibrated.predict_proba(rows(40, 3).tensors[0]), calibrated.fit)


def calibrate(model: Any = None, **options: Any) -> Outcome:
    """With a budget that buys some directions of some blocks, so that the search has something to decide."""
    options = {"budget": 0.2, "progress": False, **loaders(), **options}
    return outcome(lates.calibrate(network() if model is None else model, **options))


def by_default(place: Place) -> Outcome:
    return calibrate()


def fewer_batches_than_processes(place: Place) -> Outcome:
    return calibrate(train=loaders(400)["train"], holdout=loaders(400)["holdout"])


def mc_dropout(place: Place) -> Outcome:
    return calibrate(lates.mc_dropout(network(), samples=3), views="jitter", holdout=loaders(400)["holdout"])


def ensemble(place: Place) -> Outcome:
    return calibrate([network(0), network(1)], **ONE_PROBE)


def brier_penalised(place: Place) -> Outcome:
    return calibrate(loss="brier", settings=replace(lates.DEFAULT, regularise=0.1), **ONE_PROBE)


def soft_ece(place: Place) -> Outcome:
    return calibrate(loss="soft_ece", train=None, blocks=[])


def temperature(place: Place) -> Outcome:
    return calibrate(train=None, blocks=[])


def out_of_memory(place: Place) -> Outcome:
    return calibrate(memory=5000)


def lists_of_batches(place: Place) -> Outcome:
    return calibrate(**{role: list(loader) for role, loader in loaders().items()}, **ONE_PROBE)


def shuffled(place: Place) -> Outcome:
    return calibrate(train=DataLoader(rows(TRAIN, 1), 50, shuffle=True), **ONE_PROBE)


def distributed_samplers(place: Place) -> Outcome:
    """Which pad: neither 601 nor 307 rows are the same number for each of two or three processes."""
    if place.size == 1:
        return calibrate(**ONE_PROBE)
    parts = {"train": rows(TRAIN, 1), "holdout": rows(HELD, 2)}
    samplers = {
        role: DistributedSampler(part, place.size, place.number, shuffle=role == "train")
        for role, part in parts.items()
    }
    return calibrate(
        **{role: DataLoader(part, 50, sampler=samplers[role]) for role, part in parts.items()}, **ONE_PROBE
    )


def own_shares(place: Place) -> Outcome:
    """The last process has seven rows of the hold-out."""
    if place.size == 1:
        return calibrate(views=None, **ONE_PROBE)
    last = place.number == place.size - 1
    edge = HELD - 7
    held = range(edge, HELD) if last else range(place.number, edge, place.size - 1)
    train = range(place.number, TRAIN, place.size)
    parts = {"train": Subset(rows(TRAIN, 1), train), "holdout": Subset(rows(HELD, 2), held)}
    return calibrate(
        **{role: DataLoader(part, 50) for role, part in parts.items()}, views=None, shares="own", **ONE_PROBE
    )


def batch_statistics_of_their_own(place: Place) -> Outcome:
    model = network()
    if place.number:
        model.get_buffer("body.1.running_mean").add_(place.number)
    found = calibrate(model, **ONE_PROBE)
    return replace(found, probabilities=torch.zeros(0))


class Beside(nn.Module):
    """The network, which looks at nothing that comes beside the images."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = network()

    def forward(self, images: Tensor, *others: Tensor) -> Tensor:
        return self.inner(images)


def inputs_that_are_not_plain(place: Place) -> Outcome:
    """Sparse, ragged, a number, and columns that lie apart in memory."""
    ragged = torch.nested.nested_tensor([torch.ones(1), torch.ones(2)])
    others = (torch.eye(2).to_sparse(), ragged, torch.tensor(0.5), torch.ones(2, 3).T)
    held = [(images, *others, labels) for images, labels in loaders()["holdout"]]
    return calibrate(Beside().eval(), train=None, holdout=held, blocks=[])


def alone_in_one_process(place: Place) -> Outcome | None:
    return calibrate(shares="whole") if place.number == 0 else None


def exchanges(place: Place) -> dict[str, Any]:
    """A few numbers and more than an envelope holds, neither of them in the order in which they lie in memory."""
    few = (place.number + 1) * torch.arange(6).view(2, 3).T
    many = (place.number + 1) * torch.arange(8000.0).view(100, 80).T
    with form_team("dealt", torch.device("cpu")) as team:
        sums = {"few": team.sum(few), "many": team.sum(many), "first": team.first(few), "of_first": team.first(many)}
        return {**sums, "own": many, "items": team.gather(place.number), "neighbours": team.neighbours()}


class Broken(Dataset[Any]):
    """Rows of which the last cannot be read in the second process."""

    def __init__(self, whole: TensorDataset, place: Place) -> None:
        self.whole, self.place = whole, place

    def __len__(self) -> int:
        return len(self.whole)

    def __getitem__(self, row: int) -> tuple[Tensor, ...]:
        if self.place.number == 1 and row > len(self) // 2:
            raise OSError("the disk is full of holes")
        return self.whole[row]


def a_reader_fails(place: Place) -> Outcome:
    return calibrate(train=DataLoader(Broken(rows(TRAIN, 1), place), 50))


def a_trainer_fails(place: Place) -> Outcome:
    def complain(stage: str, done: int, total: int | None) -> None:
        if stage == "training probes":
            raise OSError("no more ink")

    return calibrate(progress=complain)


def a_last_step_fails(place: Place) -> None:
    """After all that is exchanged: the others are done, and wait."""
    with form_team("dealt", torch.device("cpu")):
        if place.number == 2:
            raise OSError("no more paper")


def a_process_fails_before_a_large_sum(place: Place) -> None:
    with form_team("dealt", torch.device("cpu")) as team:
        if place.number == 1:
            raise OSError("no more glue")
        team.sum(torch.ones(8000))


def other_rows(place: Place) -> Outcome:
    return calibrate(train=DataLoader(rows(TRAIN, 10 + place.number), 50))


def changed_rows(place: Place, image: float = 0.0, label: int = 0) -> DataLoader:
    """The training rows, one of the first batch changed in each process but the first."""
    images, labels = (values.clone() for values in rows(TRAIN, 1).tensors)
    images[49, -1, -1, -1] += image * place.number
    labels[49] = (labels[49] + label * place.number) % CLASSES
    return DataLoader(TensorDataset(images, labels), 50)


def one_other_image(place: Place) -> Outcome:
    return calibrate(train=changed_rows(place, image=1.0))


def one_other_label(place: Place) -> Outcome:
    return calibrate(train=changed_rows(place, label=1))


def other_orders(place: Place) -> Outcome:
    batches = list(BatchSampler(range(TRAIN), 50, drop_last=False))
    batches = batches if place.number == 0 else [batches[0], *reversed(batches[1:])]
    return calibrate(train=DataLoader(rows(TRAIN, 1), batch_sampler=batches))


def other_ends(place: Place) -> Outcome:
    return calibrate(holdout=list(loaders()["holdout"])[: 6 - place.number])


def own_shares_of_which_two_are_the_same(place: Place) -> Outcome:
    return calibrate(train=list(loaders()["train"])[place.number % 2 :], shares="own")


def other_parameters(place: Place) -> Outcome:
    model = network()
    nn.init.constant_(model.get_parameter("last.bias"), float(place.number))
    return calibrate(model)


def the_paper_s_solvers(place: Place) -> Outcome:
    return calibrate(settings=lates.PAPER)


IN_THREE: tuple[Callable[[Place], Outcome], ...] = (
    by_default,
    fewer_batches_than_processes,
    ensemble,
    brier_penalised,
    soft_ece,
    temperature,
    lists_of_batches,
    shuffled,
    distributed_samplers,
    own_shares,
    batch_statistics_of_their_own,
    inputs_that_are_not_plain,
)
IN_TWO: tuple[Callable[[Place], Outcome], ...] = (by_default, mc_dropout, out_of_memory)
FAILING: tuple[Callable[[Place], Outcome | None], ...] = (
    a_reader_fails,
    a_trainer_fails,
    a_last_step_fails,
    a_process_fails_before_a_large_sum,
    other_rows,
    one_other_image,
    one_other_label,
    other_orders,
    other_ends,
    own_shares_of_which_two_are_the_same,
    other_parameters,
    the_paper_s_solvers,
)


def work(place: Place, folder: Path) -> None:
    """The life of one process: everything above in turn, outcomes and faults left in files."""
    meeting = f"file://{folder}/meeting-{place.size}"
    dist.init_process_group("gloo", meeting, TIMEOUT, place.size, place.number)
    tasks = (*IN_THREE, *FAILING, alone_in_one_process, exchanges) if place.size == 3 else IN_TWO
    torch.save(dict(_try_all(tasks, place)), folder / f"{place.size}-{place.number}")
    dist.destroy_process_group()


def _try_all(tasks: tuple[Callable[[Place], Any], ...], place: Place) -> Iterator[tuple[str, Any]]:
    for task in tasks:
        try:
            yield task.__name__, task(place)
        except Exception as fault:
            yield task.__name__, (type(fault).__name__, str(fault))


def wait_in_vain(place: Place, folder: Path) -> None:
    """The first process calls calibrate; the second lives on until its input ends, but never does."""
    soon = datetime.timedelta(seconds=2)
    dist.init_process_group("gloo", f"file://{folder}/meeting", soon, place.size, place.number)
    if place.number == 0:
        try:
            calibrate()
        except OtherProcessError as fault:
            (folder / "said").write_text(str(fault), "utf-8")
    else:
        sys.stdin.read()
    os._exit(0)  # the group is broken: none of it can be taken down in order


class Stream:
    """Batches drawn when they are read, however many: rows whose class shows in their first numbers."""

    def __init__(self, batches: int, seed: int) -> None:
        self.batches, self.seed = batches, seed

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        generator = torch.Generator().manual_seed(self.seed)
        for _ in range(self.batches):
            labels = torch.randint(WIDE_CLASSES, (500,), generator=generator)
            yield torch.randn(500, 32, generator=generator) + 2 * torch.eye(WIDE_CLASSES, 32)[labels], labels


WIDE_CLASSES = 20


def grown_memory(batches: int, memory: int) -> int:
    """The most by which private memory grew in a calibration on so many batches of 500 rows, in bytes."""
    torch.manual_seed(0)
    wide = nn.Sequential(nn.Linear(32, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, WIDE_CLASSES))
    options: dict[str, Any] = {"budget": None, "progress": False, "settings": replace(lates.DEFAULT, tolerance=0.05)}
    lates.calibrate(wide.eval(), train=Stream(2, 0), holdout=Stream(2, 1), **options)
    levels, over = [private_bytes()], threading.Event()

    def watch() -> None:
        while not over.wait(0.002):
            levels.append(private_bytes())

    watcher = threading.Thread(target=watch)
    watcher.start()
    lates.calibrate(wide, train=Stream(batches, 0), holdout=Stream(batches, 1), memory=memory, **options)
    over.set()
    watcher.join()
    return max(levels) - levels[0]


def private_bytes() -> int:
    lines = Path("/proc/self/status").read_text("utf-8").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))


def live(life: str, first: str, second: str, *rest: str) -> None:
    torch.set_num_threads(1)
    if life == "grown_memory":
        print(grown_memory(int(first), int(second)))
    else:
        {"work": work, "wait_in_vain": wait_in_vain}[life](Place(int(first), int(second)), Path(*rest))


if __name__ == "__main__":
    from tests import processes  # under its own name, by which its classes are found when they are read back

    processes.live(*sys.argv[1:])
