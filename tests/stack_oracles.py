"""What other solvers make of the stack's problem."""

import numpy as np
import torch
from scipy.optimize import linprog, minimize
from torch import Tensor


def oracle(members: list[Tensor], labels: Tensor, regularise: float = 0.0) -> tuple[float, np.ndarray]:
    """The same problem by scipy's L-BFGS-B, in plain numpy."""
    n, right = len(labels), (np.arange(len(labels)), labels.numpy())
    logits = torch.stack(members, dim=2).double().numpy()
    scale, penalty = logits.std(axis=(0, 1)), regularise / np.sqrt(n)

    def value_and_gradient(scaled: np.ndarray) -> tuple[float, np.ndarray]:
        weights = scaled / scale
        combined = logits @ weights
        combined -= combined.max(axis=1, keepdims=True)
        log_normaliser = np.log(np.exp(combined).sum(axis=1))
        probabilities = np.exp(combined - log_normaliser[:, None])
        value = (log_normaliser - combined[right]).mean() + penalty / 2 * weights @ weights
        gradient = np.einsum("nc,nck->k", probabilities, logits) / n - logits[right].mean(axis=0) + penalty * weights
        return value, gradient / scale

    found = minimize(
        value_and_gradient,
        scale * np.eye(len(members))[-1],
        jac=True,
        method="L-BFGS-B",
        bounds=[(0, None)] * len(members),
        options={"ftol": 1e-16, "gtol": 1e-12, "maxiter": 10_000, "maxfun": 100_000},
    )
    return found.fun, found.x / scale


def has_no_minimiser(members: list[Tensor], labels: Tensor) -> bool:
    """By linear programming: some v >= 0 lowers no margin and raises one."""
    logits = torch.stack(members, dim=2).numpy()
    excess = (logits - logits[np.arange(len(labels)), labels.numpy()][:, None]).reshape(-1, len(members))
    excess = excess / np.maximum(np.sqrt((excess**2).mean(axis=0)), 1e-300)
    best = linprog(excess.mean(axis=0), A_ub=excess, b_ub=np.zeros(len(excess)), bounds=[(0, 1)] * len(members))
    return -best.fun > 1e-7
