"""One training loop for every network and data set of the paper.

Everything random is a function of (seed, epoch) or (seed, step): the order of the images, their flips and crops, the
dropout masks. So a run is its recipe, its seed and the number of steps it has done, and a checkpoint needs nothing but
weights, momentum and that number. A run killed anywhere goes on from its last checkpoint and ends in the same weights,
bitwise on a CPU.

On a GPU the images stay there as uint8, and one step (gather, flip, forward, backward, update, learning rate) reads its
place from a counter on the device. It is compiled, captured in a CUDA graph and replayed; the host only says "again".

    python -m experiments.train --network resnet18 --dataset cifar100 --data DIR --epochs 3 --out runs/trial
    torchrun --nproc-per-node 8 -m experiments.train --network resnet50 --dataset imagenet --data DIR --out runs/large
"""

import argparse
import hashlib
import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import convert_conv2d_weight_memory_format

from experiments.checkpoints import Progress, RunFolder
from experiments.claims import ClaimError, claimed, read_claim
from experiments.data import (
    DATASETS,
    IMAGENET,
    WORKERS,
    FolderSet,
    ImageSet,
    decode_batches,
    in_order,
    load_dataset,
    scale,
    split_indices,
)
from experiments.faults import FAULTS, explain, tracebacks_wanted
from experiments.feeds import EpochDraws, Feed, ResidentFeed, Share, StreamedFeed, derive_seed
from experiments.networks import NETWORKS, build_network

# Recipes


@dataclass(frozen=True)
class Recipe:
    """How a network is trained: SGD on the log-loss with weight decay (weight_decay/2)·‖w‖² on every parameter.

    The learning rate rises linearly over the warm-up epochs, then falls along a cosine to zero; or, with `milestones`
    (fractions of all steps), it stays and is multiplied by `factor` at each.
    """

    epochs: int
    batch: int
    rate: float
    weight_decay: float
    momentum: float = 0.9
    nesterov: bool = False
    warmup_epochs: int = 0
    milestones: tuple[float, ...] = ()
    factor: float = 1.0
    crop: int = 0  # shift by up to so many pixels, zeros coming in; left-right flips are always on


PAPER_CIFAR = Recipe(epochs=200, batch=128, rate=0.1, weight_decay=1e-4)
PAPER_IMAGENET = Recipe(
    epochs=95, batch=256, rate=0.1, weight_decay=1e-4, warmup_epochs=5, milestones=(0.3, 0.6, 0.9), factor=0.1
)
# Uncertainty Baselines' recipe for MC dropout. Its penalty is 3e-4·‖w‖² without the half, hence the decay 6e-4.
MC_DROPOUT = Recipe(
    epochs=200,
    batch=128,
    rate=0.05,
    weight_decay=6e-4,
    nesterov=True,
    warmup_epochs=1,
    milestones=(0.3, 0.6, 0.8),
    factor=0.2,
    crop=4,
)
MC_DROPOUT_FLIPS_ONLY = replace(MC_DROPOUT, crop=0)


def learning_rates(recipe: Recipe, steps_per_epoch: int) -> Tensor:
    """The learning rate of every step, float64 [steps].

    With T steps of which the first W warm up: rate·(t + 1)/W for t < W, then rate·(1 + cos(π·(t − W)/(T − W)))/2, or
    rate·factor^m with m the number of milestones f for which t >= f·T.
    """
    steps, warmup = recipe.epochs * steps_per_epoch, recipe.warmup_epochs * steps_per_epoch
    t = torch.arange(steps, dtype=torch.float64)
    if recipe.milestones:
        passed = sum((t >= fraction * steps).double() for fraction in recipe.milestones)
        rates = recipe.rate * recipe.factor**passed
    else:
        rates = recipe.rate * (1 + torch.cos(math.pi * (t - warmup) / max(steps - warmup, 1))) / 2
    return torch.where(t < warmup, recipe.rate * (t + 1) / max(warmup, 1), rates)


# The loop


class Run:
    """The state of one training, and the step that moves it on.

    With loss L(w), decay λ, momentum μ and the step's learning rate η: m ← μ·m + ∇L(w) + λ·w, then w ← w − η·m; with
    Nesterov's momentum w ← w − η·(∇L(w) + λ·w + μ·m).
    """

    def __init__(self, recipe: Recipe, network: nn.Module, feed: Feed, steps_per_epoch: int, share: Share) -> None:
        device = share.device
        self.network, self.feed, self.device = network, feed, device
        self.rates = learning_rates(recipe, steps_per_epoch).float().to(device)
        self.step = torch.zeros(1, dtype=torch.int64, device=device)
        self.loss_sum = torch.zeros((), dtype=torch.float64, device=device)
        self.rate = torch.zeros(1, device=device)
        self.optimiser = torch.optim.SGD(
            network.parameters(),
            lr=self.rate,
            momentum=recipe.momentum,
            weight_decay=recipe.weight_decay,
            nesterov=recipe.nesterov,
            fused=True,
        )
        for parameter in network.parameters():
            self.optimiser.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
        self.forward = network
        if share.world > 1:
            self.forward = DistributedDataParallel(network, [device] if device.type == "cuda" else None)
        self.loss = torch.compile(self._loss) if device.type == "cuda" else self._loss
        self.advance = _captured(self._advance) if device.type == "cuda" and share.world == 1 else self._advance

    def _loss(self) -> Tensor:
        images, labels = self.feed.batch(self.step)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda"):
            logits = self.forward(images)
        return cross_entropy(logits.float(), labels)

    def _advance(self) -> None:
        torch.index_select(self.rates, 0, self.step, out=self.rate)
        loss = self.loss()
        loss.backward()
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)
        self.loss_sum.add_(loss.detach())
        self.step.add_(1)

    def take_mean_loss(self, steps: int) -> float:
        """The mean loss of an epoch of `steps` steps; the next epoch's sum begins at zero."""
        mean = float(self.loss_sum) / steps
        if not math.isfinite(mean):
            raise FloatingPointError(
                f"Training diverged: the mean loss of an epoch is {mean}. Lower the learning rate."
            )
        self.loss_sum.zero_()
        return mean

    def tensors(self) -> dict[str, Tensor]:
        """Everything that a step reads and changes, by name."""
        momentum = {
            f"momentum.{name}": self.optimiser.state[parameter]["momentum_buffer"]
            for name, parameter in self.network.named_parameters()
        }
        network = {f"network.{name}": tensor for name, tensor in self.network.state_dict().items()}
        return {**network, **momentum, "step": self.step, "loss_sum": self.loss_sum}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        own = self.tensors()
        shapes, found = ({name: tuple(t.shape) for name, t in part.items()} for part in (own, tensors))
        if shapes != found:
            name = min(name for name in shapes.keys() | found.keys() if shapes.get(name) != found.get(name))
            raise ValueError(
                f"The checkpoint is of another network: its {name} has shape {found.get(name)}, here it has "
                f"{shapes.get(name)}. Choose another folder or remove the checkpoint."
            )
        with torch.no_grad():
            for name, tensor in own.items():
                tensor.copy_(tensors[name])


def _captured(step: Callable[[], None], first_steps: int = 3) -> Callable[[], None]:
    """`step` as a CUDA graph. The first steps run as they are, which compiles and warms up whatever has to be.

    Everything has to run on one stream other than the default, which `train_network` sees to.
    """
    graph = torch.cuda.CUDAGraph()
    done = 0

    def run() -> None:
        nonlocal done
        if done < first_steps:
            step()
        else:
            if done == first_steps:
                with torch.cuda.graph(graph, stream=torch.cuda.current_stream(), capture_error_mode="thread_local"):
                    step()
            graph.replay()
        done += 1

    return run


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


# The command


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m experiments.train", description="Train one network.")
    parser.add_argument("--network", required=True, choices=NETWORKS)
    parser.add_argument("--dataset", required=True, choices=DATASETS)
    parser.add_argument("--data", type=Path, help="folder of the data set; without it ./data, filled from the web")
    parser.add_argument("--out", required=True, type=Path, help="the folder of this run; it goes on from what is there")
    parser.add_argument("--epochs", type=int, help="instead of the recipe's number")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--train-fraction", type=float, default=0.9)
    parser.add_argument("--dropout", type=float, default=0.0, help="train for MC dropout at this rate")
    parser.add_argument("--flips-only", action="store_true", help="no crops in the recipe for MC dropout")
    parser.add_argument("--device", help="cpu, cuda, cuda:1, …", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--max-seconds", type=float, default=math.inf)
    parser.add_argument("--workers", type=int, default=WORKERS, help="processes that decode image files")
    return parser.parse_args()


def choose_recipe(dataset: str, *, dropout: float = 0.0, flips_only: bool = False) -> Recipe:
    if dataset == IMAGENET:
        return PAPER_IMAGENET
    if dropout > 0:
        return MC_DROPOUT_FLIPS_ONLY if flips_only else MC_DROPOUT
    return PAPER_CIFAR


def main() -> None:
    arguments = _arguments()
    try:
        device = check_device(arguments.device)
        if "LOCAL_RANK" in os.environ:
            if device.type == "cuda":
                device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
                torch.cuda.set_device(device)
            dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
        with _claimed_by_first(arguments.out, device):
            _train(arguments, device)
    except KeyboardInterrupt:
        print("Stopped. The same command goes on from the last checkpoint.", file=sys.stderr)
        raise SystemExit(130) from None
    except FAULTS as fault:
        if tracebacks_wanted():
            raise
        raise SystemExit(f"Error: {explain(fault)}") from None
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


def _leads() -> bool:
    return not dist.is_initialized() or dist.get_rank() == 0


@contextmanager
def _claimed_by_first(folder: Path, device: torch.device) -> Iterator[None]:
    """The first process claims the folder for all, since `run` may want it too; all stop where another holds it."""
    with claimed(folder) if _leads() else nullcontext(True) as mine:
        shared = torch.tensor(mine, device=device)
        if dist.is_initialized():
            dist.broadcast(shared, 0)
        if not shared:
            holder = read_claim(folder) or {}
            by = f"process {holder['pid']} on {holder['host']}" if holder else "another process"
            raise ClaimError(f"{folder} is in the hands of {by}. Wait for it, or choose another --out.")
        yield


def _train(arguments: argparse.Namespace, device: torch.device) -> None:
    available, test = load_dataset(arguments.dataset, arguments.data)
    split = split_indices(
        available.labels, train_fraction=arguments.train_fraction, holdout_fraction=0.1, seed=arguments.seed
    )
    recipe = choose_recipe(arguments.dataset, dropout=arguments.dropout, flips_only=arguments.flips_only)
    if arguments.epochs is not None:
        recipe = replace(recipe, epochs=arguments.epochs)
    torch.manual_seed(arguments.seed)
    network = build_network(
        arguments.network,
        len(available.classes),
        dropout=arguments.dropout,
        large_images=arguments.dataset == IMAGENET,
    )
    leads = _leads()
    seconds = 0.0

    def report(progress: Progress) -> None:
        nonlocal seconds
        epoch, loss, took = len(progress.losses), progress.losses[-1], progress.seconds - seconds
        seconds = progress.seconds
        if leads:
            print(f"epoch {epoch}/{recipe.epochs}  loss {loss:.4f}  {took:.2f} s", flush=True)

    progress = train_network(
        recipe,
        network,
        available.select(split.train),
        seed=arguments.seed,
        device=device,
        folder=arguments.out,
        max_seconds=arguments.max_seconds,
        workers=arguments.workers,
        report=report,
    )
    if leads and progress.finished:
        accuracy = measure_accuracy(network, test, workers=arguments.workers)
        print(f"test accuracy {accuracy:.4f}  training took {progress.seconds:.1f} s  split {split.digest}")
    elif leads:
        print(f"stopped after step {progress.step} of {progress.steps}; the same command goes on from there")


if __name__ == "__main__":
    main()
