"""Train one network from the command line.

python -m experiments.train --network resnet18 --dataset cifar100 --data DIR --epochs 3 --out runs/trial
"""

import argparse
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from experiments.data.datasets import DATASETS, load_dataset
from experiments.recipes import RECIPES, Cell
from experiments.runner.claims import claimed
from experiments.runner.faults import faults_in_words
from experiments.training.checkpoints import Progress
from experiments.training.hyperparameters import choose_hyperparameters
from experiments.training.loop import check_device, measure_accuracy, train_network
from experiments.training.networks import NETWORKS


def main(arguments: Sequence[str] | None = None) -> None:
    chosen = _parser().parse_args(arguments)
    with faults_in_words():
        device = check_device(chosen.device)
        with claimed(chosen.out) as mine:
            if not mine:
                raise ValueError(f"{chosen.out} is in use by another process. Wait for it, or choose another --out.")
            _train(chosen, device)


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


def _train(chosen: argparse.Namespace, device: torch.device) -> None:
    available, test = load_dataset(chosen.dataset, chosen.data)
    cell = Cell("", chosen.dataset, chosen.network, chosen.seed, chosen.train_fraction, dropout=chosen.dropout)
    split, network = cell.split(available.labels), cell.build_network(len(available.classes))
    paper = choose_hyperparameters(chosen.dataset, dropout=chosen.dropout)
    hyper = paper if chosen.recipe is None else RECIPES[chosen.recipe].training_of(cell)
    if chosen.epochs is not None:
        hyper = replace(hyper, epochs=chosen.epochs)

    def report(progress: Progress) -> None:
        print(f"epoch {len(progress.losses)}/{hyper.epochs}  loss {progress.losses[-1]:.4f}", flush=True)

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
    if progress.finished:
        accuracy = measure_accuracy(network, test)
        print(f"test accuracy {accuracy:.4f}  training took {progress.seconds:.1f} s  split {split.digest}")
    else:
        print(f"stopped after step {progress.step} of {progress.steps}; the same command goes on from there")


if __name__ == "__main__":
    main()
