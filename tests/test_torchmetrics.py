"""Our metrics as torchmetrics classes: the functions' values, whatever the batches, the collection or the processes."""

import copy
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
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
from tests.terminal import own_lines

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
    (ours.ClasswiseECE, lates.metrics.classwise_ece, {"bins": 5}),
    (ours.AUC, lates.metrics.auc, {}),
    (ours.AUCKeras, lates.metrics.auc_keras, {}),
]
LOGITS, LABELS = sharpened(2.0, n=300, classes=4)


def fed(metric: Any, logits: Tensor, labels: Tensor, sizes: list[int]) -> Any:
    for rows, own in zip(logits.split(sizes), labels.split(sizes), strict=True):
        metric.update(rows, own)
    return metric


@pytest.mark.parametrize(("kind", "function", "options"), PAIRS)
@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 100), sizes=st.lists(st.integers(1, 40), min_size=1, max_size=6))
def test_the_value_is_the_function_s_however_the_rows_are_batched(
    kind: Callable[..., Metric], function: Function, options: dict[str, Any], seed: int, sizes: list[int]
) -> None:
    logits, labels = sharpened(1.5, n=sum(sizes), classes=3, seed=seed)
    expected = function(logits, labels, **options)
    found = fed(kind(**options), logits, labels, sizes).compute()
    assert found.dtype == torch.float64
    assert float(found) == pytest.approx(expected, rel=1e-12, abs=1e-14, nan_ok=True)


def test_every_metric_of_ours_that_is_one_number_of_logits_and_labels_has_a_class() -> None:
    others = {"bootstrap", "ece_floor", "reliability", "summary"}
    functions = {name for name in lates.metrics.__all__ if name.islower()} - others
    assert {function.__name__ for _, function, _ in PAIRS} == functions


def test_a_collection_keeps_the_rows_once() -> None:
    metrics = MetricCollection([kind(**options) for kind, _, options in PAIRS if "binning" not in options])
    fed(metrics, LOGITS, LABELS, [100, 100, 100])
    groups = [sorted(names) for names in metrics.compute_groups.values()]
    assert sorted(map(len, groups)) == [3, 8], "those of the rows, and those that look at single classes"
    values = metrics.compute()
    for kind, function, options in PAIRS:
        if "binning" not in options:
            assert float(values[kind.__name__]) == pytest.approx(function(LOGITS, LABELS, **options), rel=1e-12)
    metrics.reset()
    fed(metrics, LOGITS[:50], LABELS[:50], [50])
    assert float(metrics.compute()["NLL"]) == pytest.approx(lates.metrics.nll(LOGITS[:50], LABELS[:50]), rel=1e-12)


def test_forward_gives_the_batch_and_compute_the_whole() -> None:
    metric = ours.ECE(bins=10)
    for rows, labels in zip(LOGITS.split(100), LABELS.split(100), strict=True):
        assert float(metric(rows, labels)) == pytest.approx(lates.metrics.ece(rows, labels, bins=10), rel=1e-12)
    assert float(metric.compute()) == pytest.approx(lates.metrics.ece(LOGITS, LABELS, bins=10), rel=1e-12)


@pytest.mark.parametrize("change", [copy.deepcopy, lambda metric: pickle.loads(pickle.dumps(metric)), Metric.clone])
def test_copies_go_on_by_themselves(change: Callable[[Metric], Metric]) -> None:
    metric = fed(ours.AUC(), LOGITS[:100], LABELS[:100], [100])
    twin = fed(change(metric), LOGITS[100:], LABELS[100:], [200])
    assert float(metric.compute()) == pytest.approx(lates.metrics.auc(LOGITS[:100], LABELS[:100]), rel=1e-12)
    assert float(twin.compute()) == pytest.approx(lates.metrics.auc(LOGITS, LABELS), rel=1e-12)


def test_bad_input_is_refused_as_the_functions_refuse_it() -> None:
    with pytest.raises(ValueError, match=r"labels have shape \[2\]; expected \[300\]"):
        ours.NLL().update(LOGITS, LABELS[:2])
    with pytest.raises(ValueError, match="hold NaN in row 0"):
        ours.AUC().update(LOGITS * torch.nan, LABELS)
    with pytest.raises(ValueError, match="Unexpected keyword arguments: `bin`"):
        ours.ECE(bin=10)
    with pytest.warns(UserWarning, match="look like probabilities"):
        ours.ECE().update(LOGITS.softmax(1), LABELS)


def test_a_missing_torchmetrics_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "lates.integrations.torchmetrics")
    monkeypatch.setitem(sys.modules, "torchmetrics", None)
    with pytest.raises(ImportError, match=r'Run: pip install "lates\[torchmetrics\]"'):
        __import__("lates.integrations.torchmetrics")


PROCESS = """
import sys, torch, torch.distributed as dist
from torchmetrics import MetricCollection
from lates.integrations.torchmetrics import AUC, ECE, NLL
from tests.problems import sharpened

rank = int(sys.argv[1])
dist.init_process_group("gloo", init_method=f"file://{sys.argv[2]}", rank=rank, world_size=2)
logits, labels = sharpened(2.0, n=300, classes=4)
mine = slice(0, 110) if rank == 0 else slice(110, 300)
metrics = MetricCollection([NLL(), ECE(), AUC()])
for rows, own in zip(logits[mine].split(40), labels[mine].split(40), strict=True):
    metrics.update(rows, own)
print(*(float(value) for _, value in sorted(metrics.compute().items())))
dist.destroy_process_group()
"""


def test_processes_with_unequal_shares_find_the_value_of_all_rows(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROCESS]
    root = Path(__file__).parent.parent
    meeting = str(tmp_path / "meeting")
    processes = [
        subprocess.Popen(
            [*command, str(rank), meeting],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=root,
            env={**os.environ, "PYTHONPATH": f"{root / 'src'}:{root}", "OMP_NUM_THREADS": "1"},
        )
        for rank in range(2)
    ]
    expected = [getattr(lates.metrics, name)(LOGITS, LABELS) for name in ("auc", "ece", "nll")]
    for process in processes:
        printed, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors
        (values,) = own_lines(printed)
        assert [float(word) for word in values.split()] == pytest.approx(expected, rel=1e-12)
