import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import nnls
from torch import Tensor

from lates.newton import MAX_STEPS, Expansion, Trend, box_minimiser, descend, kkt_residual, minimise_convex

seeds = st.integers(0, 100_000)


@settings(max_examples=60, deadline=None)
@given(seed=seeds, members=st.integers(1, 12), rank=st.integers(1, 12))
def test_the_model_s_minimiser_is_that_of_non_negative_least_squares(seed: int, members: int, rank: int) -> None:
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
def test_the_model_s_minimiser_meets_the_conditions_of_the_box(seed: int, members: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    factor = torch.randn(members + 3, members, generator=generator, dtype=torch.float64)
    hessian, gradient = factor.T @ factor, 5 * torch.randn(members, generator=generator, dtype=torch.float64)
    upper = torch.rand(members, generator=generator, dtype=torch.float64)
    point = upper * torch.rand(members, generator=generator, dtype=torch.float64).round()
    found = box_minimiser(point, gradient, hessian, upper)
    assert bool(((found >= 0) & (found <= upper)).all())
    assert kkt_residual(found, gradient + hessian @ (found - point), upper) < 1e-9


def test_newton_that_is_told_a_wrong_gradient_says_that_it_did_not_converge() -> None:
    def expand(point: Tensor) -> Expansion:
        return Expansion(float(point.square().sum()), -2 * point - 1, torch.eye(1, dtype=torch.float64))

    one = torch.ones(1, dtype=torch.float64)
    with pytest.raises(RuntimeError, match=r"did not converge: after 0 steps.*KKT residual is .*regularise=1\.0"):
        minimise_convex(
            expand, lambda point: expand(point).value, one, 10 * one, lambda _, __: "settled", coercive=True
        )


def rosenbrock(point: Tensor) -> tuple[float, Tensor]:
    x, y = point.tolist()
    gradient = torch.tensor([-2 * (1 - x) - 400 * x * (y - x * x), 200 * (y - x * x)], dtype=torch.float64)
    return (1 - x) ** 2 + 100 * (y - x * x) ** 2, gradient


def test_descend_follows_a_curved_valley_to_its_end_or_to_a_bound() -> None:
    start = torch.tensor([0.0, 2.0], dtype=torch.float64)
    free = descend(rosenbrock, start)
    assert free.point.tolist() == pytest.approx([1, 1], abs=1e-6)
    assert free.residual <= 1e-8
    capped = descend(rosenbrock, start.clamp(max=0.5), upper=torch.full((2,), 0.5, dtype=torch.float64))
    assert capped.bounded
    assert capped.point.tolist() == pytest.approx([0.5, 0.25], abs=1e-7)


def test_descend_stays_out_of_where_the_value_is_infinite() -> None:
    def walled(point: Tensor) -> tuple[float, Tensor]:
        value, gradient = rosenbrock(point)
        return (math.inf if float(point[0]) > 0.6 else value), gradient

    start = torch.tensor([0.0, 2.0], dtype=torch.float64)
    end = descend(walled, start)
    assert float(end.point[0]) <= 0.6
    assert end.value < rosenbrock(start)[0]


def test_descend_without_an_end_stops() -> None:
    end = descend(lambda point: (-float(point.sum()), -torch.ones_like(point)), torch.ones(2, dtype=torch.float64))
    assert end.steps == MAX_STEPS
    assert end.residual == 1


def test_a_hessian_that_serves_is_kept_and_no_other() -> None:
    """f = sum e^x - x, whose minimum is at 0 in every variable, sought from nearby."""
    hessians = 0

    def value_and_gradient(point: Tensor) -> tuple[float, Tensor]:
        moved = point - 1
        return float((moved.exp() - moved).sum()), moved.exp() - 1

    def expand(point: Tensor) -> Expansion:
        nonlocal hessians
        hessians += 1
        return Expansion(*value_and_gradient(point), (point - 1).exp().diag())

    def value_of(point: Tensor) -> float:
        return value_and_gradient(point)[0]

    def settled(point: Tensor, step: Tensor) -> Trend:
        return "settled"

    start, upper = torch.tensor([1.03, 0.98], dtype=torch.float64), torch.full((2,), 9.0, dtype=torch.float64)
    found = [
        minimise_convex(expand, value_of, start, upper, settled, True, cheaper)
        for cheaper in (value_and_gradient, None)
    ]
    assert hessians == 1 + 1 + found[1].steps
    given = torch.eye(2, dtype=torch.float64)
    found.append(minimise_convex(expand, value_of, start, upper, settled, True, value_and_gradient, given))
    assert hessians == 1 + 1 + found[1].steps
    poor = minimise_convex(expand, value_of, start, upper, settled, True, value_and_gradient, 1e6 * given)
    assert poor.steps == 1 + found[1].steps  # one, too short, before the Hessian there is asked for
    for end in (*found, poor):
        assert end.residual <= 1e-10
        torch.testing.assert_close(end.point, torch.ones(2, dtype=torch.float64), rtol=0, atol=1e-9)


@settings(max_examples=60, deadline=None)
@given(seed=seeds, variables=st.integers(1, 4), apart=st.floats(-9, -1))
def test_the_end_of_a_last_step_is_foreseen_with_a_residual_that_is_proven(
    seed: int, variables: int, apart: float
) -> None:
    """f = mean_i logsumexp_c A_ic·x - b·x with its minimum in a known place, sought from nearby."""
    generator = torch.Generator().manual_seed(seed)
    slopes = torch.randn(30, 5, variables, generator=generator, dtype=torch.float64)
    best = 1 + torch.rand(variables, generator=generator, dtype=torch.float64)
    target = torch.einsum("ic,icv->v", (slopes @ best).softmax(dim=1), slopes) / 30

    def value_of(point: Tensor) -> float:
        return float((slopes @ point).logsumexp(dim=1).mean() - target @ point)

    def expand(point: Tensor) -> Expansion:
        p = (slopes @ point).softmax(dim=1)
        means = torch.einsum("ic,icv->iv", p, slopes)
        hessian = torch.einsum("ic,icv,icw->vw", p, slopes, slopes) - means.T @ means
        return Expansion(value_of(point), means.mean(dim=0) - target, hessian / 30)

    start, upper = best + 10**apart, torch.full_like(best, 100.0)
    reach = float((slopes.amax(dim=1) - slopes.amin(dim=1)).amax())
    end = minimise_convex(expand, value_of, start, upper, lambda _, __: "settled", True, reach=reach)
    assert kkt_residual(end.point, expand(end.point).gradient) <= end.residual + 1e-15
    assert end.residual <= 1e-10
    assert end.value == pytest.approx(value_of(end.point), abs=1e-14)
    torch.testing.assert_close(end.point, best, rtol=0, atol=1e-8)


@pytest.mark.parametrize(("reach", "expected"), [(2.0, 1), (1e4, 2), (1e7, 2), (math.inf, 2)])
def test_a_last_step_is_looked_at_where_its_error_may_be_large(reach: float, expected: int) -> None:
    """f = log(2 cosh(x - 1)), two exponentials whose slopes differ by 2, from 1e-6 beside the minimum: one step."""
    looks = 0

    def value_of(point: Tensor) -> float:
        return float(((point - 1).cosh() * 2).log())

    def expand(point: Tensor) -> Expansion:
        nonlocal looks
        looks += 1
        slope = (point - 1).tanh()
        return Expansion(value_of(point), slope, (1 - slope.square())[None])

    one = torch.ones(1, dtype=torch.float64)
    end = minimise_convex(expand, value_of, one + 1e-6, 9 * one, lambda _, __: "settled", True, reach=reach)
    assert (looks, end.steps) == (expected, 1)
    assert float(end.point) == pytest.approx(1, abs=1e-12)


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
def test_the_residual_keeps_a_small_gradient_beside_a_large_variable(
    point: float, gradient: float, upper: float | None, expected: float
) -> None:
    at, slope = torch.tensor([point], dtype=torch.float64), torch.tensor([gradient], dtype=torch.float64)
    bound = None if upper is None else torch.tensor([upper], dtype=torch.float64)
    assert kkt_residual(at, slope, bound) == pytest.approx(expected, abs=1e-15)
