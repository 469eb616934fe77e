"""Ensemble temperature scaling (Zhang et al. 2020): p = w₁ softmax(z/T) + w₂ softmax(z) + w₃/k, w on the simplex.

T minimises the squared error alone, within [0.05, 5]; then w does, a quadratic problem in three numbers. Its optimum lies
inside one of the seven faces of the simplex: with the Gram matrix G and the products c of the three predictions with the
one-hot labels, a face's stationary point solves G w - c = multiplier · 1, sum w = 1, and the best with w >= 0 is taken.
"""

from itertools import combinations

import numpy as np
import torch
from torch import Tensor

from experiments.evaluation.rivals import Rival
from experiments.evaluation.rivals.descent import brier, minimise

BOUNDS = (0.05, 5.0)
LEAST = 1e-300
"""The smallest probability: where w₃ is 0, others underflow."""


def fit(logits: Tensor, labels: Tensor) -> Rival:
    z = logits.double()
    start = torch.ones(1, dtype=torch.float64, device=z.device)
    tau = minimise(lambda point: brier((z / point).softmax(1), labels), start, [BOUNDS]).item()
    parts = _parts(logits, tau)
    gram = torch.einsum("knc,lnc->kl", parts, parts).cpu().numpy()
    products = parts.gather(2, labels.expand(len(parts), -1)[..., None]).sum((1, 2)).cpu().numpy()
    weights = torch.from_numpy(_on_simplex(gram, products)).to(z.device)

    def log_probabilities(logits: Tensor) -> Tensor:
        return torch.einsum("k,knc->nc", weights, _parts(logits, tau)).clamp(min=LEAST).log()

    return Rival(log_probabilities, 3)


def _parts(logits: Tensor, tau: float) -> Tensor:
    """[3, n, classes]"""
    z = logits.double()
    return torch.stack([(z / tau).softmax(1), z.softmax(1), torch.full_like(z, 1 / z.shape[1])])


def _on_simplex(gram: np.ndarray, products: np.ndarray) -> np.ndarray:
    """argmin over the simplex of w·G w/2 - c·w"""
    size, candidates = len(products), list[np.ndarray]()
    for count in range(1, size + 1):
        for face in map(list, combinations(range(size), count)):
            system = np.ones((count + 1, count + 1))
            system[:count, :count], system[-1, -1] = gram[np.ix_(face, face)], 0
            solution = np.linalg.lstsq(system, np.append(products[face], 1.0), rcond=None)[0][:count]
            point = np.zeros(size)
            point[face] = solution
            if (solution >= 0).all() and abs(solution.sum() - 1) < 1e-9:
                candidates.append(point)
    return min(candidates, key=lambda w: w @ gram @ w / 2 - products @ w)
