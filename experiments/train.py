"""Train one network from the command line, on one device or, under torchrun, on several.

python -m experiments.train --network resnet18 --dataset cifar100 --data DIR --epochs 3 --out runs/trial
torchrun --nproc-per-node 8 -m experiments.train --network resnet50 --dataset imagenet --data DIR --out runs/large
"""

import argparse
import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

import torch
import torch.distributed as dist

from experiments.data.datasets import DATASETS, load_dataset
from experiments.recipes import RECIPES, Cell
from experiments.runner.claims import claimed, read_claim
from experiments.runner.faults import faults_in_words
from experiments.training.checkpoints import Progress
from experiments.training.hyperparameters import choose_hyperparameters
from experiments.training.loop import check_device, measure_accuracy, train_network
from experiments.training.networks import NETWORKS


def main(arguments: Sequence[str] | None = None) -> None:
    chosen = _parser().parse_args(arguments)
    with faults_in_words():
        try:
            device = check_device(chosen.device)
            if "LOCAL_RANK" in os.environ:
                if device.type == "cuda":
                    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
                    torch.cuda.set_device(device)
                dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
            with _claimed_by_first(chosen.out, device):
                _train(chosen, device)
        finally:
            if dist.is_initialized():
                dist.destroy_process_group()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m experiments.train", description="Train one network.")
    parser.add_argument("--network", required=True, choices=NETWORKS)
    parser.add_argument("--dataset", required=True, choices=DATASETS)
    parser.add_argument("--data", type=Path, help="folder of the data set; without it ./data, filled from the web")
    parser.add_argument("--out", required=True, type=Path, help="the folder of this run; it goes on from what is there")
    parser.add_argument(
        "--recipe", choices=RECIPES, help="of which to take the hyperparameters, instead of the paper's"
    )
    parser.add_argument("--epochs", type=int, help="instead of the recipe's number")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--train-fraction", type=float, default=0.9)
    parser.add_argument("--dropout", type=float, default=0.0, help="train for MC dropout at this rate")
    parser.add_argument("--device", help="cpu, cuda, cuda:1, …", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--max-seconds", type=float, default=math.inf)
    return parser


def _is_first() -> bool:
    return not dist.is_initialized() or dist.get_rank() == 0


@contextmanager
def _claimed_by_first(folder: Path, device: torch.device) -> Iterator[None]:
    """The first process claims the folder for all, since `run` may want it too; all stop where another has it."""
    with claimed(folder) if _is_first() else nullcontext(True) as mine:
        shared = torch.tensor(mine, device=device)
        if dist.is_initialized():
            dist.broadcast(shared, 0)
        if not shared:
            by = read_claim(folder) or "another process"
            raise ValueError(f"{folder} is in use by {by}. Wait for it, or choose another --out.")
        yield


def _train(chosen: argparse.Namespace, device: torch.device) -> None:
    available, test = load_dataset(chosen.dataset, chosen.data)
    cell = Cell("", chosen.dataset, chosen.network, chosen.seed, chosen.train_fraction, dropout=chosen.dropout)
    split, network = cell.split(available.labels), cell.build_network(len(available.classes))
    hyper = choose_hyperparameters(chosen.dataset, dropout=chosen.dropout)
    if chosen.recipe is not None:
        hyper = RECIPES[chosen.recipe].training_of(cell)
    if chosen.epochs is not None:
        hyper = replace(hyper, epochs=chosen.epochs)
    seconds = 0.0

    def report(progress: Progress) -> None:
        nonlocal seconds
        epoch, loss, took = len(progress.losses), progress.losses[-1], progress.seconds - seconds
        seconds = progress.seconds
        if _is_first():
            print(f"epoch {epoch}/{hyper.epochs}  loss {loss:.4f}  {took:.2f} s", flush=True)

    progress = train_network(
        hyper,
        network,
        available.select(split.train),
        seed=chosen.seed,
        device=device,
        folder=chosen.out,
        max_seconds=chosen.max_seconds,
        report=report,
    )
    if _is_first() and progress.finished:
        accuracy = measure_accuracy(network, test)
        print(f"test accuracy {accuracy:.4f}  training took {progress.seconds:.1f} s  split {split.digest}")
    elif _is_first():
        print(f"stopped after step {progress.step} of {progress.steps}; the same command goes on from there")


if __name__ == "__main__":
    main()
