"""Minimise a smooth function: scipy's L-BFGS-B in float64, the derivative by autograd."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor

Bounds = Sequence[tuple[float | None, float | None]]


def minimise(loss: Callable[[Tensor], Tensor], start: Tensor, bounds: Bounds | None = None) -> Tensor:
    """A local minimiser near `start`, a float64 vector; the global one where `loss` is convex."""

    def value_and_gradient(values: np.ndarray) -> tuple[float, np.ndarray]:
        point = torch.from_numpy(values).to(start.device).requires_grad_()
        with torch.enable_grad():
            value = loss(point)
            (gradient,) = torch.autograd.grad(value, point)
        return value.item(), gradient.cpu().numpy()

    options = {"maxiter": 500, "maxfun": 1000, "ftol": 1e-11, "gtol": 1e-7, "maxcor": 20}
    solution = minimize(value_and_gradient, start.cpu().numpy(), jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    return torch.from_numpy(solution.x).to(start.device)


def brier(probabilities: Tensor, labels: Tensor) -> Tensor:
    """mean_i sum_c (p_ic - [c = y_i])²"""
    chosen = probabilities.gather(1, labels[:, None])
    return (probabilities.square().sum(1) - 2 * chosen[:, 0] + 1).mean()
