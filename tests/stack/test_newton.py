import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import nnls
from torch import Tensor

from lates.stack.newton import MAX_STEPS, Expansion, box_minimiser, descend, kkt_residual, minimise_convex

UNBOUNDED = torch.full((2,), math.inf, dtype=torch.float64)
seeds = st.integers(0, 100_000)


@settings(max_examples=60, deadline=None)
@given(seed=seeds, members=st.integers(1, 12), rank=st.integers(1, 12))
def test_box_minimiser_matches_nnls(seed: int, members: int, rank: int) -> None:
    random = np.random.default_rng(seed)
    matrix, target = random.normal(size=(rank, members)), random.normal(size=rank)
    _, misfit = nnls(matrix, target)
    origin = torch.from_numpy(random.uniform(0, 1, members) * random.integers(0, 2, members))
    hessian, linear = torch.from_numpy(matrix.T @ matrix), torch.from_numpy(-matrix.T @ target)
    found = box_minimiser(origin, hessian @ origin + linear, hessian, torch.full_like(origin, math.inf))
    assert bool((found >= 0).all())
    assert np.linalg.norm(matrix @ found.numpy() - target) == pytest.approx(misfit, abs=1e-5)


@settings(max_examples=60, deadline=None)
@given(seed=seeds, members=st.integers(1, 8))
def test_box_minimiser_meets_the_kkt_conditions(seed: int, members: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    factor = torch.randn(members + 3, members, generator=generator, dtype=torch.float64)
    hessian, gradient = factor.T @ factor, 5 * torch.randn(members, generator=generator, dtype=torch.float64)
    upper = torch.rand(members, generator=generator, dtype=torch.float64)
    point = upper * torch.rand(members, generator=generator, dtype=torch.float64).round()
    found = box_minimiser(point, gradient, hessian, upper)
    assert bool(((found >= 0) & (found <= upper)).all())
    assert kkt_residual(found, gradient + hessian @ (found - point), upper) < 1e-9


@pytest.mark.parametrize(
    ("value", "slope", "steps"),
    [(lambda x: x**2, lambda x: -2 * x - 1, 0), (lambda x: -x, lambda x: -1.0, MAX_STEPS)],
    ids=["a wrong gradient", "no end"],
)
def test_newton_that_does_not_converge_is_an_error(
    value: Callable[[float], float], slope: Callable[[float], float], steps: int
) -> None:
    one = torch.ones(1, dtype=torch.float64)

    def expand(point: Tensor) -> Expansion:
        return Expansion(value(float(point)), slope(float(point)) * one, torch.eye(1, dtype=torch.float64))

    with pytest.raises(RuntimeError, match=f"did not converge: after {steps} steps.*KKT residual is .*raise `prior`"):
        minimise_convex(expand, one, math.inf * one, moves=lambda step: False)


def rosenbrock(point: Tensor) -> tuple[float, Tensor]:
    x, y = point.tolist()
    gradient = torch.tensor([-2 * (1 - x) - 400 * x * (y - x * x), 200 * (y - x * x)], dtype=torch.float64)
    return (1 - x) ** 2 + 100 * (y - x * x) ** 2, gradient


def test_descend_follows_a_curved_valley_to_its_end_or_a_bound() -> None:
    start = torch.tensor([0.0, 2.0], dtype=torch.float64)
    free = descend(rosenbrock, start, UNBOUNDED)
    assert free.point.tolist() == pytest.approx([1, 1], abs=1e-6)
    assert free.residual <= 1e-8
    half = torch.full((2,), 0.5, dtype=torch.float64)
    capped = descend(rosenbrock, start.minimum(half), half)
    assert capped.unbounded
    assert capped.point.tolist() == pytest.approx([0.5, 0.25], abs=1e-7)


def test_descend_stays_where_the_value_is_finite() -> None:
    def walled(point: Tensor) -> tuple[float, Tensor]:
        value, gradient = rosenbrock(point)
        return (math.inf if float(point[0]) > 0.6 else value), gradient

    start = torch.tensor([0.0, 2.0], dtype=torch.float64)
    end = descend(walled, start, UNBOUNDED)
    assert float(end.point[0]) <= 0.6
    assert end.value < rosenbrock(start)[0]


def test_descend_stops_without_a_minimum() -> None:
    one = torch.ones(2, dtype=torch.float64)
    end = descend(lambda point: (-float(point.sum()), -one), one, UNBOUNDED)
    assert end.steps == MAX_STEPS
    assert end.residual == 1


@pytest.mark.parametrize(
    ("point", "gradient", "upper", "expected"),
    [
        (1e20, 0.3, None, 0.3),
        (1e20, -0.3, 2e20, 0.3),
        (5.0, -0.3, 5.0, 0.0),
        (0.0, 0.3, 5.0, 0.0),
        (0.1, 0.3, None, 0.1),
    ],
)
def test_kkt_residual_keeps_a_small_gradient_beside_a_large_variable(
    point: float, gradient: float, upper: float | None, expected: float
) -> None:
    at, slope = torch.tensor([point], dtype=torch.float64), torch.tensor([gradient], dtype=torch.float64)
    bound = None if upper is None else torch.tensor([upper], dtype=torch.float64)
    assert kkt_residual(at, slope, bound) == pytest.approx(expected, abs=1e-15)
