"""Every kind of bad input is named, with what was expected and the way out."""

import warnings
from typing import Any

import numpy as np
import pytest
import torch

from lates.runtime.checks import check_finite, check_labels, check_logits, warn_if_probabilities

INF = float("inf")


@pytest.mark.parametrize(("row", "fault"), [([0.0, float("nan")], "NaN"), ([0.0, INF], r"\+inf"), ([-INF, -INF], "only -inf")])
def test_rows_without_a_softmax_are_named(row: list[float], fault: str) -> None:
    logits = torch.tensor([[0.0, 1.0], row, row])
    with pytest.raises(ValueError, match=rf"head hold {fault} in row 1 \(2 of 3 rows"):
        check_logits(logits, "head")


def test_minus_infinity_is_the_log_of_zero_and_legal() -> None:
    logits = torch.tensor([[0.0, 1.0]]).log()
    assert check_logits(logits) is logits


def test_fits_refuse_every_logit_that_is_not_finite_and_no_finite_one_however_large() -> None:
    for value, fault in ((float("nan"), "NaN"), (INF, r"\+inf"), (-INF, "-inf")):
        with pytest.raises(ValueError, match=rf"head hold {fault} in row 1"):
            check_finite(torch.tensor([[0.0, 1.0], [0.0, value]]), "head")
    check_finite(torch.full((2, 3), torch.finfo(torch.float32).max))


@pytest.mark.parametrize(
    ("logits", "error", "message"),
    [
        (torch.zeros(3), ValueError, r"shape \[3\].*pass \[n, 2\]"),
        (torch.zeros(2, 3, 4), ValueError, r"shape \[2, 3, 4\]; expected \[n, classes\]\.$"),
        (torch.zeros(0, 3), ValueError, "empty"),
        (torch.zeros(3, 0), ValueError, "empty"),
        (torch.zeros(2, 3, dtype=torch.int64), TypeError, r"torch\.int64; expected floating"),
        ([[0.0, 1.0]], TypeError, "came as list"),
        (np.ma.masked_array(np.zeros((2, 3))), TypeError, "came as MaskedArray; .*Drop the masked rows"),
        (torch.zeros(2, 3, device="meta"), TypeError, "are a meta tensor"),
        (torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)]), TypeError, "are a nested tensor"),
    ],
)
def test_other_bad_logits(logits: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        check_logits(logits)


@pytest.mark.parametrize(
    ("labels", "error", "message"),
    [
        (torch.tensor([0.0, 1.0]), TypeError, r"float32; expected integers.*\.long\(\)"),
        (torch.tensor([True, False]), TypeError, "bool, but the logits have 3 classes"),
        (torch.tensor([0, 3]), ValueError, "hold 3 in row 1; expected 0 to 2"),
        (torch.tensor([-1, 0]), ValueError, "hold -1 in row 0"),
        (torch.tensor([0, 1, 2]), ValueError, r"shape \[3\]; expected \[2\]"),
        (torch.eye(3, dtype=torch.int64)[:2], ValueError, r"\.argmax\(1\)"),
        ([0, 1], TypeError, "came as list"),
    ],
)
def test_bad_labels(labels: torch.Tensor, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        check_labels(labels, rows=2, classes=3)


def test_the_labels_of_a_single_logit_are_told_how_to_widen_it() -> None:
    with pytest.raises(ValueError, match=r"hold 1 in row 0; .* have 1 class\. .*torch\.cat\(\[0 \* z, z\], 1\)"):
        check_labels(torch.tensor([1]), rows=1, classes=1)


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.int32, np.int64])
def test_labels_of_any_integer_dtype_become_int64(dtype: type) -> None:
    labels = check_labels(np.array([2, 0], dtype=dtype), rows=2, classes=3)
    assert labels.dtype == torch.int64
    assert labels.tolist() == [2, 0]
    assert check_labels(torch.tensor([True, False]), rows=2, classes=2).tolist() == [1, 0]


def test_read_only_arrays_are_viewed_and_the_filters_of_warnings_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Filters are the process's: two threads that change and restore them leave one another's behind."""
    filters, convert = [], torch.from_numpy

    def look(array: np.ndarray) -> torch.Tensor:
        filters.append(list(warnings.filters))
        return convert(array)

    monkeypatch.setattr(torch, "from_numpy", look)
    array = np.arange(6.0).reshape(2, 3)
    array.flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        logits = check_logits(array)
        assert filters == [list(warnings.filters)]
    assert logits.data_ptr() == array.ctypes.data
    assert check_logits(array[::-1]).tolist() == array[::-1].tolist()


@pytest.mark.parametrize("classes", [2, 100])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_probabilities_are_recognised_and_their_logs_are_not(dtype: torch.dtype, classes: int) -> None:
    generator = torch.Generator().manual_seed(0)
    probabilities = torch.randn(50, classes, generator=generator).softmax(dim=1).to(dtype)
    with pytest.warns(UserWarning, match=r"head look like probabilities.*clamp\(min=1e-12\)\.log\(\)"):
        warn_if_probabilities(probabilities, "head")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_if_probabilities(probabilities.log(), "head")
        warn_if_probabilities(probabilities * 1.5, "head")
        warn_if_probabilities(probabilities * 0.5, "head")
        warn_if_probabilities(torch.tensor([[0.5, 0.5], [-1.0, 2.0]], dtype=dtype), "head")
        warn_if_probabilities(torch.ones(5, 1), "one class has one probability, whatever its logit")
