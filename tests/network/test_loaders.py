"""Loaders of every kind, the views drawn from them, and the progress of reading them."""

import copy
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

import lates
from tests.networks import draw, loader, network, random_rows, same


class Endless(IterableDataset):
    """Knows no length, though DataLoader has a `__len__`."""

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        yield from zip(*draw(), strict=True)


class Arrays(Dataset):
    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        return draw()[0][index].numpy(), int(draw()[1][index])


@pytest.mark.parametrize(("other", "total"), [(DataLoader(Endless(), 8), None), (DataLoader(Arrays(), 8), 6)])
def test_loaders_without_a_length_and_of_arrays(other: DataLoader, total: int | None) -> None:
    calls: list[tuple[str, int, int | None]] = []
    features = lates.extract(network(), other, passes=2, budget=None, progress=lambda *call: calls.append(call))
    once = lates.extract(network(), loader())
    assert torch.equal(features.logits, once.logits.repeat(2, 1))
    assert calls == [("reading loader", done, total) for done in range(1, 7)]


@pytest.mark.parametrize("seed", [5, -5])
def test_the_random_order_of_a_loader_follows_the_seed_alone(seed: int) -> None:
    shuffled = DataLoader(TensorDataset(*draw()), batch_size=8, shuffle=True)
    torch.manual_seed(1)
    first = lates.extract(network(), shuffled, seed=seed)
    torch.manual_seed(2)
    assert same(first, lates.extract(network(), shuffled, seed=seed))
    assert not torch.equal(first.labels, lates.extract(network(), shuffled, seed=6).labels)


# Views and passes


def test_each_pass_draws_fresh_views_by_the_seed() -> None:
    model = network()
    one, two = (lates.extract(model, loader(), views="jitter", passes=passes, seed=3) for passes in (1, 2))
    assert torch.equal(two.logits[:20], one.logits)
    assert not torch.equal(two.logits[20:], one.logits)
    assert torch.equal(two.labels, one.labels.repeat(2))
    assert (two.rows, two.passes) == (40, 2)
    assert same(two, lates.extract(model, loader(), views="jitter", passes=2, seed=3))
    assert not torch.equal(one.logits, lates.extract(model, loader(), views="jitter", seed=4).logits)


@pytest.mark.parametrize("source", ["torch", "numpy", "python"])
def test_the_user_s_view_is_applied_to_fresh_inputs_and_follows_the_seed(source: str) -> None:
    draws = {"torch": lambda: float(torch.rand(())), "numpy": np.random.rand, "python": random.random}

    def dim(images: Tensor) -> Tensor:
        return images.mul_(0.5 + draws[source]())

    batches = [(images, labels) for images, labels in loader()]
    before = copy.deepcopy(batches)
    first = lates.extract(network(), batches, views=dim, passes=2, seed=1)
    assert all(torch.equal(a, b) for (a, _), (b, _) in zip(batches, before, strict=True))
    assert not torch.equal(first.logits[:20], first.logits[20:])
    draws[source]()
    assert same(first, lates.extract(network(), batches, views=dim, passes=2, seed=1))


def test_without_images_auto_reads_once() -> None:
    batches = [(torch.randn(6, 4), torch.arange(6) % 3)]
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 3)).eval()
    features = lates.extract(model, batches, views="auto", passes=3)
    assert (features.rows, features.passes) == (6, 1)
    assert lates.extract(model, batches, views=None, passes=None).rows == 6
    assert lates.extract(model, batches, views=None, passes=3).rows == 18, "the loader itself may draw views"


def test_without_views_the_training_split_is_read_once() -> None:
    read: list[int] = []

    class Counted(TensorDataset):
        def __getitem__(self, index: Any) -> tuple[Tensor, ...]:
            read.append(index)
            return super().__getitem__(index)

    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    train = DataLoader(Counted(*random_rows(60, 4).tensors), 10)
    lates.calibrate(model, train=train, holdout=DataLoader(random_rows(60, 4, seed=1), 10), views=None, progress=False)
    assert len(read) == 60
