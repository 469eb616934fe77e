"""Scores, ranking and summary, against scikit-learn, plain Python and cases worked by hand."""

import math
import random
import subprocess
import sys
import warnings
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sklearn.metrics import log_loss, roc_auc_score
from torch import Tensor

from lates import metrics
from tests.all_metrics import METRICS
from tests.problems import sharpened


def softmax(logits: Tensor) -> Tensor:
    """By the plain formula: torch.softmax sums in another order, which breaks ties between permuted rows."""
    exponentials = (logits - logits.amax(dim=1, keepdim=True)).exp()
    return exponentials / exponentials.sum(dim=1, keepdim=True)


@st.composite
def problems(draw: st.DrawFn) -> tuple[Tensor, Tensor]:
    """Small problems of integer logits, so that ties abound; the first row keeps them from looking like probabilities."""
    n, classes = draw(st.integers(2, 30)), draw(st.integers(2, 5))
    logits = draw(hnp.arrays(np.float64, (n, classes), elements=st.integers(-4, 4).map(float)))
    labels = draw(hnp.arrays(np.int64, n, elements=st.integers(0, classes - 1)))
    logits[0, 0] = -4.0
    return torch.from_numpy(logits), torch.from_numpy(labels)


# --- known answers and oracles ------------------------------------------------------------------------------------


def test_zero_probabilities_are_allowed() -> None:
    logits = torch.tensor([[1.0, 0.0], [0.0, 1.0]]).log()
    assert metrics.nll(logits, torch.tensor([0, 1])) == 0
    assert metrics.nll(logits, torch.tensor([1, 1])) == math.inf
    assert metrics.brier(logits, torch.tensor([1, 0])) == 2
    assert metrics.auc(logits, torch.tensor([0, 1])) == 1


@given(problems())
@settings(max_examples=60, deadline=None)
def test_accuracy_agrees_with_numpy_argmax_under_ties(problem: tuple[Tensor, Tensor]) -> None:
    logits, labels = problem
    assert metrics.accuracy(logits, labels) == float((logits.numpy().argmax(axis=1) == labels.numpy()).mean())


def test_scores_agree_with_scikit_learn() -> None:
    logits, labels = sharpened(1.7, 500, 7)
    probabilities = logits.softmax(dim=1).numpy()
    squares = ((probabilities - np.eye(7)[labels]) ** 2).sum(axis=1).mean()
    assert metrics.nll(logits, labels) == pytest.approx(log_loss(labels, probabilities, labels=range(7)), abs=1e-12)
    assert metrics.brier(logits, labels) == pytest.approx(squares, abs=1e-12)
    assert metrics.brier_paper(logits, labels) == metrics.brier(logits, labels) - 1
    assert metrics.accuracy(logits, labels) == (probabilities.argmax(axis=1) == labels.numpy()).mean()


@pytest.mark.parametrize("sharpness", [1.0, 20.0])
@pytest.mark.parametrize("decimals", [0, 1, 8])
def test_auc_agrees_with_scikit_learn_with_and_without_ties(decimals: int, sharpness: float) -> None:
    logits, labels = sharpened(1.0, 400, 37)
    logits = (logits * 10**decimals).round() / 10**decimals * sharpness
    labels[:37] = torch.arange(37)
    expected = roc_auc_score(labels, softmax(logits).numpy(), multi_class="ovr", average="macro")
    assert metrics.auc(logits, labels) == pytest.approx(expected, abs=1e-12)


def pairwise_auc(logits: Tensor, labels: Tensor) -> float:
    """The definition: the share of pairs (positive, negative) in the right order, by looking at all of them."""
    probabilities = softmax(logits)
    areas = []
    for c in range(logits.shape[1]):
        positive, negative = probabilities[labels == c, c], probabilities[labels != c, c]
        if len(positive) and len(negative):
            above = (positive[:, None] > negative).double() + 0.5 * (positive[:, None] == negative).double()
            areas.append(float(above.mean()))
    if not areas:
        return math.nan
    return areas[-1] if logits.shape[1] == 2 else sum(areas) / len(areas)


@given(problems())
@settings(max_examples=60, deadline=None)
def test_auc_is_the_share_of_ordered_pairs(problem: tuple[Tensor, Tensor]) -> None:
    assert metrics.auc(*problem) == pytest.approx(pairwise_auc(*problem), abs=1e-12, nan_ok=True)


def test_auc_of_two_columns_is_the_binary_area_even_where_one_column_saturates() -> None:
    scores, labels = torch.linspace(30, 60, 50, dtype=torch.float64), torch.arange(50) % 2
    logits = torch.stack([scores, torch.zeros(50, dtype=torch.float64)], dim=1)
    assert (logits.softmax(dim=1)[:, 0] == 1).sum() > 20
    assert metrics.auc(logits, labels) == pytest.approx(roc_auc_score(labels, -scores), abs=1e-12)


def test_auc_keras_follows_its_two_hundred_thresholds() -> None:
    logits, labels = sharpened(2.0, 300, 5)
    probabilities, positive = logits.softmax(dim=1).flatten(), torch.eye(5)[labels].flatten() == 1
    thresholds = [-1e-7, *[t / 199 for t in range(1, 199)], 1 + 1e-7]
    true = [float((probabilities[positive] > t).double().mean()) for t in thresholds]
    false = [float((probabilities[~positive] > t).double().mean()) for t in thresholds]
    area = sum((false[t] - false[t + 1]) * (true[t] + true[t + 1]) / 2 for t in range(199))
    assert metrics.auc_keras(logits, labels) == pytest.approx(area, abs=1e-12)


def test_auc_keras_agrees_with_keras() -> None:
    """Keras 3.15 gave this for the same draws; it sums in float32."""
    generator = torch.Generator().manual_seed(3)
    logits = 3 * torch.randn(400, 6, generator=generator, dtype=torch.float64)
    labels = torch.randint(6, (400,), generator=generator)
    assert metrics.auc_keras(logits, labels) == pytest.approx(0.4976719, abs=2e-6)


def test_aurc_worked_by_hand() -> None:
    logits = torch.tensor([[0.9, 0.1], [0.8, 0.2], [0.7, 0.3]], dtype=torch.float64).log()
    assert metrics.aurc(logits, torch.tensor([0, 1, 0])) == pytest.approx((0 + 1 / 2 + 1 / 3) / 3, abs=1e-12)


def test_aurc_takes_the_mean_over_orders_of_tied_rows() -> None:
    logits = torch.tensor([[0.9, 0.1], [0.6, 0.4], [0.6, 0.4]], dtype=torch.float64).log()
    orders = [(0, 0, 1 / 3), (0, 1 / 2, 1 / 3)]
    expected = sum(sum(risks) / 3 for risks in orders) / 2
    assert metrics.aurc(logits, torch.tensor([0, 0, 1])) == pytest.approx(expected, abs=1e-12)


# --- laws ---------------------------------------------------------------------------------------------------------


@given(problems(), st.integers(-50, 50), st.randoms(use_true_random=False))
@settings(max_examples=40, deadline=None)
@pytest.mark.parametrize("metric", METRICS)
def test_metrics_ignore_row_constants_and_row_order(
    metric: Callable[..., float], problem: tuple[Tensor, Tensor], constant: int, shuffler: random.Random
) -> None:
    logits, labels = problem
    order = list(range(len(labels)))
    shuffler.shuffle(order)
    shifts = constant * torch.arange(len(labels), dtype=torch.float64)
    expected = pytest.approx(metric(logits, labels), abs=1e-8, nan_ok=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert metric(logits + shifts[:, None], labels) == expected
        assert metric(logits[order], labels[order]) == expected


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_metrics_agree_for_every_dtype_and_array(metric: Callable[..., float], dtype: torch.dtype) -> None:
    logits, labels = sharpened(1.5, 300, 6)
    coarse = logits.to(dtype)
    expected = metric(coarse.double(), labels)
    assert type(expected) is float
    assert metric(coarse.requires_grad_(), labels.int()) == pytest.approx(expected, abs=1e-12)
    if dtype != torch.bfloat16:
        assert metric(coarse.detach().numpy(), labels.numpy()) == pytest.approx(expected, abs=1e-12)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("metric", METRICS)
def test_metrics_agree_on_the_gpu(metric: Callable[..., float]) -> None:
    logits, labels = sharpened(1.5, 5000, 50)
    assert metric(logits.float().cuda(), labels) == pytest.approx(metric(logits.float(), labels), abs=1e-9)


@pytest.mark.parametrize("metric", METRICS)
def test_metrics_do_not_depend_on_chunks(metric: Callable[..., float], monkeypatch: pytest.MonkeyPatch) -> None:
    logits, labels = sharpened(1.5, 200, 40)
    before = logits.clone()
    whole = metric(logits, labels)
    assert torch.equal(logits, before), "the input stays unchanged"
    monkeypatch.setattr("lates.metrics.rows.CHUNK", 333)
    monkeypatch.setattr("lates.metrics.rows.COLUMNS", 7)
    assert metric(logits, labels) == pytest.approx(whole, abs=1e-12)


FLAT_ROWS = """
import resource, torch
from lates import metrics
torch.set_num_threads(1)
logits = torch.randn(40_000, 500).mul_(0.3)
labels = logits.argmax(1)
metrics.nll(logits[:2_000], labels[:2_000])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
metrics.nll(logits, labels)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 / (40_000 * 500 * 4))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss is in kilobytes on Linux only")
def test_flat_rows_are_not_copied_all_at_once() -> None:
    trial = subprocess.run([sys.executable, "-c", FLAT_ROWS], capture_output=True, text=True, check=True)
    assert float(trial.stdout) < 0.25


@pytest.mark.parametrize("metric", METRICS)
def test_metrics_refuse_bad_input_and_warn_of_probabilities(metric: Callable[..., float]) -> None:
    logits, labels = sharpened(1.0, 20, 3)
    with pytest.raises(ValueError, match="hold 3 in row 0"):
        metric(logits, torch.full((20,), 3))
    with pytest.raises(ValueError, match="NaN"):
        metric(logits * math.nan, labels)
    with pytest.raises(ValueError, match=r"logits are empty, of shape \[0, 3\]"):
        metric(logits[:0], labels[:0])
    with pytest.warns(UserWarning, match="look like probabilities") as warned:
        metric(logits.softmax(dim=1), labels)
    assert warned[0].filename == __file__


# --- summary ------------------------------------------------------------------------------------------------------


def test_summary_agrees_with_the_functions() -> None:
    logits, labels = sharpened(1.0, 400, 5)
    summary = metrics.summary(logits, labels, bins=10)
    keys = ["accuracy", "nll", "brier", "ece", "ece_floor", "classwise_ece", "auc", "aurc"]
    assert list(summary) == keys
    for key in ("accuracy", "nll", "brier", "auc", "aurc"):
        assert summary[key] == getattr(metrics, key)(logits, labels)
    assert summary["ece"] == metrics.ece(logits, labels, bins=10)
    assert summary["ece_floor"] == metrics.ece_floor(logits, bins=10)
    assert summary["classwise_ece"] == metrics.classwise_ece(logits, labels, bins=10)
    chosen = metrics.summary(logits, labels, metrics=["ece_smooth", "nll"])
    assert chosen == {"ece_smooth": metrics.ece_smooth(logits, labels), "nll": metrics.nll(logits, labels)}


def test_summary_refuses_an_unknown_metric() -> None:
    with pytest.raises(ValueError, match=r"Unknown metric .entropy.\. Known: accuracy, "):
        metrics.summary(*sharpened(1.0, 4, 3), metrics=["entropy"])
