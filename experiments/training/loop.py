"""One training loop for every network and data set of the paper.

Everything random is a function of (seed, epoch) or (seed, step): the order of the images, their flips and crops, the
dropout masks. So a run is its hyperparameters, its seed and the number of steps it has done, and a checkpoint needs nothing but
weights, momentum and that number. A run killed anywhere goes on from its last checkpoint and ends in the same weights,
bitwise on a CPU.
"""

import hashlib
import json
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import nn

from experiments.data.datasets import WORKERS, FolderSet, ImageSet
from experiments.training.checkpoints import Progress, RunFolder
from experiments.training.feeds import EpochDraws, ResidentFeed, StreamedFeed, derive_seed
from experiments.training.hyperparameters import Hyperparameters
from experiments.training.networks import place
from experiments.training.step import TrainingState


def train_network(
    hyper: Hyperparameters,
    network: nn.Module,
    data: ImageSet | FolderSet,
    *,
    seed: int,
    device: torch.device | str,
    folder: Path | None = None,
    max_seconds: float = math.inf,
    checkpoint_seconds: float = 120,
    workers: int = WORKERS,
    report: Callable[[Progress], None] = lambda progress: None,
) -> Progress:
    """Train `network` in place and leave it on `device` in eval mode; `report` is called after every epoch.

    With a `folder` the run leaves a checkpoint there about every `checkpoint_seconds` and goes on from what it finds;
    in the end `folder/network.safetensors` holds the weights, and a further call only loads them. After `max_seconds`
    it writes a checkpoint and returns unfinished.
    """
    started = time.monotonic()
    target = check_device(device)
    if target.type == "cuda":
        torch.backends.cudnn.benchmark = True
        torch.set_float32_matmul_precision("high")
        torch.compiler.reset()  # else the networks trained before in this process would use up the recompilations
    if hyper.batch > len(data):
        raise ValueError(f"A batch of {hyper.batch} needs as many images; got {len(data)}. Use a smaller batch.")
    place(network, target)
    draws = EpochDraws(len(data), hyper.batch, hyper.crop, seed, target)
    progress = Progress(0, hyper.epochs * draws.steps, (), 0.0)
    store = None
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        store = RunFolder(folder, _identity(hyper, data, seed))
        if (done := store.load_finished(network)) is not None:
            network.eval()
            return done
    feed = ResidentFeed(data, draws) if isinstance(data, ImageSet) else StreamedFeed(data, draws, workers)
    with _isolated(target):
        state = TrainingState(hyper, network.train(), feed, draws.steps, target)
        if store is not None and (stored := store.load(store.checkpoint, state.tensors())) is not None:
            tensors, progress = stored
            state.restore(tensors)
        first, before, saved = progress.step, progress.seconds, started
        for step in range(first, progress.steps):
            epoch, position = divmod(step, draws.steps)
            if position == 0 or step == first:
                feed.begin(epoch, position)
            torch.manual_seed(derive_seed(seed, step, 0))
            feed.advance()
            state.advance()
            losses = progress.losses
            if position == draws.steps - 1:
                losses += (state.take_mean_loss(draws.steps),)
            now = time.monotonic()
            progress = Progress(step + 1, progress.steps, losses, before + now - started)
            if position == draws.steps - 1:
                report(progress)
            stop = now - started > max_seconds
            due = stop or now - saved > checkpoint_seconds
            if due and store is not None and not progress.finished:
                store.save(store.checkpoint, state.tensors(), progress)
                saved = time.monotonic()
            if stop:
                break
    network.eval()
    if store is not None and progress.finished:
        store.save(store.finished, network.state_dict(), progress)
    return progress


def check_device(device: torch.device | str) -> torch.device:
    """The device of that name, if it is here."""
    try:
        target = torch.device(device)
    except RuntimeError:
        target = None
    if target is None or target.type not in ("cpu", "cuda"):
        raise ValueError(f'Unknown --device "{device}". Devices: cpu; cuda; cuda:1, the second GPU; and so on.')
    if target.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"--device {target}: torch {torch.__version__} sees no GPU here. Use --device cpu.")
    if target.type == "cuda" and (target.index or 0) >= (count := torch.cuda.device_count()):
        raise ValueError(f"--device {target}: the last GPU here is cuda:{count - 1}.")
    return target


def _identity(hyper: Hyperparameters, data: ImageSet | FolderSet, seed: int) -> dict[str, Any]:
    """What makes two runs the same, as it reads back from JSON."""
    labels = hashlib.sha256(data.labels.cpu().numpy().tobytes()).hexdigest()[:12]
    return json.loads(json.dumps({"recipe": asdict(hyper), "seed": seed, "images": len(data), "labels": labels}))


@contextmanager
def _isolated(device: torch.device) -> Iterator[None]:
    """Seeding inside leaves the caller's random state as it was. A GPU works on a stream other than the default, which graph
    capture needs, synchronised with the work before and after it."""
    if device.type == "cpu":
        with torch.random.fork_rng([]):
            yield
        return
    torch.cuda.synchronize(device)
    with torch.cuda.device(device), torch.cuda.stream(torch.cuda.Stream(device)):
        with torch.random.fork_rng([torch.cuda.current_device()]):
            yield
        torch.cuda.synchronize(device)
