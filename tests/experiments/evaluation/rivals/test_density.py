"""Distances to training rows, and the temperature that follows them."""

import pytest
import torch
from torch.nn.functional import cross_entropy

from experiments.evaluation.rivals import density
from experiments.evaluation.rivals.density import Neighbours


def test_squared_distances_are_those_of_torch_to_the_nearest_and_to_the_kth() -> None:
    generator = torch.Generator().manual_seed(0)
    train = {name: torch.randn(300, width, generator=generator) for name, width in (("stem", 4), ("logits", 10))}
    rows = {name: torch.randn(7, values.shape[1], generator=generator) for name, values in train.items()}
    neighbours = Neighbours.of(train, classes=10)
    assert neighbours.k == 50
    found = neighbours.squared_distances(rows)
    assert found.shape == (7, 2, 2)
    for place, name in enumerate(train):
        unit, others = (values / values.norm(dim=1, keepdim=True) for values in (rows[name], train[name]))
        squares = torch.cdist(unit, others, compute_mode="donot_use_mm_for_euclid_dist").square().sort(1).values
        torch.testing.assert_close(found[:, place], squares[:, [0, 49]], atol=1e-5, rtol=1e-4)
    assert Neighbours.of({"logits": train["logits"][:30]}, classes=10).k == 30


def test_the_temperature_rises_with_the_distance_that_matters() -> None:
    """Labels are drawn at T = 1 + 3 s of the first of two layers."""
    generator = torch.Generator().manual_seed(0)
    logits, distances = 4 * torch.randn(8000, 4, generator=generator), torch.rand(8000, 2, generator=generator)
    true = 1 + 3 * distances[:, :1]
    labels = (logits / true).softmax(1).multinomial(1, generator=generator)[:, 0]
    weights = density.fit(logits, distances, labels)
    assert weights.tolist() == pytest.approx([1, 3, 0], abs=0.4)
    found = float(cross_entropy(density.scaled(weights, logits, distances), labels))
    assert found == pytest.approx(float(cross_entropy(logits / true, labels)), abs=0.005)
