"""Methods compared on one test set: the same numbers as one by one, and one verdict."""

from typing import Any

import pytest
import torch
from torch import Tensor

from lates import metrics
from tests.problems import sharpened


def three_methods(n: int = 200) -> tuple[dict[str, Tensor], Tensor]:
    logits, labels = sharpened(2.0, n, 4)
    noise = torch.randn(n, 4, generator=torch.Generator().manual_seed(1))
    return {"network": logits, "temperature": logits / 2, "noisy": logits + noise}, labels


def test_comparison_agrees_with_the_bootstrap_of_each_metric() -> None:
    logits, labels = three_methods()
    names = ("accuracy", "nll", "brier", "ece", "aurc", "auc", "ece_smooth")
    found = metrics.compare(logits, labels, baselines=["network"], metrics=names, draws=20, seed=3)
    assert (found.rows, found.classes, found.draws) == (200, 4, 20)
    assert found.differences["network"] == {}
    for method, values in logits.items():
        assert found.ece_floor[method] == metrics.ece_floor(values, seed=3)
        for name in names:
            metric = getattr(metrics, name)
            alone = metrics.bootstrap(metric, values, labels, draws=20, seed=3)
            assert vars(found.measured[method][name]) == pytest.approx(vars(alone), abs=1e-12)
            if method != "network":
                paired = metrics.bootstrap(metric, values, labels, other=logits["network"], draws=20, seed=3)
                assert vars(found.differences[method]["network"][name]) == pytest.approx(vars(paired), abs=1e-12)


def test_each_method_is_compared_with_the_baselines_before_it() -> None:
    logits, labels = three_methods()
    found = metrics.compare(logits, labels, baselines=["network", "temperature"], metrics=["nll"], draws=5)
    pairs = {method: list(others) for method, others in found.differences.items()}
    assert pairs == {"network": [], "temperature": ["network"], "noisy": ["network", "temperature"]}


@pytest.mark.parametrize(("rows", "draws"), [(100, 1000), (12_500, 800), (60_000, 200)])
def test_comparison_of_more_rows_takes_fewer_draws(rows: int, draws: int) -> None:
    logits, labels = sharpened(1.0, rows, 2)
    found = metrics.compare({"one": logits}, labels, metrics=["accuracy"])
    assert found.draws == found.measured["one"]["accuracy"].draws == draws


@pytest.mark.parametrize(
    ("metric", "low", "high", "expected"),
    [
        ("accuracy", 0.01, 0.03, "better"),
        ("accuracy", -0.03, -0.01, "worse"),
        ("auc", 0.01, 0.03, "better"),
        ("nll", 0.01, 0.03, "worse"),
        ("ece", -0.03, -0.01, "better"),
        ("brier", -0.01, 0.03, "unclear"),
        ("nll", -1e-7, -1e-7, "unclear"),
        ("nll", 0.0, 0.02, "unclear"),
    ],
)
def test_verdict_needs_an_interval_without_zero_beyond_rounding(metric: str, low: float, high: float, expected: str) -> None:
    assert metrics.verdict(metrics.Interval((low + high) / 2, low, high, 0.95, 200), metric) == expected


def test_comparison_refuses_bad_input() -> None:
    fraction: Any = 10.5
    logits, labels = three_methods()
    with pytest.raises(ValueError, match=r'"lates"\. Known: network, temperature, noisy'):
        metrics.compare(logits, labels, baselines=["lates"])
    with pytest.raises(ValueError, match=r'Unknown metric "loss"\. Known: accuracy, nll'):
        metrics.compare(logits, labels, metrics=["loss"])
    with pytest.raises(ValueError, match=r"different shapes: network \[200, 4\], .*, short \[199, 4\]; expected the same"):
        metrics.compare({**logits, "short": logits["noisy"][1:]}, labels)
    with pytest.raises(ValueError, match=r"the logits of flat have shape \[200\]; expected \[n, classes\]"):
        metrics.compare({"flat": logits["noisy"][:, 0]}, labels)
    with pytest.raises(ValueError, match=r"labels have shape \[199\]; expected \[200\]"):
        metrics.compare(logits, labels[1:])
    with pytest.raises(ValueError, match="No method came"):
        metrics.compare({}, labels)
    with pytest.raises(ValueError, match="draws came as 1"):
        metrics.compare(logits, labels, draws=1)
    with pytest.raises(TypeError, match=r"draws=10\.5: expected a whole number"):
        metrics.compare(logits, labels, draws=fraction)
