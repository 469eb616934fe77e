import warnings

import pytest
import torch
from torch import Tensor

from lates.probes.lbfgs import HISTORY, inverse_hessian_times, minimise


def test_descent_meets_its_tolerance_in_an_ill_conditioned_valley() -> None:
    """Rosenbrock's function in four pairs of variables, minimum 0 at (1, …, 1)."""

    def rosenbrock(point: Tensor) -> tuple[Tensor, Tensor]:
        variables = point.detach().clone().requires_grad_()
        x, y = variables[::2], variables[1::2]
        value = ((1 - x) ** 2 + 100 * (y - x**2) ** 2).sum()
        (gradient,) = torch.autograd.grad(value, variables)
        return value.detach(), gradient

    start = torch.tensor([-1.2, 1.0] * 4, dtype=torch.float64)
    end = minimise(rosenbrock, start, lambda gradient: gradient, tolerance=1e-8)
    torch.testing.assert_close(end, torch.ones(8, dtype=torch.float64), atol=1e-6, rtol=0)


@pytest.mark.parametrize("steps", [0, 1, 4, HISTORY])
def test_inverse_hessian_times_matches_its_corrections_in_turn(steps: int) -> None:
    """Curvature pairs of a quadratic with a known Hessian, against the matrix itself."""
    generator = torch.Generator().manual_seed(0)
    size = 20
    root = torch.randn(size, size, generator=generator, dtype=torch.float64)
    hessian, diagonal = root @ root.T / size + torch.eye(size), torch.rand(size, generator=generator).double() + 0.5
    pairs = []
    for step in torch.randn(steps, size, generator=generator, dtype=torch.float64):
        pairs.append((step, hessian @ step, diagonal * (hessian @ step), step @ hessian @ step))
    inverse = torch.diag(diagonal)
    if pairs:
        _, change, smooth_change, curvature = pairs[-1]
        inverse = inverse * curvature / (change @ smooth_change)
    for step, change, _, curvature in pairs:
        turn = torch.eye(size) - torch.outer(step, change) / curvature
        inverse = turn @ inverse @ turn.T + torch.outer(step, step) / curvature
    gradient = torch.randn(size, generator=generator, dtype=torch.float64)
    product = inverse_hessian_times(gradient, diagonal * gradient, pairs)
    torch.testing.assert_close(product, inverse @ gradient)


def test_descent_without_a_minimum_stops_silently() -> None:
    """-log x falls forever; in float32 the estimate of its curvature overflows first."""

    def falling(point: Tensor) -> tuple[Tensor, Tensor]:
        return -point.log().sum(), -1 / point

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        end = minimise(falling, torch.full((1,), 1e-3), lambda gradient: gradient, tolerance=0.0)
    assert float(end) > 1e15
