import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import log_loss
from torch import Tensor

from lates.stack.losses import BRIER, LOSSES, NLL, Loss, MeanLoss, find_probe_loss, soft_ece_loss
from tests.problems import sharpened


def binned_rms_error(logits: Tensor, labels: Tensor, bins: int) -> float:
    """The limit of the soft ECE as softness -> 0, written plainly: the rms calibration error over ordinary bins."""
    probabilities = logits.softmax(1).numpy()
    confidence, right = probabilities.max(1), probabilities.argmax(1) == labels.numpy()
    nearest = np.abs(confidence[:, None] - (np.arange(bins) + 0.5) / bins).argmin(1)
    total = 0.0
    for j in range(bins):
        inside = nearest == j
        if inside.any():
            total += inside.mean() * (right[inside].mean() - confidence[inside].mean()) ** 2
    return float(np.sqrt(total))


def test_nll_and_brier_match_scikit_learn_and_the_definition() -> None:
    logits, labels = sharpened(1.5, n=200, classes=5)
    probabilities = logits.softmax(1).numpy()
    assert float(NLL(logits, labels)) == pytest.approx(log_loss(labels, probabilities, labels=range(5)), abs=1e-12)
    by_hand = ((probabilities - np.eye(5)[labels]) ** 2).sum(1).mean()
    assert float(BRIER(logits, labels)) == pytest.approx(by_hand, abs=1e-12)


def test_soft_ece_tends_to_the_rms_error_over_ordinary_bins() -> None:
    logits, labels = sharpened(2.0, n=2000, classes=4)
    for bins in (5, 15):
        expected = binned_rms_error(logits, labels, bins)
        assert float(soft_ece_loss(bins, softness=1e-9)(logits, labels)) == pytest.approx(expected, abs=1e-6)
        assert float(soft_ece_loss(bins)(logits, labels)) == pytest.approx(expected, rel=0.1)


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_loss_gradients_match_finite_differences(loss: Loss) -> None:
    logits, labels = sharpened(1.3, n=12, classes=4, seed=3)
    assert torch.autograd.gradcheck(lambda z: loss(z, labels), logits.requires_grad_())


@pytest.mark.parametrize("name", ["nll", "brier"])
@settings(max_examples=40, deadline=None)
@given(
    classes=st.integers(2, 40),
    rows=st.integers(0, 30),
    sharpness=st.sampled_from([0.1, 3.0, 40.0, 1e4]),
    seed=st.integers(0, 1000),
)
def test_slope_matches_autograd(name: str, classes: int, rows: int, sharpness: float, seed: int) -> None:
    loss, generator = find_probe_loss(name), torch.Generator().manual_seed(seed)
    logits = sharpness * torch.randn(rows, classes, generator=generator, dtype=torch.float64)
    labels = torch.randint(classes, (rows,), generator=generator)
    before = logits.clone()
    total, slope = loss.value_and_gradient(logits, labels)
    assert torch.equal(logits, before)
    expected = loss.statistics(logits.requires_grad_(), labels).sum()
    (derivative,) = torch.autograd.grad(expected, logits)
    torch.testing.assert_close(total, expected.detach(), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(slope, derivative, rtol=1e-10, atol=1e-13)
    for coarse in (torch.float32, torch.bfloat16):
        rounded = logits.detach().to(coarse)
        total, slope = loss.value_and_gradient(rounded, labels)
        assert total.dtype == slope.dtype == torch.float32
        expected, derivative = loss.value_and_gradient(rounded.double(), labels)
        torch.testing.assert_close(total.double(), expected, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(slope.double(), derivative, rtol=1e-5, atol=1e-6)


def test_probe_losses_are_means_over_rows() -> None:
    assert [find_probe_loss(name).name for name in LOSSES] == ["nll", "brier", "nll"]
    assert [isinstance(loss, MeanLoss) for loss in LOSSES.values()] == [True, True, False]
    with pytest.raises(ValueError, match='Unknown loss "hinge"'):
        find_probe_loss("hinge")


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), cut=st.integers(1, 39), shift=st.floats(-50, 50))
def test_loss_is_a_function_of_sums_over_rows_and_ignores_row_constants(loss: Loss, seed: int, cut: int, shift: float) -> None:
    logits, labels = sharpened(1.2, n=40, classes=3, seed=seed)
    whole = float(loss(logits, labels))
    parts = [loss.statistics(logits[rows], labels[rows]).sum(0) for rows in (slice(None, cut), slice(cut, None))]
    assert float(loss.outer(parts[0] + parts[1], 40)) == pytest.approx(whole, abs=1e-12)
    constant = shift * torch.arange(40, dtype=torch.float64)[:, None]
    assert float(loss(logits + constant, labels)) == pytest.approx(whole, abs=1e-9)


def test_soft_ece_has_a_finite_gradient_at_0_and_with_empty_bins() -> None:
    logits = torch.zeros(4, 2, requires_grad=True)
    soft_ece_loss(softness=1e-6)(logits, torch.tensor([0, 0, 1, 1])).backward()
    assert logits.grad is not None
    assert bool(logits.grad.isfinite().all())
