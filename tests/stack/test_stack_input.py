"""What `fit_stack` refuses, and what it warns of."""

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from lates.stack.stack import fit_stack
from tests.problems import noisy_views

Change = Callable[[list[Tensor], Tensor], dict[str, Any]]
REFUSED: dict[str, tuple[type[Exception], Change]] = {
    "float": (TypeError, lambda logits, labels: {"labels": labels.double()}),
    "labels hold 3": (ValueError, lambda logits, labels: {"labels": labels.clone().fill_(3)}),
    r"expected \[50\]": (ValueError, lambda logits, labels: {"labels": labels[:49]}),
    r'Member "0" has shape \[50, 2\], but the head "head" has \[50, 3\]': (
        ValueError,
        lambda logits, labels: {"members": [logits[0][:, :2], logits[1]]},
    ),
    "empty": (ValueError, lambda logits, labels: {"members": [logits[0][:0]], "labels": labels[:0]}),
    "no members": (ValueError, lambda logits, labels: {"members": []}),
    r"expected \[n, classes, members\]": (ValueError, lambda logits, labels: {"members": logits[0]}),
    r"regularise=-1\.0": (ValueError, lambda logits, labels: {"regularise": -1.0}),
    r'Unknown loss "mse"\. Losses: nll, brier, soft_ece': (ValueError, lambda logits, labels: {"loss": "mse"}),
    "solver='adam': expected one of 'exact', 'sgd'": (ValueError, lambda logits, labels: {"solver": "adam"}),
    r"vary by \d\.\de\+14 .*expected at most 1e\+12": (
        ValueError,
        lambda logits, labels: {"members": [each * 1e14 for each in logits]},
    ),
    r"are at most \d\.\de-1\d\d, whose squares": (
        ValueError,
        lambda logits, labels: {"members": [each * 1e-160 for each in logits]},
    ),
    "is for one process and takes no reduce": (
        ValueError,
        lambda logits, labels: {"solver": "sgd", "reduce": torch.clone},
    ),
}


@pytest.mark.parametrize("message", REFUSED)
def test_bad_input_is_refused_with_what_came_and_what_to_do(message: str) -> None:
    logits, labels = noisy_views(50, 3, 2)
    error, change = REFUSED[message]
    arguments: dict[str, Any] = {"members": logits, "labels": labels, **change(logits, labels)}
    with pytest.raises(error, match=message):
        fit_stack(**arguments)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("value", "message"),
    [
        (torch.nan, r"logits of member \"head\" hold NaN in row 3999 \(1 of 4000 rows have no softmax\)"),
        (torch.inf, r"logits of member \"head\" hold \+inf in row 3999 \(1 of 4000 rows have no softmax\)"),
        (-torch.inf, r"logits of member \"head\" hold -inf in row 3999; a weighted sum of logits.*clamp"),
    ],
)
def test_logits_that_are_not_finite_are_refused_with_member_and_row(value: float, message: str, dtype: torch.dtype) -> None:
    (logits,), labels = noisy_views(4_000, 30, 1)
    logits = logits.to(dtype)
    logits[-1, -1] = value
    with pytest.raises(ValueError, match=message):
        fit_stack([logits], labels)


def test_probabilities_passed_as_logits_are_warned_of() -> None:
    logits, labels = noisy_views(1000, 3, 2)
    with pytest.warns(UserWarning, match=r'member "0" look like probabilities.*log\(\) are valid logits'):
        fit_stack([logits[0].softmax(1), logits[1]], labels)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        logs = fit_stack([member.log_softmax(1) for member in logits], labels)
    assert logs.weights.tolist() == pytest.approx(fit_stack(logits, labels).weights.tolist(), abs=1e-8)
