import warnings

import pytest
import torch
from torch import Tensor

from lates.lbfgs import PAIRS, Pairs, minimise


def test_the_descent_meets_its_tolerance_on_an_ill_conditioned_valley() -> None:
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


@pytest.mark.parametrize("steps", [1, 4, PAIRS + 3])
def test_the_inverse_hessian_is_that_of_its_corrections_in_turn(steps: int) -> None:
    """On a quadratic with a known Hessian, from the latest pairs against the matrix itself."""
    generator = torch.Generator().manual_seed(0)
    size = 20
    root = torch.randn(size, size, generator=generator, dtype=torch.float64)
    hessian, diagonal = root @ root.T / size + torch.eye(size), torch.rand(size, generator=generator).double() + 0.5
    pairs, kept = Pairs(diagonal), []
    for _ in range(steps):
        step = torch.randn(size, generator=generator, dtype=torch.float64)
        kept.append((step, hessian @ step))
        pairs.add(step, hessian @ step, diagonal * (hessian @ step))
    kept = kept[-PAIRS:]
    step, change = kept[-1]
    inverse = torch.diag(diagonal) * (step @ change) / (change @ (diagonal * change))
    for step, change in kept:
        turn = torch.eye(size) - torch.outer(step, change) / (step @ change)
        inverse = turn @ inverse @ turn.T + torch.outer(step, step) / (step @ change)
    gradient = torch.randn(size, generator=generator, dtype=torch.float64)
    expected = inverse @ gradient
    torch.testing.assert_close(pairs.inverse_hessian_times(gradient, diagonal * gradient), expected)


def test_a_pair_along_which_the_slope_falls_is_passed_over() -> None:
    pairs = Pairs(torch.zeros(3))
    pairs.add(torch.ones(3), -torch.ones(3), -torch.ones(3))
    gradient = torch.tensor([1.0, 2.0, 3.0])
    assert torch.equal(pairs.inverse_hessian_times(gradient, gradient), gradient)


def test_a_descent_without_end_stops_where_the_numbers_do() -> None:
    """-log x falls for ever; in float32 the estimate of its curvature goes out of range first. Nothing is raised or warned."""

    def falling(point: Tensor) -> tuple[Tensor, Tensor]:
        return -point.log().sum(), -1 / point

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        end = minimise(falling, torch.full((1,), 1e-3), lambda gradient: gradient, tolerance=0.0)
    assert float(end) > 1e15
