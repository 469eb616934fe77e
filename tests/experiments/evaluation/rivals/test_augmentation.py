"""The mean over copies of an image."""

import torch
from torch import nn

from experiments.evaluation.rivals.augmentation import SHIFTS, mean_logits, shifted, with_mirror_image


def test_mean_logits_are_logs_of_mean_probabilities() -> None:
    network = nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 4))
    images, labels = torch.rand(6, 3, 8, 8), torch.zeros(6, dtype=torch.int64)
    batches = [(images[:4], labels[:4]), (images[4:], labels[4:])]
    with torch.no_grad():
        expected = (network(images).softmax(1) + network(images.flip(-1)).softmax(1)) / 2
    torch.testing.assert_close(mean_logits(network, batches, with_mirror_image).exp(), expected)


def test_shifted_copies_begin_with_the_image_and_repeat_by_seed() -> None:
    images = torch.rand(5, 3, 16, 16)
    first, again, other = shifted(0)(images), shifted(0)(images), shifted(1)(images)
    assert len(first) == SHIFTS
    assert torch.equal(first[0], images)
    assert all(map(torch.equal, first, again))
    assert not all(map(torch.equal, first, other))
