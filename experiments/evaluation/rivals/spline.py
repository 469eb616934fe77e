"""Spline calibration of the top label (Gupta et al. 2021).

Sort the hold-out by its top probability s. Let G(t) be the share of all rows that are among the first t n and right; its
derivative at t is the chance to be right at the t-quantile of s. G is fitted by a natural cubic spline with 6 even knots,
least squares in the knots' values; a test row's t is read off the sorted s. The other classes share what is left in
proportion: p'_top = G'(t), p'_c = p_c (1 - G'(t)) / (1 - s). Probabilities are those of temperature scaling, which changes t
only where top probabilities change places.
"""

import numpy as np
import torch
from scipy.interpolate import CubicSpline
from torch import Tensor

from experiments.evaluation.rivals import Rival, temperature

KNOTS = 6


def fit(logits: Tensor, labels: Tensor) -> Rival:
    start = temperature.fit(logits, labels)
    top, place = start.log_probabilities(logits).exp().max(1)
    tops, order = (values.cpu().numpy() for values in top.sort())
    right = (place == labels).cpu().numpy()[order]
    rows = len(tops)
    knots, t = np.linspace(0, 1, KNOTS), (np.arange(rows) + 1) / rows
    basis = CubicSpline(knots, np.eye(KNOTS), bc_type="natural")
    values = np.linalg.lstsq(basis(t), right.cumsum() / rows, rcond=None)[0]
    least = 1 / (rows + 1)
    chances = np.clip(basis(t, 1) @ values, least, 1 - least)  # G' at the quantiles of the hold-out

    def log_probabilities(logits: Tensor) -> Tensor:
        logs = start.log_probabilities(logits)
        top, place = logs.max(1, keepdim=True)
        chance = torch.from_numpy(np.interp(top.exp().cpu().numpy(), tops, chances)).to(logs.device)
        rest = logs.scatter(1, place, -torch.inf).logsumexp(1, keepdim=True)
        return (logs - rest + (1 - chance).log()).scatter(1, place, chance.log())

    return Rival(log_probabilities, KNOTS + 1)
