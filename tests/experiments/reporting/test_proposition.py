"""Proposition 1's numbers against scipy, a known minimiser and the bounds; the pitfall of ECE by hand."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize

from experiments.reporting.proposition import ece_pitfall, make_population, measure_excess, minimise


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000), st.floats(0.01, 2))
def test_the_minimiser_is_scipys(seed: int, decay: float) -> None:
    population = make_population(seed=1)
    frequencies = np.random.default_rng(seed).multinomial(50, population.probabilities, size=2) / 50

    def objective(beta: np.ndarray) -> float:
        return decay / 2 * beta @ beta + frequencies[1] @ np.logaddexp(0, -population.margins @ beta)

    oracle = optimize.minimize(objective, np.zeros(3), method="BFGS", options={"gtol": 1e-9})
    ours = minimise(population.margins, frequencies, decay)[1]
    assert objective(ours) <= oracle.fun + 1e-12
    assert ours == pytest.approx(oracle.x, abs=1e-5)


def test_a_separable_sample_without_decay_is_refused_with_a_way_out() -> None:
    with pytest.raises(ArithmeticError, match="give more decay"):
        minimise(np.asarray([[1.0]]), np.asarray([[1.0]]), 0.0)


def test_the_bounds_hold_and_the_excess_shrinks() -> None:
    found = measure_excess(make_population(), samples=300)
    for each in found:
        assert 0 < each.mean <= each.mean_bound < each.printed_mean_bound
        assert each.probability <= each.probability_bound
    means = [each.mean for each in found]
    assert means == sorted(means, reverse=True)
    assert found[-1].probability_bound < 1 < found[0].probability_bound


def test_the_bounds_by_hand() -> None:
    """|β*|² = 1.26, ρ = 1, λ = 0.1 at n = 100: 0.063 + 0.2, and 0.126 + 0.2 as printed."""
    found = measure_excess(make_population(), (100,), samples=2, epsilon=0.5)[0]
    assert found.mean_bound == pytest.approx(0.263)
    assert found.printed_mean_bound == pytest.approx(0.326)
    assert found.probability_bound == pytest.approx(0.526)


def test_pitfall_by_hand() -> None:
    ignorant, right = ece_pitfall()
    assert ignorant.scores == pytest.approx({"ece": 0, "accuracy": 0.5, "nll": math.log(2), "brier": 0.5})
    assert right.scores == pytest.approx({"ece": 0.3, "accuracy": 1, "nll": -math.log(0.7), "brier": 2 * 0.3**2})
