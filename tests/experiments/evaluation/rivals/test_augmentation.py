import torch
from torch import nn

from experiments.evaluation.rivals.augmentation import mirrored_logits


def test_mirrored_logits_are_logs_of_mean_probabilities() -> None:
    network = nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 4))
    images, labels = torch.rand(6, 3, 8, 8), torch.zeros(6, dtype=torch.int64)
    batches = [(images[:4], labels[:4]), (images[4:], labels[4:])]
    with torch.no_grad():
        expected = (network(images).softmax(1) + network(images.flip(-1)).softmax(1)) / 2
    torch.testing.assert_close(mirrored_logits(network, batches).exp(), expected)
