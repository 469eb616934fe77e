"""Density-aware calibration (Tomani et al. 2023): softmax(z / T(x)), T(x) = w₀ + sum_l w_l s_l(x).

s_l(x) is the squared distance, in layer l, of x to one of its neighbours among the training images: features averaged over
the image and scaled to norm 1. The published text takes the k-th neighbour, the published code the nearest; both are here.
The weights minimise the Brier score from w = 1, with w₀ in [-100, 100], w_l in [0, 10⁴] and T >= 10⁻²⁰.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from experiments.evaluation.rivals.descent import Bounds, brier, minimise

LEAST = 1e-20
BOUNDS: Bounds = ((-100.0, 100.0), (0.0, 1e4))
NEIGHBOURS: Mapping[int, int] = {10: 50, 100: 200}
"""k as published, by the number of classes; 200 for all others."""
ENTRIES = 1 << 28
"""Distances held at a time: 2 GB."""


def fit(logits: Tensor, distances: Tensor, labels: Tensor) -> Tensor:
    """Weights [1 + layers], of squared distances [n, layers]."""
    first, others = BOUNDS
    layers = distances.shape[1]
    start = torch.ones(1 + layers, dtype=torch.float64, device=logits.device)

    def loss(weights: Tensor) -> Tensor:
        return brier(scaled(weights, logits, distances).softmax(1), labels)

    return minimise(loss, start, [first, *[others] * layers])


def scaled(weights: Tensor, logits: Tensor, distances: Tensor) -> Tensor:
    """z / T(x): logits, for what comes after."""
    temperatures = (weights[0] + distances.double() @ weights[1:])[:, None]
    return logits.double() / temperatures.clamp(min=LEAST)


# Distances


@dataclass(frozen=True, eq=False)
class Neighbours:
    """Training rows of norm 1, layer -> [n, width], and the k of the k-th neighbour."""

    layers: Mapping[str, Tensor]
    k: int

    @classmethod
    def of(cls, layers: Mapping[str, Tensor], classes: int) -> "Neighbours":
        rows = min(map(len, layers.values()))
        k = min(NEIGHBOURS.get(classes, 200), rows)
        return cls({name: _unit(values) for name, values in layers.items()}, k)

    def squared_distances(self, layers: Mapping[str, Tensor]) -> Tensor:
        """To the nearest and to the k-th neighbour: [n, layers, 2]. Between unit vectors the square is 2 - 2 u·v."""
        return torch.stack([self._of_layer(train, _unit(layers[name])) for name, train in self.layers.items()], 1)

    def _of_layer(self, train: Tensor, rows: Tensor) -> Tensor:
        chunks = []
        for chunk in rows.split(max(ENTRIES // len(train), 1)):
            nearest = (chunk.to(train.device) @ train.T).topk(self.k).values
            chunks.append((2 - 2 * nearest[:, [0, -1]]).clamp(min=0))
        return torch.cat(chunks)


def _unit(values: Tensor) -> Tensor:
    return torch.nn.functional.normalize(values.float())
