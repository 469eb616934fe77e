"""Multi-class isotonic regression (IRM, Zhang et al. 2020): one non-decreasing map f of all n · k pairs (p_ic, [c = y_i]).

p'_ic ∝ f(p_ic) + 1e-9 p_ic, which keeps the order of the classes. f is 0 up to the smallest probability that was ever right,
where the log-loss of a test row may be infinite; so the result is mixed with 1/(n + 1) of the uniform distribution.
"""

import numpy as np
import torch
from scipy.optimize import isotonic_regression
from torch import Tensor

from experiments.evaluation.rivals import Rival

ORDER = 1e-9


def fit(logits: Tensor, labels: Tensor) -> Rival:
    """f is kept as its corners, linear between them."""
    p = logits.double().softmax(1)
    right = torch.zeros_like(p).scatter_(1, labels[:, None], 1.0)
    inputs, place, counts = np.unique(p.flatten().cpu().numpy(), return_inverse=True, return_counts=True)
    means = np.bincount(place, right.flatten().cpu().numpy()) / counts
    outputs = isotonic_regression(means, weights=counts.astype(np.float64)).x
    flat = np.diff(outputs) == 0
    corner = ~(np.append(False, flat) & np.append(flat, False))  # inside of a constant piece nothing need be kept
    inputs, outputs, rows = inputs[corner], outputs[corner], len(labels)

    def log_probabilities(logits: Tensor) -> Tensor:
        p = logits.double().softmax(1)
        mapped = torch.from_numpy(np.interp(p.cpu().numpy(), inputs, outputs)).to(p.device) + ORDER * p
        mapped /= mapped.sum(1, keepdim=True)
        return ((rows * mapped + 1 / p.shape[1]) / (rows + 1)).log()

    return Rival(log_probabilities, 2 * len(inputs))
