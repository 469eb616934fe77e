import numpy as np
import pytest
import torch
from torch import Tensor

from lates.mixture import fit_pooled, mean_log_loss, refine_mean
from lates.stack import combine, fit_stack
from tests.problems import dropout_samples, noisy_views


def plain_mean_nll(samples: list[list[Tensor]], labels: Tensor, weights: list[Tensor]) -> Tensor:
    probabilities = [combine(members, vector).softmax(1) for members, vector in zip(samples, weights, strict=True)]
    return -torch.stack(probabilities).mean(dim=0).gather(1, labels[:, None]).log().mean()


def test_value_and_gradient_of_the_mean_s_log_loss() -> None:
    samples, labels = dropout_samples(60, 4, samples=3)
    weights = [torch.rand(2, dtype=torch.float64) for _ in samples]
    value, gradients = mean_log_loss(samples, labels, weights)
    assert value == pytest.approx(float(plain_mean_nll(samples, labels, weights)), abs=1e-12)
    for s, k in np.ndindex(3, 2):
        ends = []
        for change in (1e-6, -1e-6):
            moved = [vector.clone() for vector in weights]
            moved[s][k] += change
            ends.append(float(plain_mean_nll(samples, labels, moved)))
        assert float(gradients[s][k]) == pytest.approx((ends[0] - ends[1]) / 2e-6, abs=1e-8)


@pytest.mark.parametrize("shared", [True, False])
def test_a_member_s_scale_matters_neither_for_the_mean_s_weights_nor_for_the_way_there(shared: bool) -> None:
    samples, labels = dropout_samples(200, 4, samples=2)
    start = [torch.full((2,), 0.3, dtype=torch.float64)] * (1 if shared else 2)
    factors = torch.tensor([1000.0, 0.01], dtype=torch.float64)
    scaled = [[factor * member for factor, member in zip(factors, sample, strict=True)] for sample in samples]
    plain = refine_mean(samples, labels, start, shared=shared)
    other = refine_mean(scaled, labels, [weights / factors for weights in start], shared=shared)
    assert plain.nll < plain.nll_at_start
    assert abs(other.steps - plain.steps) <= 1
    for weights, of_scaled in zip(plain.weights, other.weights, strict=True):
        torch.testing.assert_close(of_scaled * factors, weights, rtol=1e-6, atol=1e-9)


def test_pooling_is_fitting_all_rows_together() -> None:
    samples, labels = dropout_samples(200, 4, samples=3)
    stacked = [torch.cat([members[k] for members in samples]) for k in range(2)]
    together = fit_stack(stacked, labels.repeat(3))
    pooled = fit_pooled(samples, labels)
    assert pooled.certified
    assert pooled.weights.tolist() == pytest.approx(together.weights.tolist(), abs=1e-9)
    penalised = fit_pooled(samples, labels, regularise=1.0)
    assert penalised.weights.tolist() == pytest.approx(
        fit_stack(stacked, labels.repeat(3), regularise=np.sqrt(3)).weights.tolist(), abs=1e-9
    )


@pytest.mark.parametrize("heads_only", [False, True])
def test_refining_mends_the_underconfidence_of_the_pooled_mean(heads_only: bool) -> None:
    samples, labels = dropout_samples(2000, 5, samples=8)
    samples = [members[-1:] for members in samples] if heads_only else samples
    pooled = fit_pooled(samples, labels)
    refined = refine_mean(samples, labels, [pooled.weights], shared=True)
    assert len(refined.weights) == 1
    assert refined.nll < refined.nll_at_start - 0.005
    assert float(refined.weights[0].sum()) > 1.1 * float(pooled.weights.sum())
    assert refined.residual < 1e-7
    shared = [refined.weights[0]] * 8
    assert refined.nll == pytest.approx(float(plain_mean_nll(samples, labels, shared)), abs=1e-12)


def test_an_ensemble_has_weights_for_each_of_its_models_which_may_differ_in_members() -> None:
    (first, labels), (second, _) = noisy_views(500, 4, 3, seed=1), noisy_views(500, 4, 3, seed=1)
    second = [member + torch.randn(500, 4, generator=torch.Generator().manual_seed(5)) for member in second[1:]]
    models = [first, second]
    start = [fit_stack(members, labels).weights for members in models]
    refined = refine_mean(models, labels, start, shared=False)
    assert [len(vector) for vector in refined.weights] == [3, 2]
    assert refined.nll <= refined.nll_at_start
    assert refined.nll == pytest.approx(float(plain_mean_nll(models, labels, list(refined.weights))), abs=1e-12)


def test_one_sample_is_an_ordinary_stack_and_the_penalty_counts() -> None:
    logits, labels = noisy_views(300, 4, 3)
    for regularise in (0.0, 1.0):
        stack = fit_stack(logits, labels, regularise=regularise)
        away = refine_mean([logits], labels, [torch.ones(3)], shared=True, regularise=regularise)
        assert away.weights[0].tolist() == pytest.approx(stack.weights.tolist(), abs=1e-5)
        assert away.nll == pytest.approx(stack.nll, abs=1e-6)


def test_bad_samples_are_refused() -> None:
    samples, labels = dropout_samples(20, 3, samples=2)
    with pytest.raises(ValueError, match="no samples"):
        fit_pooled([], labels)
    with pytest.raises(ValueError, match="Samples have 2, 1 members"):
        fit_pooled([samples[0], samples[1][:1]], labels)
    with pytest.raises(ValueError, match=r"lengths \[2\], the samples have 2, 2 members; expected one vector for each"):
        refine_mean(samples, labels, [torch.ones(2)], shared=False)
    with pytest.raises(ValueError, match="Sample 1 has logits of shape"):
        fit_pooled([samples[0], [member[:, :2] for member in samples[1]]], labels.clamp(max=1))
