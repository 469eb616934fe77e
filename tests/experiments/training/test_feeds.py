"""What a step sees: each image once an epoch, moved and flipped as an oracle does it, the same for any number of processes."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from experiments.data.datasets import SAMPLE, load_sample, scale
from experiments.training.feeds import EpochDraws, derive_seed

CPU = torch.device("cpu")


@given(parts=st.lists(st.integers(0, 2**62), min_size=1, max_size=3), other=st.integers(0, 2**62))
def test_derived_seeds_are_stable_valid_and_sensitive_to_every_part(parts: list[int], other: int) -> None:
    seed = derive_seed(*parts)
    assert seed == derive_seed(*parts)
    assert 0 <= seed < 2**63
    assert seed != derive_seed(*parts, other)


def augment_by_hand(image: Tensor, flip: bool, shift: tuple[int, int], crop: int) -> Tensor:
    """Pad, cut, flip, one after the other: uint8 [3, h, w] -> float32."""
    height, width = image.shape[1:]
    padded = torch.zeros(3, height + 2 * crop, width + 2 * crop, dtype=torch.uint8)
    padded[:, crop : crop + height, crop : crop + width] = image
    top, left = crop + shift[0], crop + shift[1]
    cut = padded[:, top : top + height, left : left + width]
    return scale(cut.flip(2) if flip else cut)


@settings(max_examples=15, deadline=None)
@given(crop=st.integers(0, 5), seed=st.integers(0, 1000), position=st.integers(0, 2))
def test_augmentation_is_pad_cut_flip(crop: int, seed: int, position: int) -> None:
    pool = load_sample(SAMPLE)[0].images[:30, :, :20, :24]
    draws = EpochDraws(30, 10, crop, seed, CPU)
    draws.begin(0)
    step = torch.tensor([3 + position])
    chosen = draws.order_at(step)
    made = draws.augment(pool, chosen, step)
    for k, index in enumerate(chosen.tolist()):
        down, right = draws.shifts[position, k].tolist()
        expected = augment_by_hand(pool[index], bool(draws.flips[position, k]), (down, right), crop)
        assert torch.equal(made[k], expected)


def test_an_epoch_shows_each_image_at_most_once_and_leaves_the_partial_batch_out() -> None:
    draws = EpochDraws(100, 30, 0, 0, CPU)
    draws.begin(0)
    shown = draws.order.flatten().tolist()
    assert len(shown) == len(set(shown)) == 90
    first = draws.order.clone()
    draws.begin(1)
    assert not torch.equal(draws.order, first)
    draws.begin(0)
    assert torch.equal(draws.order, first)
