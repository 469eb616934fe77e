"""What other solvers make of the stack's problem."""

import numpy as np
import torch
from scipy.optimize import linprog, minimize
from torch import Tensor

from lates.stack.losses import NLL, Loss


def penalised(
    loss: Loss,
    members: list[Tensor],
    labels: Tensor,
    weights: Tensor,
    regularise: float = 0.0,
    prior: float = 0.0,
    all_right: bool | None = None,
) -> Tensor:
    """The objective by its definition, for autograd: loss, Proposition 1's penalty and the prior, which assumes an error where
    the prediction is `all_right` (None: where the head is)."""
    n, rows = len(labels), torch.arange(len(labels))
    logits = torch.stack(members, dim=2).double()
    value = loss(logits @ weights, labels) + regularise / n**0.5 / 2 * weights @ weights
    if prior == 0:
        return value
    deviations = (logits - logits.mean(dim=1, keepdim=True)).square().mean(dim=(0, 1)).sqrt()
    head = deviations[-1] if deviations[-1] > 0 else torch.tensor(1.0)
    probes = 3 * (deviations[:-1] * weights[:-1]).sum() / head
    value = value + prior * head / n * ((1 + (weights[-1] - 1) ** 2 + probes**2).sqrt() - 1)
    others = logits[:, :, -1].index_put((rows, labels), torch.tensor(-torch.inf, dtype=torch.float64))
    if bool((logits[:, :, -1].argmax(dim=1) == labels).all()) if all_right is None else all_right:
        excess = logits - logits[rows, labels][:, None]
        wrong = ((others.softmax(dim=1)[:, :, None] * excess).sum(dim=1) @ weights).mean()
        value = value + (NLL(logits @ weights, labels) - wrong) / n
    return value


def oracle(members: list[Tensor], labels: Tensor, regularise: float = 0.0, prior: float = 0.0) -> tuple[float, np.ndarray]:
    """The same problem by scipy's L-BFGS-B and autograd."""
    scale = torch.stack(members, dim=2).double().std(dim=(0, 1), correction=0)

    def value_and_gradient(scaled: np.ndarray) -> tuple[float, np.ndarray]:
        point = torch.from_numpy(scaled).requires_grad_()
        value = penalised(NLL, members, labels, point / scale, regularise, prior)
        return value.item(), torch.autograd.grad(value, point)[0].numpy()

    found = minimize(
        value_and_gradient,
        scale.numpy() * np.eye(len(members))[-1],
        jac=True,
        method="L-BFGS-B",
        bounds=[(0, None)] * len(members),
        options={"ftol": 1e-16, "gtol": 1e-12, "maxiter": 10_000, "maxfun": 100_000},
    )
    return found.fun, found.x / scale.numpy()


def has_no_minimiser(members: list[Tensor], labels: Tensor) -> bool:
    """By linear programming: some v >= 0 lowers no margin and raises one."""
    logits = torch.stack(members, dim=2).numpy()
    excess = (logits - logits[np.arange(len(labels)), labels.numpy()][:, None]).reshape(-1, len(members))
    excess = excess / np.maximum(np.sqrt((excess**2).mean(axis=0)), 1e-300)
    best = linprog(excess.mean(axis=0), A_ub=excess, b_ub=np.zeros(len(excess)), bounds=[(0, 1)] * len(members))
    return -best.fun > 1e-7
