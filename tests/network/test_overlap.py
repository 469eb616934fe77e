"""Rows that train and hold-out share are refused, however the loaders choose them."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import BatchSampler, DataLoader, Subset, SubsetRandomSampler, TensorDataset

from lates.network.overlap import refuse_overlap

IMAGES, LABELS = torch.arange(6.0).reshape(3, 2), torch.tensor([2, 1, 0])
DATASET = TensorDataset(torch.zeros(10, 2), torch.zeros(10, dtype=torch.long))


def over(rows: Any) -> DataLoader:
    return DataLoader(Subset(DATASET, rows))


def sampled(rows: list[int]) -> DataLoader:
    return DataLoader(DATASET, sampler=SubsetRandomSampler(rows))


def batch_sampled(rows: list[int]) -> DataLoader:
    return DataLoader(DATASET, batch_sampler=BatchSampler(SubsetRandomSampler(rows), 2, drop_last=False))


def listed(rows: list[int]) -> DataLoader:
    return DataLoader(DATASET, sampler=rows)


@pytest.mark.parametrize("make", [over, sampled, batch_sampled, listed])
@settings(deadline=None)
@given(rows=st.sets(st.integers(0, 9), min_size=1), other=st.sets(st.integers(0, 9), min_size=1))
def test_rows_of_one_dataset_are_refused_exactly_when_they_overlap(
    make: Callable[[list[int]], DataLoader], rows: set[int], other: set[int]
) -> None:
    if rows & other:
        with pytest.raises(ValueError, match=rf"share {len(rows & other)} rows of one TensorDataset \(row"):
            refuse_overlap(make(list(rows)), make(list(other)))
    else:
        refuse_overlap(make(list(rows)), make(list(other)))


def test_subsets_of_subsets_are_traced_to_their_dataset() -> None:
    inner = Subset(DATASET, [5, 6, 7])
    with pytest.raises(ValueError, match=r"share 1 rows.*\(row 7, for one\)"):
        refuse_overlap(DataLoader(Subset(inner, [2])), over(np.array([7, 8])))
    refuse_overlap(DataLoader(Subset(inner, [0, 1])), over(torch.tensor([7, 8])))
    with pytest.raises(ValueError, match=r"\(row 6, for one\)"):
        refuse_overlap(DataLoader(inner, sampler=SubsetRandomSampler([1])), sampled([6]))


@pytest.mark.parametrize("holdout", [DataLoader(DATASET), DataLoader(DATASET, shuffle=True), over([1, 2])])
def test_the_same_dataset_read_whole_is_refused(holdout: DataLoader) -> None:
    with pytest.raises(ValueError, match=r"train and holdout read the same TensorDataset.*random_split"):
        refuse_overlap(DataLoader(DATASET), holdout)


def test_loaders_without_a_dataset_are_compared_themselves() -> None:
    batches = [(IMAGES, LABELS)]
    with pytest.raises(ValueError, match="read the same list"):
        refuse_overlap(batches, batches)
    with pytest.raises(ValueError, match="share 3 rows: their tensors lie in the same memory"):
        refuse_overlap(batches, [{"images": IMAGES, "labels": LABELS}])
    refuse_overlap(batches, [(IMAGES.clone(), LABELS)])
    refuse_overlap([(IMAGES[:2], LABELS)], [(IMAGES[2:], LABELS)])
