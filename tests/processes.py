"""What several processes do together in the tests: a small problem, and calibrations of it on shards of its rows."""

import datetime
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.data import DataLoader, Subset, TensorDataset
from torch.utils.data.distributed import DistributedSampler

import lates
from lates.runtime import Processes
from tests.networks import CLASSES, network

TRAIN, HELD = 601, 307
ONE_PROBE: dict[str, Any] = {"blocks": ["body.2"], "budget": None}
"""Where the loaders matter and the fit does not."""
TIMEOUT = datetime.timedelta(seconds=60)


@dataclass(frozen=True)
class Rank:
    """This process among `world_size`."""

    rank: int = 0
    world_size: int = 1


@dataclass(frozen=True)
class Outcome:
    """What a calibration learned, and its predictions for a few images."""

    weights: dict[str, float]
    probabilities: Tensor
    fit: Any


def rows(n: int, seed: int) -> TensorDataset:
    """Images whose labels follow the network and, beyond it, what a shallow probe can see."""
    generator = torch.Generator().manual_seed(seed)
    images = torch.randn(n, 2, 6, 6, generator=generator)
    pooled = images.unflatten(2, (2, 3)).unflatten(4, (2, 3)).mean((3, 5)).flatten(1)
    shallow = torch.randn(pooled.shape[1], CLASSES, generator=torch.Generator().manual_seed(5))
    with torch.no_grad():
        truth = network()(images) + 4 * pooled @ shallow
    return TensorDataset(images, torch.multinomial(truth.softmax(1), 1, generator=generator)[:, 0])


def shard(data: TensorDataset, at: Rank) -> Subset[Any]:
    """Successive rows, more of them for higher ranks."""
    edges = [len(data) * k * (k + 1) // (at.world_size * (at.world_size + 1)) for k in range(at.world_size + 1)]
    return Subset(data, range(edges[at.rank], edges[at.rank + 1]))


def loaders(at: Rank = Rank(), batch_size: int = 50) -> dict[str, DataLoader]:  # noqa: B008 (frozen)
    data = {"train": rows(TRAIN, 1), "holdout": rows(HELD, 2)}
    return {role: DataLoader(shard(part, at), batch_size) for role, part in data.items()}


def calibrate(at: Rank, model: Any = None, **options: Any) -> Outcome:
    """With a budget that buys some directions of some blocks, so that the search has something to decide."""
    options = {"budget": 0.2, "views": None, "progress": False, **loaders(at), **options}
    calibrated = lates.calibrate(network() if model is None else model, **options)
    calibrated.generator.manual_seed(0)
    return Outcome(calibrated.weights, calibrated.predict_proba(rows(40, 3).tensors[0]), calibrated.fit)


def by_default(at: Rank) -> Outcome:
    return calibrate(at)


def ensemble(at: Rank) -> Outcome:
    return calibrate(at, [network(0), network(1)], **ONE_PROBE)


def brier_penalised(at: Rank) -> Outcome:
    return calibrate(at, loss="brier", settings=replace(lates.DEFAULT, regularise=0.1), **ONE_PROBE)


def temperature_by_soft_ece(at: Rank) -> Outcome:
    return calibrate(at, loss="soft_ece", train=None, blocks=[])


def little_memory(at: Rank) -> Outcome:
    return calibrate(at, memory=5000)


def other_batch_statistics(at: Rank) -> Outcome:
    model = network()
    if at.rank:
        model.get_buffer("body.1.running_mean").add_(at.rank)
    return replace(calibrate(at, model, **ONE_PROBE), probabilities=torch.zeros(0))


class ManyInputs(nn.Module):
    """The network, which ignores all inputs but the images."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = network()

    def forward(self, images: Tensor, *others: Tensor) -> Tensor:
        return self.inner(images)


def sparse_and_nested_inputs(at: Rank) -> Outcome:
    nested = torch.nested.nested_tensor([torch.ones(1), torch.ones(2)])
    others = (torch.eye(2).to_sparse(), nested, torch.tensor(0.5), torch.ones(2, 3).T)
    holdout = [(images, *others, labels) for images, labels in loaders(at)["holdout"]]
    return calibrate(at, ManyInputs().eval(), train=None, holdout=holdout, blocks=[])


def mc_dropout_with_views(at: Rank) -> Outcome:
    return calibrate(at, lates.mc_dropout(network(), samples=3), views="jitter", **ONE_PROBE)


def one_process_alone(at: Rank) -> Outcome | None:
    return calibrate(Rank(), distributed=False) if at.rank == 0 else None


def collectives(at: Rank) -> dict[str, Any]:
    """Of tensors that are not contiguous."""
    values = (at.rank + 1) * torch.arange(6).view(2, 3).T
    processes = Processes.current()
    sums = {"sum": processes.all_reduce(values), "first": processes.broadcast(values), "values": values}
    return {**sums, "gathered": processes.gather(at.rank), "on_this_host": processes.on_this_host()}


def unsharded_loaders(at: Rank) -> Outcome:
    return calibrate(at, **loaders())


def padding_sampler(at: Rank) -> Outcome:
    data = rows(HELD, 2)
    sampler = DistributedSampler(data, at.world_size, at.rank)
    return calibrate(at, holdout=DataLoader(data, 50, sampler=sampler))


def other_parameters(at: Rank) -> Outcome:
    model = network()
    nn.init.constant_(model.get_parameter("last.bias"), float(at.rank))
    return calibrate(at, model)


def settings_of_the_paper(at: Rank) -> Outcome:
    return calibrate(at, settings=lates.PAPER)


ALIKE: tuple[Callable[[Rank], Outcome], ...] = (
    by_default,
    ensemble,
    brier_penalised,
    temperature_by_soft_ece,
    little_memory,
    other_batch_statistics,
    sparse_and_nested_inputs,
)
REFUSED = (unsharded_loaders, padding_sampler, other_parameters, settings_of_the_paper)


def work(at: Rank, folder: Path) -> None:
    """All tasks in turn; outcomes and errors are left in files."""
    dist.init_process_group("gloo", f"file://{folder}/store", TIMEOUT, at.world_size, at.rank)
    tasks = (*ALIKE, *REFUSED, mc_dropout_with_views, one_process_alone, collectives)
    torch.save(dict(_try_all(tasks, at)), folder / f"rank-{at.rank}")
    dist.destroy_process_group()


def _try_all(tasks: tuple[Callable[[Rank], Any], ...], at: Rank) -> Iterator[tuple[str, Any]]:
    for task in tasks:
        try:
            yield task.__name__, task(at)
        except Exception as fault:
            yield task.__name__, (type(fault).__name__, str(fault))


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
    """The most by which private memory grew in a calibration on this many batches of 500 rows, in bytes."""
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


if __name__ == "__main__":
    from tests import processes  # under its own name, by which its classes are found when they are read back

    torch.set_num_threads(1)
    task, first, second, *rest = sys.argv[1:]
    if task == "grown_memory":
        print(processes.grown_memory(int(first), int(second)))
    else:
        processes.work(processes.Rank(int(first), int(second)), Path(*rest))
