"""A user's folder: a module with a small network and its data, and the network's weights, trained for a second."""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

MODULE = "their_module"
TEXT = """
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import lates

CLASSES = 4


class Network(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.first = nn.Sequential(nn.Linear(6, width), nn.ReLU())
        self.second = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Dropout(0.2))
        self.last = nn.Linear(width, CLASSES)

    def forward(self, rows):
        return self.last(self.second(self.first(rows)))


def draw(n, seed, noise=1.0):
    centres = torch.randn(CLASSES, 6, generator=torch.Generator().manual_seed(9))
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(CLASSES, (n,), generator=generator)
    return centres[labels] + noise * torch.randn(n, 6, generator=generator), labels


def loader(n, seed, noise=1.0):
    return DataLoader(TensorDataset(*draw(n, seed, noise)), batch_size=100)


def make_model():
    torch.manual_seed(0)
    return Network()


def make_talker():
    print("loading …")
    return make_model()


def make_wide():
    return Network(32)


def make_ensemble():
    return [make_model(), make_model()]


def make_dropout():
    return lates.mc_dropout(make_model(), samples=3)


def make_nothing():
    return "a network"


def make_trouble():
    raise RuntimeError("the disk is full of cats")


def make_loaders():
    tests = {"plain": loader(500, 3), "noisy": loader(400, 4, 1.6)}
    return {"train": loader(300, 1), "holdout": loader(400, 2), "test": tests}


def make_tuple():
    return loader(300, 1), loader(400, 2), loader(500, 3)


def make_holdout():
    return {"holdout": loader(400, 2)}


def make_validation():
    return {"train": loader(300, 1), "validation": loader(400, 2)}


def make_once():
    return {"train": loader(300, 1), "holdout": iter(loader(400, 2))}


def make_number():
    return {"train": loader(300, 1), "holdout": 3}


class Endless(IterableDataset):
    def __iter__(self):
        row = draw(1, 1)
        while True:
            yield row[0][0], row[1][0]


def make_endless():
    return {"train": DataLoader(Endless(), batch_size=4, num_workers=2), "holdout": loader(400, 2)}


def mirror(rows):
    return -rows
"""


@dataclass(frozen=True)
class Folder:
    path: Path
    weights: Path

    def name(self, function: str) -> str:
        return f"{MODULE}:{function}"


def make_folder(path: Path) -> Folder:
    """Write the module, train its network on its 300 training rows until it is overconfident, and save the weights."""
    (path / f"{MODULE}.py").write_text(TEXT, "utf-8")
    scope: dict = {}
    exec(compile(TEXT, MODULE, "exec"), scope)
    with torch.random.fork_rng([]):
        network = scope["make_model"]()
        rows, labels = scope["draw"](300, 1)
        optimiser = torch.optim.Adam(network.parameters(), lr=1e-2)
        for _ in range(200):
            optimiser.zero_grad()
            nn.functional.cross_entropy(network(rows), labels).backward()
            optimiser.step()
    torch.save(network.state_dict(), path / "weights.pt")
    return Folder(path, path / "weights.pt")
