"""Without a prior: where the hold-out has no minimum, where it hardly has one, and where members or rows say nothing."""

import math
from functools import partial

import pytest
import torch
from scipy.optimize import root_scalar

from lates.stack.newton import TOLERANCE
from lates.stack.stack import fit_stack as fit_with_prior
from tests.problems import awkward, noisy_views
from tests.stack.oracles import has_no_minimiser, oracle

fit_stack = partial(fit_with_prior, prior=0)


def test_certificate_only_where_linear_programming_finds_a_minimiser() -> None:
    unbounded = []
    for seed in range(100):
        logits, labels = awkward(seed)
        stack = fit_stack(logits, labels)
        assert stack.unbounded == has_no_minimiser(logits, labels)
        assert stack.certified != stack.unbounded
        assert stack.unbounded or stack.residual <= TOLERANCE
        unbounded.append(stack.unbounded)
    assert 10 < sum(unbounded) < 90


@pytest.mark.parametrize("rows", [100, 4_000])
def test_every_label_right_is_unbounded_and_not_certified(rows: int) -> None:
    logits, _ = noisy_views(rows, 4, 3)
    labels = logits[-1].argmax(dim=1)
    for members in (logits, logits[-1:]):
        stack = fit_stack(members, labels)
        assert stack.unbounded
        assert not stack.certified
        assert bool(stack.weights.isfinite().all())
        assert max(stack.spread.values()) <= 1000 * (1 + 1e-12)
        assert stack.nll < 0.01
    assert fit_stack(logits, labels, regularise=0.1).certified
    assert fit_with_prior(logits, labels).certified


def test_one_right_row_leaves_a_member_unbounded() -> None:
    logits, labels = noisy_views(100, 4, 2)
    lone = torch.zeros(100, 4, dtype=torch.float64)
    lone[17, labels[17]] = 5.0
    stack = fit_stack([lone, *logits], labels)
    assert stack.unbounded
    assert not stack.certified
    assert stack.nll < fit_stack(logits, labels).nll


@pytest.mark.parametrize(("rows", "faint"), [(2, 1e-9), (20, 1e-8), (1000, 1e-7), (1000, 1e-8)])
def test_certificate_is_right_to_a_thousandth_where_one_faint_row_bounds_the_weight(rows: int, faint: float) -> None:
    """One row right by 2, one wrong by `faint` = e, all others say nothing: 2 / (1 + exp(2 b)) = e / (1 + exp(-e b))."""
    logits = torch.zeros(rows, 2, dtype=torch.float64)
    logits[0], logits[1] = torch.tensor([1.0, -1.0]), torch.tensor([-faint / 2, faint / 2])
    stack = fit_stack([logits], torch.zeros(rows, dtype=torch.int64))

    def slope(weight: float) -> float:
        return faint / (1 + math.exp(-faint * weight)) - 2 / (1 + math.exp(2 * weight))

    best = root_scalar(slope, bracket=(0, 30), xtol=1e-12).root
    assert stack.certified != stack.unbounded
    if stack.certified:
        assert 2 * abs(float(stack.weights[0]) - best) < 1e-3


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", ["sure", "dull", "wrong", "heavy tails", "a few far too sure"])
def test_temperature_of_any_confidence_matches_lbfgsb(kind: str, dtype: torch.dtype) -> None:
    (truth,), labels = noisy_views(4_000, 5, members=1)
    rows = torch.arange(len(labels))[:, None]
    factors = {
        "sure": torch.tensor(300.0),
        "dull": torch.tensor(1e-3),
        "wrong": torch.tensor(-1.0),
        "heavy tails": (torch.pi * ((0.618 * rows) % 1 - 0.5)).tan().abs(),
        "a few far too sure": torch.where(rows % 100 == 0, 1e3, 1.0),
    }
    logits = (factors[kind] * truth).to(dtype)
    stack = fit_stack([logits], labels)
    value, weights = oracle([logits], labels)
    assert stack.certified
    assert stack.nll <= value + 1e-12
    assert stack.weights.tolist() == pytest.approx(weights.tolist(), rel=1e-3)


def test_repeated_members_share_their_weight_and_constant_ones_stay_at_0() -> None:
    logits, labels = noisy_views(300, 4, 2)
    alone = fit_stack(logits, labels)
    zeros, constant = torch.zeros(300, 4, dtype=torch.float64), torch.full((300, 4), 3.0, dtype=torch.float64)
    stack = fit_stack([logits[0], zeros, logits[0], constant, logits[1]], labels)
    assert stack.certified
    assert float(stack.weights[0] + stack.weights[2]) == pytest.approx(float(alone.weights[0]), abs=1e-6)
    assert stack.weights[[1, 3]].tolist() == [0, 0]
    assert stack.nll == pytest.approx(alone.nll, abs=1e-12)


def test_members_that_are_always_wrong_get_weight_0() -> None:
    logits, labels = noisy_views(300, 4, 3)
    stack = fit_stack([-member for member in logits], labels)
    assert stack.certified
    assert stack.weights.tolist() == [0, 0, 0]
    assert stack.contributions == {"0": 0.0, "1": 0.0, "head": 0.0}
    assert stack.nll == pytest.approx(math.log(4), abs=1e-12)
    assert fit_stack([-logits[0]], labels).temperature == math.inf
    mixed = fit_stack([logits[0], -logits[1]], labels)
    assert float(mixed.weights[0]) > 0
    assert float(mixed.weights[1]) == 0


@pytest.mark.parametrize("classes", [1, 10])
def test_rows_that_say_nothing_keep_the_start(classes: int) -> None:
    flat = torch.arange(5000.0)[:, None].repeat(1, classes)
    stack = fit_stack([flat, 2 * flat], torch.arange(5000) % classes)
    assert stack.weights.tolist() == [0, 1]
    assert stack.nll == pytest.approx(math.log(classes))
    assert stack.steps == 0


def test_classes_that_the_holdout_lacks_are_never_right() -> None:
    logits, labels = noisy_views(400, 6, 2)
    kept = labels < 4
    stack = fit_stack([member[kept] for member in logits], labels[kept])
    assert stack.certified
    assert stack.objective == pytest.approx(oracle([member[kept] for member in logits], labels[kept])[0], abs=1e-9)


def test_fewer_rows_than_members_need_a_penalty_or_a_prior() -> None:
    logits, labels = noisy_views(4, 3, 9)
    assert fit_stack(logits, labels).unbounded == has_no_minimiser(logits, labels)
    for regularise, prior in ((0.5, 0.0), (0.0, 2.0)):
        stack = fit_with_prior(logits, labels, regularise=regularise, prior=prior)
        assert stack.certified
        assert stack.objective == pytest.approx(oracle(logits, labels, regularise, prior)[0], abs=1e-9)


def test_logit_too_large_to_be_squared_is_an_error_that_says_what_to_do() -> None:
    logits = torch.randn(400, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    logits[3, 0] = 1e200
    with pytest.raises(ValueError, match=r"vary by inf .* Look for overflow in the network or for outliers"):
        fit_stack([logits], torch.arange(400) % 5)
