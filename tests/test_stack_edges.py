"""Hold-outs without a minimum, members without signal, rows without variety, and input that is refused."""

import math
import warnings

import numpy as np
import pytest
import torch
from scipy.optimize import root_scalar

from lates.newton import NotConvergedError
from lates.stack import fit_stack
from tests.problems import noisy_views
from tests.stack_oracles import has_no_minimiser, oracle


def test_every_label_right_is_bounded_and_not_certified() -> None:
    logits, _ = noisy_views(100, 4, 3)
    labels = logits[-1].argmax(dim=1)
    for members in (logits, logits[-1:]):
        stack = fit_stack(members, labels)
        assert stack.bounded
        assert not stack.certified
        assert bool(stack.weights.isfinite().all())
        assert max(stack.spread.values()) <= 1000 * (1 + 1e-12)
        assert stack.nll < 0.01
    assert fit_stack(logits, labels, regularise=0.1).certified


def test_one_right_row_alone_is_enough_to_leave_a_member_unbounded() -> None:
    logits, labels = noisy_views(100, 4, 2)
    lone = torch.zeros(100, 4, dtype=torch.float64)
    lone[17, labels[17]] = 5.0
    stack = fit_stack([lone, *logits], labels)
    assert stack.bounded
    assert not stack.certified
    without = fit_stack(logits, labels)
    assert stack.nll < without.nll


def test_repeated_members_share_their_weight_and_constant_ones_stay_at_zero() -> None:
    logits, labels = noisy_views(300, 4, 2)
    alone = fit_stack(logits, labels)
    zeros, constant = torch.zeros(300, 4, dtype=torch.float64), torch.full((300, 4), 3.0, dtype=torch.float64)
    stack = fit_stack([logits[0], zeros, logits[0], constant, logits[1]], labels)
    assert stack.certified
    assert float(stack.weights[0] + stack.weights[2]) == pytest.approx(float(alone.weights[0]), abs=1e-6)
    assert stack.weights[[1, 3]].tolist() == [0, 0]
    assert stack.nll == pytest.approx(alone.nll, abs=1e-12)


def test_members_that_are_always_wrong_get_no_weight() -> None:
    logits, labels = noisy_views(300, 4, 3)
    stack = fit_stack([-member for member in logits], labels)
    assert stack.certified
    assert stack.weights.tolist() == [0, 0, 0]
    assert stack.contributions == {"0": 0.0, "1": 0.0, "head": 0.0}
    assert stack.nll == pytest.approx(np.log(4), abs=1e-12)
    assert fit_stack([-logits[0]], labels).temperature == float("inf")
    mixed = fit_stack([logits[0], -logits[1]], labels)
    assert float(mixed.weights[0]) > 0
    assert float(mixed.weights[1]) == 0


def test_one_class_only_keeps_the_start() -> None:
    stack = fit_stack([torch.randn(5, 1), torch.randn(5, 1)], torch.zeros(5, dtype=torch.int64))
    assert stack.weights.tolist() == [0, 1]
    assert stack.nll == 0


def test_classes_that_the_holdout_lacks() -> None:
    logits, labels = noisy_views(400, 6, 2)
    kept = labels < 4
    stack = fit_stack([member[kept] for member in logits], labels[kept])
    value, _ = oracle([member[kept] for member in logits], labels[kept])
    assert stack.certified
    assert stack.objective == pytest.approx(value, abs=1e-9)


def test_fewer_rows_than_members() -> None:
    logits, labels = noisy_views(4, 3, 9)
    free = fit_stack(logits, labels)
    assert free.bounded == has_no_minimiser(logits, labels)
    held = fit_stack(logits, labels, regularise=0.5)
    assert held.certified
    assert held.objective == pytest.approx(oracle(logits, labels, 0.5)[0], abs=1e-9)


def test_members_recorded_under_inference_mode_can_be_fitted_there_and_elsewhere() -> None:
    logits, labels = noisy_views(100, 3, 2)
    with torch.inference_mode():
        recorded, of_rows = [member.clone() for member in logits], labels.clone()
        inside = fit_stack(recorded, of_rows, loss="brier")
    assert torch.equal(fit_stack(recorded, of_rows, loss="brier").weights, inside.weights)
    assert torch.equal(
        fit_stack([member.requires_grad_() for member in logits], labels, loss="brier").weights, inside.weights
    )


def test_only_a_single_member_has_a_temperature() -> None:
    logits, labels = noisy_views(100, 3, 2)
    with pytest.raises(AttributeError, match="A stack of 2 members has no single temperature"):
        _ = fit_stack(logits, labels).temperature


def test_bad_input_says_what_came_and_what_to_do() -> None:
    logits, labels = noisy_views(50, 3, 2)
    nan, infinite = logits[0].clone(), logits[0].clone()
    nan[7, 1], infinite[9, 2] = torch.nan, -torch.inf
    with pytest.raises(ValueError, match='member "0" hold NaN in row 7'):
        fit_stack([nan, logits[1]], labels)
    with pytest.raises(ValueError, match=r'logits of member "a" hold -inf in row 9.*clamp'):
        fit_stack({"a": infinite, "head": logits[1]}, labels)
    with pytest.raises(TypeError, match="float"):
        fit_stack(logits, labels.double())
    with pytest.raises(ValueError, match="labels hold 3"):
        fit_stack(logits, labels.clone().fill_(3))
    with pytest.raises(ValueError, match=r"expected \[50\]"):
        fit_stack(logits, labels[:49])
    with pytest.raises(ValueError, match=r'Member "0" has shape \[50, 2\], but the head "head" has \[50, 3\]'):
        fit_stack([logits[0][:, :2], logits[1]], labels)
    with pytest.raises(ValueError, match="empty"):
        fit_stack([logits[0][:0]], labels[:0])
    with pytest.raises(ValueError, match="no members"):
        fit_stack([], labels)
    with pytest.raises(ValueError, match=r"expected \[n, classes, members\]"):
        fit_stack(logits[0], labels)
    with pytest.raises(ValueError, match=r"regularise is -1\.0"):
        fit_stack(logits, labels, regularise=-1.0)
    with pytest.raises(ValueError, match=r'Unknown loss "mse"\. Losses: nll, brier, soft_ece'):
        fit_stack(logits, labels, loss="mse")
    with pytest.raises(ValueError, match=r'Unknown solver "adam"\. Solvers: exact, sgd'):
        fit_stack(logits, labels, solver="adam")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="expected 2 finite weights >= 0"):
        fit_stack(logits, labels, start=torch.tensor([-1.0, 1.0]))
    with pytest.raises(ValueError, match="takes neither start nor reduce"):
        fit_stack(logits, labels, solver="sgd", start=torch.ones(2))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("value", "message"),
    [
        (torch.nan, r"logits of member \"head\" hold NaN in row 3999 \(1 of 4000 rows have no softmax\)"),
        (torch.inf, r"logits of member \"head\" hold \+inf in row 3999 \(1 of 4000 rows have no softmax\)"),
        (-torch.inf, r"logits of member \"head\" hold -inf in row 3999; a weighted sum of logits needs finite ones"),
    ],
)
def test_the_last_of_many_rows_is_checked_too(value: float, message: str, dtype: torch.dtype) -> None:
    (logits,), labels = noisy_views(4_000, 30, 1)
    logits = logits.to(dtype)
    logits[-1, -1] = value
    with pytest.raises(ValueError, match=message):
        fit_stack([logits], labels)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_finite_logits_are_accepted_also_where_their_sum_is_not_finite(dtype: torch.dtype) -> None:
    """Rows that add a large constant to all classes say nothing about the weight."""
    (logits,), labels = noisy_views(4_000, 3, 1)
    logits = logits.to(dtype)
    logits[::7] = torch.finfo(dtype).max
    ordinary = torch.arange(4_000) % 7 != 0
    stack = fit_stack([logits], labels)
    assert stack.certified
    assert stack.weights.tolist() == pytest.approx(
        fit_stack([logits[ordinary]], labels[ordinary]).weights.tolist(), abs=1e-8
    )


def test_probabilities_passed_as_logits_are_noticed() -> None:
    logits, labels = noisy_views(100, 3, 2)
    with pytest.warns(UserWarning, match=r'member "0" look like probabilities.*log\(\) are valid logits'):
        fit_stack([logits[0].softmax(1), logits[1]], labels)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        logs = fit_stack([member.log_softmax(1) for member in logits], labels)
    assert logs.weights.tolist() == pytest.approx(fit_stack(logits, labels).weights.tolist(), abs=1e-8)


def test_few_rows_are_warned_of() -> None:
    logits, labels = noisy_views(100, 3, 2)
    with pytest.warns(UserWarning, match="fitted to 99 rows, where chance decides: use about 1,000, at least 100"):
        fit_stack([member[:99] for member in logits], labels[:99])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit_stack(logits, labels)


def test_weights_that_are_all_0_are_warned_of() -> None:
    logits = noisy_views(200, 3, 1)[0]
    with pytest.warns(UserWarning, match="All weights are 0, so that every prediction is uniform: on these 200 rows"):
        stack = fit_stack(logits, logits[0].argmin(1))
    assert stack.temperature == float("inf")


@pytest.mark.parametrize(("rows", "faint"), [(2, 1e-9), (20, 1e-8), (1000, 1e-7), (1000, 1e-8)])
def test_where_a_faint_row_alone_bounds_the_weight_a_certificate_is_right_to_a_thousandth(
    rows: int, faint: float
) -> None:
    """One row right by 2, one wrong by `faint` = e, all others say nothing: 2 / (1 + exp(2 b)) = e / (1 + exp(-e b))."""
    logits = torch.zeros(rows, 2, dtype=torch.float64)
    logits[0], logits[1] = torch.tensor([1.0, -1.0]), torch.tensor([-faint / 2, faint / 2])
    stack = fit_stack([logits], torch.zeros(rows, dtype=torch.int64))

    def slope(weight: float) -> float:
        return faint / (1 + math.exp(-faint * weight)) - 2 / (1 + math.exp(2 * weight))

    best = root_scalar(slope, bracket=(0, 30), xtol=1e-12).root
    assert stack.certified != stack.bounded
    if stack.certified:
        assert 2 * abs(float(stack.weights[0]) - best) < 1e-3


@pytest.mark.parametrize("rows", [400, 4000])
def test_a_logit_too_large_to_be_squared_is_an_error_that_says_what_to_do(rows: int) -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(rows, 5, dtype=torch.float64, generator=generator)
    logits[3, 0] = 1e200
    with pytest.raises(NotConvergedError, match="look for outliers"):
        fit_stack([logits], torch.arange(rows) % 5)
