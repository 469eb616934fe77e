"""MAGIC (which of two kinds of particle a telescope saw, 10 columns) and a multilayer perceptron."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

import lates
from experiments.text_and_tables.problem import CLEAN, Families, Problem

FAMILIES = Families(("missing", "drift", "coarse"), ("noise",))
TRAINED, HELD, TESTED = 4000, 2000, 4000
WIDTH, DEPTH, EPOCHS, BATCH, RATE = 128, 4, 40, 128, 1e-3
SPLIT_SEED, SHIFT_SEED = 0, 1
Split = tuple[Tensor, Tensor]


def make_problem(file: Path, seed: int) -> Problem:
    train, holdout, test = read_splits(file)
    scale = lates.views.measure_channels(train[0])
    noise, swap = lates.views.noise, lates.views.swap
    return Problem(
        model=train_network(*train, seed),
        train=batches(*train),
        holdout=shifted_loaders(*holdout),
        test=shifted_loaders(*test),
        views={
            "noise 0.1": lambda rows: noise(rows, scale, strength=0.1),
            "noise 0.3": lambda rows: noise(rows, scale, strength=0.3),
            "swap .15": lambda rows: swap(rows, share=0.15),
            "swap .3": lambda rows: swap(rows, share=0.3),
        },
        budget=0.05,
    )


def read_splits(file: Path) -> list[Split]:
    """Training split, hold-out, test set; columns standardised by the first."""
    lines = sorted(set(file.read_text("utf-8").splitlines()))
    cells = np.array([line.split(",") for line in lines])
    labels = torch.from_numpy(np.unique(cells[:, -1], return_inverse=True)[1]).long()
    rows = torch.from_numpy(cells[:, :-1].astype(np.float32))
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(SPLIT_SEED))
    parts = order[: TRAINED + HELD + TESTED].split([TRAINED, HELD, TESTED])
    centre, deviation = rows[parts[0]].mean(0), rows[parts[0]].std(0)
    return [((rows[part] - centre) / deviation, labels[part]) for part in parts]


def batches(rows: Tensor, labels: Tensor) -> list[Split]:
    return list(zip(rows.split(500), labels.split(500), strict=True))


def train_network(rows: Tensor, labels: Tensor, seed: int) -> nn.Module:
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        widths = [rows.shape[1], *[WIDTH] * DEPTH]
        hidden = [nn.Sequential(nn.Linear(a, b), nn.ReLU()) for a, b in pairwise(widths)]
        network = nn.Sequential(*hidden, nn.Linear(WIDTH, int(labels.max()) + 1))
        optimiser = torch.optim.Adam(network.parameters(), lr=RATE)
        for _ in range(EPOCHS):
            for chosen in torch.randperm(len(labels)).split(BATCH):
                optimiser.zero_grad()
                nn.functional.cross_entropy(network(rows[chosen]), labels[chosen]).backward()
                optimiser.step()
    return network.eval()


def shifted_loaders(rows: Tensor, labels: Tensor) -> dict[str, list[Split]]:
    """Rows are in units of the columns' deviations around their means."""
    generator = torch.Generator().manual_seed(SHIFT_SEED)
    sets = {CLEAN: rows}
    for strength, missing, drift, step, noise in ((1, 1, 0.25, 0.75, 0.25), (2, 2, 0.5, 1.5, 0.5)):
        ranks = torch.rand(rows.shape, generator=generator).argsort(1).argsort(1)
        sets[f"missing {strength}"] = torch.where(ranks < missing, 0.0, rows)
        sets[f"drift {strength}"] = rows + drift * torch.randn(rows.shape[1], generator=generator)
        sets[f"coarse {strength}"] = (rows / step).round() * step
        sets[f"noise {strength}"] = rows + noise * torch.randn(rows.shape, generator=generator)
    return {name: batches(sets[name], labels) for name in FAMILIES.sets}
