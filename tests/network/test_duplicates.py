"""Rows that train and hold-out share are refused where the loaders show it, and noticed by their digests elsewhere."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
)

import lates
from lates.network import refuse_overlap
from lates.network.duplicates import digest_rows
from tests.networks import draw, network

DATASET = TensorDataset(*draw(200))
BATCHES = list(DataLoader(DATASET, 50))


@pytest.mark.parametrize(
    ("train", "holdout", "kind"),
    [(DataLoader(DATASET), DataLoader(DATASET, shuffle=True), "TensorDataset"), (BATCHES, BATCHES, "list")],
)
def test_one_loader_or_whole_dataset_for_both_is_refused(train: Any, holdout: Any, kind: str) -> None:
    with pytest.raises(ValueError, match=rf"train and holdout read the same {kind}.*random_split"):
        lates.calibrate(network(), train=train, holdout=holdout, progress=False)


def test_loaders_without_a_length_are_accepted() -> None:
    class Stream(IterableDataset[torch.Tensor]):
        def __iter__(self) -> Iterator[torch.Tensor]:
            return iter(torch.zeros(3, 2))

    refuse_overlap(DataLoader(Stream(), batch_size=2), DataLoader(Stream(), batch_size=2))


def test_loaders_of_disjoint_rows_by_batch_samplers_are_accepted() -> None:
    samplers = (BatchSampler(SequentialSampler(part), 25, False) for part in (range(100), range(100, 200)))
    batches = ([list(range(start, start + 25)) for start in range(first, first + 100, 25)] for first in (0, 100))
    for train, holdout in ([DataLoader(DATASET, batch_sampler=rows) for rows in pair] for pair in (samplers, batches)):
        refuse_overlap(train, holdout)
    whole = BatchSampler(RandomSampler(DATASET), 25, False)
    with pytest.raises(ValueError, match="train and holdout read the same TensorDataset"):
        refuse_overlap(DataLoader(DATASET), DataLoader(DATASET, batch_sampler=whole))


@pytest.mark.parametrize(
    "holdout",
    [
        DataLoader(Subset(DATASET, range(40, 100)), 20),
        DataLoader(DATASET, 20, sampler=SubsetRandomSampler(range(40, 100))),
        [{"images": draw(200)[0][40:100], "labels": torch.arange(60) % 3}],
    ],
)
@pytest.mark.filterwarnings("ignore:The weights are fitted to")
def test_shared_rows_are_noticed_however_the_loaders_choose_them(holdout: Any) -> None:
    train = DataLoader(Subset(DATASET, range(42)), 20)
    with pytest.warns(UserWarning, match="2 of 60 hold-out rows have the inputs of training rows"):
        lates.calibrate(network(), train=train, holdout=holdout, budget=None, views=None, progress=False)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.uint8, torch.bool])
def test_digests_are_equal_exactly_for_equal_rows(dtype: torch.dtype) -> None:
    rows = torch.arange(1, 7).repeat(2)[:, None] * torch.tensor([1, 0, 1])
    rows = (rows >> torch.arange(3)).bitwise_and(1).to(dtype) if dtype == torch.bool else rows.to(dtype)
    digests, equal = digest_rows({"x": rows, "y": rows}, 12), (rows[:, None] == rows).all(2)
    assert torch.equal(digests[:, None] == digests, equal)
    assert digest_rows("text", 3).tolist() == [0, 0, 0]
