"""One training loop for every network and data set of the paper.

Everything random is a function of (seed, epoch) or (seed, step): the order of the images, their flips and crops, the
dropout masks. So a run is its recipe, its seed and the number of steps it has done, and a checkpoint needs nothing but
weights, momentum and that number. A run killed anywhere goes on from its last checkpoint and ends in the same weights,
bitwise on a CPU.
"""

import hashlib
import json
import math
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.utils import convert_conv2d_weight_memory_format

from experiments.checkpoints import Progress, RunFolder
from experiments.data import WORKERS, FolderSet, ImageSet, decode_batches, in_order, scale
from experiments.feeds import EpochDraws, ResidentFeed, Share, StreamedFeed, derive_seed
from experiments.schedules import Recipe
from experiments.steps import Run


def train_network(
    recipe: Recipe,
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
    """Train `network` in place and leave it on `device` in eval mode; `report` hears of every epoch.

    With a `folder` the run leaves a checkpoint there about every `checkpoint_seconds` and goes on from what it finds;
    in the end `folder/network.safetensors` holds the weights, and a further call only loads them. After `max_seconds`
    it writes a checkpoint and returns unfinished. Under torchrun each process computes its share of every batch and
    the first one writes; batch norm then sees its own share alone, and the loss reported is the first process's.
    """
    started = time.monotonic()
    share = _this_share(check_device(device))
    _check_batch(recipe, len(data), share)
    convert_conv2d_weight_memory_format(network.to(share.device), torch.channels_last)
    draws = EpochDraws(len(data), recipe.batch, recipe.crop, seed, share)
    progress = Progress(0, recipe.epochs * draws.steps, (), 0.0)
    store = None
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        store = RunFolder(folder, _identity(recipe, data, seed))
        if (done := store.load_finished(network)) is not None:
            network.eval()
            return done
    feed = ResidentFeed(data, draws) if isinstance(data, ImageSet) else StreamedFeed(data, draws, workers)
    with _own_stream(share.device), _own_random_state(share.device):
        run = Run(recipe, network.train(), feed, draws.steps, share)
        if store is not None and (found := store.load_checkpoint()) is not None:
            tensors, progress = found
            run.restore(tensors)
        first, before, saved = progress.step, progress.seconds, started
        for step in range(first, progress.steps):
            epoch, position = divmod(step, draws.steps)
            if position == 0 or step == first:
                feed.begin(epoch, position)
            torch.manual_seed(derive_seed(seed, step, share.rank))
            feed.advance()
            run.advance()
            losses = progress.losses
            if position == draws.steps - 1:
                losses += (run.take_mean_loss(draws.steps),)
            now = time.monotonic()
            progress = Progress(step + 1, progress.steps, losses, before + now - started)
            if position == draws.steps - 1:
                report(progress)
            stop = _agreed(now - started > max_seconds, step, share)
            due = stop or now - saved > checkpoint_seconds
            if due and store is not None and share.rank == 0 and not progress.finished:
                store.save_checkpoint(run.tensors(), progress)
                saved = time.monotonic()
            if stop:
                break
    network.eval()
    if share.world > 1:
        for buffer in network.buffers():
            dist.broadcast(buffer, 0)  # every process ends with the network that the first one writes
    if store is not None and share.rank == 0 and progress.finished:
        store.save_finished(network, progress)
    if share.world > 1:
        dist.barrier()
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


def _this_share(device: torch.device) -> Share:
    if device.type == "cuda":
        torch.backends.cudnn.benchmark = True
        torch.set_float32_matmul_precision("high")
        torch.compiler.reset()  # else the networks trained before in this process would use up the recompilations
    if dist.is_available() and dist.is_initialized():
        return Share(device, dist.get_rank(), dist.get_world_size())
    return Share(device)


def _check_batch(recipe: Recipe, images: int, share: Share) -> None:
    if recipe.batch > images:
        raise ValueError(f"A batch of {recipe.batch} needs as many images; got {images}. Use a smaller batch.")
    if recipe.batch % share.world:
        raise ValueError(f"{share.world} processes cannot share a batch of {recipe.batch} evenly.")


def _identity(recipe: Recipe, data: ImageSet | FolderSet, seed: int) -> dict[str, Any]:
    """What makes two runs the same, as it reads back from JSON."""
    labels = hashlib.sha256(data.labels.cpu().numpy().tobytes()).hexdigest()[:12]
    return json.loads(json.dumps({"recipe": asdict(recipe), "seed": seed, "images": len(data), "labels": labels}))


def _agreed(flag: bool, step: int, share: Share) -> bool:
    """The first process's `flag`; several processes ask for it only now and then, since asking halts the device."""
    if share.world == 1:
        return flag
    if step % 32:
        return False
    shared = torch.tensor(flag, device=share.device)
    dist.broadcast(shared, 0)
    return bool(shared)


@contextmanager
def _own_stream(device: torch.device) -> Iterator[None]:
    """A stream other than the default, which graph capture needs; whatever came before and after is in order."""
    if device.type != "cuda":
        yield
        return
    torch.cuda.synchronize(device)
    with torch.cuda.device(device), torch.cuda.stream(torch.cuda.Stream(device)):
        yield
        torch.cuda.synchronize(device)


def _own_random_state(device: torch.device) -> AbstractContextManager[None]:
    """Seeding inside leaves the caller's random state as it was."""
    return torch.random.fork_rng([torch.cuda.current_device()] if device.type == "cuda" else [])


def measure_accuracy(
    network: nn.Module, data: ImageSet | FolderSet, *, batch: int = 1000, workers: int = WORKERS
) -> float:
    """The share of images whose largest logit is their label's, on the network's device."""
    device = next(network.parameters()).device
    if isinstance(data, ImageSet):
        batches: Iterable[tuple[Tensor, Tensor]] = zip(data.images.split(batch), data.labels.split(batch), strict=True)
    else:
        batches = decode_batches(data, in_order(len(data), batch), workers)
    right = 0
    with torch.inference_mode(), torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
        for images, labels in batches:
            inputs = scale(images.to(device)).contiguous(memory_format=torch.channels_last)
            right += int((network(inputs).argmax(1) == labels.to(device)).sum())
    return right / len(data)
