"""Our metrics as torchmetrics classes: the functions' values, whatever the batches, the collection or the processes."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torchmetrics import Metric, MetricCollection

import lates
from lates.integrations import torchmetrics as ours
from tests.problems import sharpened

Function = Callable[..., float]
PAIRS: list[tuple[Callable[..., Metric], Function, dict[str, Any]]] = [
    (ours.Accuracy, lates.metrics.accuracy, {}),
    (ours.NLL, lates.metrics.nll, {}),
    (ours.Brier, lates.metrics.brier, {}),
    (ours.BrierPaper, lates.metrics.brier_paper, {}),
    (ours.ECE, lates.metrics.ece, {}),
    (ours.ECE, lates.metrics.ece, {"bins": 7, "binning": "mass"}),
    (ours.ECEDebiased, lates.metrics.ece_debiased, {"bins": 9}),
    (ours.ECESmooth, lates.metrics.ece_smooth, {}),
    (ours.AURC, lates.metrics.aurc, {}),
    (ours.CoverageAtRisk, lates.metrics.coverage_at_risk, {"risk": 0.3}),
    (ours.ClasswiseECE, lates.metrics.classwise_ece, {"bins": 5}),
    (ours.AUC, lates.metrics.auc, {}),
    (ours.AUCKeras, lates.metrics.auc_keras, {}),
]
LOGITS, LABELS = sharpened(2.0, n=300, classes=4)
SHARDS = (slice(0, 110), [60]), (slice(110, 300), [140])


def fed(metric: Any, logits: Tensor, labels: Tensor, sizes: list[int]) -> Any:
    for rows, truth in zip(logits.split(sizes), labels.split(sizes), strict=True):
        metric.update(rows, truth)
    return metric


@pytest.mark.parametrize(("kind", "function", "options"), PAIRS)
@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 100), sizes=st.lists(st.integers(1, 40), min_size=1, max_size=6))
def test_class_agrees_with_its_function_for_any_batches(
    kind: Callable[..., Metric], function: Function, options: dict[str, Any], seed: int, sizes: list[int]
) -> None:
    logits, labels = sharpened(1.5, n=sum(sizes), classes=3, seed=seed)
    expected = function(logits, labels, **options)
    found = fed(kind(**options), logits, labels, sizes).compute()
    assert found.dtype == torch.float64
    assert float(found) == pytest.approx(expected, rel=1e-12, abs=1e-14, nan_ok=True)


def test_every_metric_has_a_class() -> None:
    others = {"bootstrap", "compare", "verdict", "ece_floor", "reliability", "summary"}
    functions = {name for name in lates.metrics.__all__ if name.islower()} - others
    assert {function.__name__ for _, function, _ in PAIRS} == functions


def test_collection_keeps_the_rows_once() -> None:
    metrics = MetricCollection([kind(**options) for kind, _, options in PAIRS if "binning" not in options])
    fed(metrics, LOGITS, LABELS, [100, 100, 100])
    groups = [sorted(names) for names in metrics.compute_groups.values()]
    assert sorted(map(len, groups)) == [3, 9], "those of the rows, and those that look at single classes"
    values = metrics.compute()
    for kind, function, options in PAIRS:
        if "binning" not in options:
            assert float(values[kind.__name__]) == pytest.approx(function(LOGITS, LABELS, **options), rel=1e-12)
    metrics.reset()
    fed(metrics, LOGITS[:50], LABELS[:50], [50])
    assert float(metrics.compute()["NLL"]) == pytest.approx(lates.metrics.nll(LOGITS[:50], LABELS[:50]), rel=1e-12)


def test_forward_gives_the_batch_and_compute_all_rows() -> None:
    metric = ours.ECE(bins=10)
    for rows, labels in zip(LOGITS.split(100), LABELS.split(100), strict=True):
        assert float(metric(rows, labels)) == pytest.approx(lates.metrics.ece(rows, labels, bins=10), rel=1e-12)
    assert float(metric.compute()) == pytest.approx(lates.metrics.ece(LOGITS, LABELS, bins=10), rel=1e-12)


@pytest.mark.parametrize("change", [copy.deepcopy, lambda metric: pickle.loads(pickle.dumps(metric)), Metric.clone])
def test_copies_are_independent(change: Callable[[Metric], Metric]) -> None:
    metric = fed(ours.AUC(), LOGITS[:100], LABELS[:100], [100])
    twin = fed(change(metric), LOGITS[100:], LABELS[100:], [200])
    assert float(metric.compute()) == pytest.approx(lates.metrics.auc(LOGITS[:100], LABELS[:100]), rel=1e-12)
    assert float(twin.compute()) == pytest.approx(lates.metrics.auc(LOGITS, LABELS), rel=1e-12)


def test_bad_input_is_refused_like_by_the_functions() -> None:
    with pytest.raises(ValueError, match=r"labels have shape \[2\]; expected \[300\]"):
        ours.NLL().update(LOGITS, LABELS[:2])
    with pytest.raises(ValueError, match="hold NaN in row 0"):
        ours.AUC().update(LOGITS * torch.nan, LABELS)
    with pytest.raises(ValueError, match="Unexpected keyword arguments: `bin`"):
        ours.ECE(bin=10)
    with pytest.raises(ValueError, match="Unexpected keyword arguments: `labels`"):
        ours.Accuracy(labels=3)
    with pytest.warns(UserWarning, match="look like probabilities"):
        ours.ECE().update(LOGITS.softmax(1), LABELS)


def test_processes_with_unequal_shards_give_the_value_of_all_rows() -> None:
    shards = [fed(ours.ECE(), LOGITS[rows], LABELS[rows], [50, *sizes]) for rows, sizes in SHARDS]

    def gather(rows: Tensor, group: Any) -> list[Tensor]:
        assert torch.equal(rows, torch.cat(shards[0].rows))
        return [rows, torch.cat(shards[1].rows)]

    metric = ours.ECE(dist_sync_fn=gather, distributed_available_fn=lambda: True)
    fed(metric, LOGITS[:110], LABELS[:110], [50, 60])
    assert float(metric.compute()) == pytest.approx(lates.metrics.ece(LOGITS, LABELS), rel=1e-12)
