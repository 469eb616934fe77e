from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import lates
from tests.conftest import Problem, calibrate


def noisy(images: Tensor) -> Tensor:
    return images + torch.randn_like(images)


def logits_of(model: nn.Module, images: Tensor) -> Tensor:
    with torch.no_grad():
        return model(images)


def test_expected_shift_scales_the_weights_to_the_hold_out_and_its_copies(problem: Problem) -> None:
    def darker(images: Tensor) -> Tensor:
        return images / 2

    plain, careful = (calibrate(problem, views=darker, expect_shift=expected) for expected in (False, True))
    images, labels = (torch.cat(parts) for parts in zip(*problem.holdout, strict=True))
    both = torch.cat([images, darker(images)])
    oracle = lates.TemperatureScaling(prior=0).fit(logits_of(plain, both), labels.repeat(2))
    assert careful.fit.scale == pytest.approx(1 / oracle.temperature_, rel=0.02)  # but for the prior
    scaled = {name: careful.fit.scale * weight for name, weight in plain.weights.items()}
    assert careful.weights == pytest.approx(scaled, rel=1e-5)
    assert careful.fit.nll == pytest.approx(lates.metrics.nll(logits_of(careful, images), labels), abs=1e-5)


def test_expected_shift_lowers_the_confidence_and_changes_no_prediction(problem: Problem) -> None:
    plain, careful = (calibrate(problem, views=noisy, expect_shift=expected) for expected in (False, True))
    before, after = (logits_of(model, problem.images).softmax(1).max(1) for model in (plain, careful))
    assert torch.equal(before.indices, after.indices)
    assert bool((after.values < before.values).all())


def test_expected_shift_scales_all_networks_of_an_ensemble_alike(problem: Problem, ensemble: list[nn.Module]) -> None:
    both = replace(problem, model=ensemble)
    plain, careful = (calibrate(both, views=noisy, expect_shift=expected) for expected in (False, True))
    assert careful.fit.scale < 1
    scaled = {name: careful.fit.scale * weight for name, weight in plain.weights.items()}
    assert careful.weights == pytest.approx(scaled, rel=1e-5)


def test_expected_shift_without_views_is_refused_before_the_training_split_is_read(problem: Problem) -> None:
    read: list[str] = []
    with pytest.raises(ValueError, match=r"expect_shift=True needs changed copies of the hold-out.*Pass views="):
        calibrate(problem, views=None, expect_shift=True, progress=lambda stage, *_: read.append(stage))
    assert set(read) == {"reading holdout"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"expect_shift": True, "holdout_views": "jitter"}, "expect_shift=True or holdout_views=, not both"),
        ({"expect_shift": "yes"}, "expect_shift='yes': expected True or False"),
    ],
)
def test_contradicting_words_about_shift_are_refused(problem: Problem, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        calibrate(problem, **options)
