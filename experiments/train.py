"""Train one network from the command line, on one device or, under torchrun, on several.

python -m experiments.train --network resnet18 --dataset cifar100 --data DIR --epochs 3 --out runs/trial
torchrun --nproc-per-node 8 -m experiments.train --network resnet50 --dataset imagenet --data DIR --out runs/large
"""

import argparse
import math
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

import torch
import torch.distributed as dist

from experiments.checkpoints import Progress
from experiments.claims import ClaimError, claimed, read_claim
from experiments.data import DATASETS, IMAGENET, WORKERS, load_dataset, split_indices
from experiments.faults import FAULTS, explain, tracebacks_wanted
from experiments.networks import NETWORKS, build_network
from experiments.schedules import choose_recipe
from experiments.training import check_device, measure_accuracy, train_network


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
