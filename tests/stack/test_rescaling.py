from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import lates
from lates.settings import SHIFT_EXPECTED
from tests.conftest import Problem, calibrate


def noisy(images: Tensor) -> Tensor:
    return images + torch.randn_like(images)


def with_and_without_shift(problem: Problem, views: Any) -> list[lates.CalibratedModel]:
    """The same fit, as it is and with all its weights rescaled."""
    settings = replace(lates.DEFAULT, **SHIFT_EXPECTED)
    return [calibrate(problem, views=views, expect_shift=expected, settings=settings) for expected in (False, True)]


def logits_of(model: nn.Module, images: Tensor) -> Tensor:
    with torch.no_grad():
        return model(images)


def test_expected_shift_scales_the_weights_to_the_hold_out_and_its_copies(problem: Problem) -> None:
    def darker(images: Tensor) -> Tensor:
        return images / 2

    plain, careful = with_and_without_shift(problem, darker)
    images, labels = (torch.cat(parts) for parts in zip(*problem.holdout, strict=True))
    both = torch.cat([images, darker(images)])
    oracle = lates.TemperatureScaling(prior=0).fit(logits_of(plain, both), labels.repeat(2))
    assert careful.fit.scale == pytest.approx(1 / oracle.temperature_, rel=0.02)  # but for the prior
    scaled = {name: careful.fit.scale * weight for name, weight in plain.weights.items()}
    assert careful.weights == pytest.approx(scaled, rel=1e-5)
    assert careful.fit.nll == pytest.approx(lates.metrics.nll(logits_of(careful, images), labels), abs=1e-5)


def test_rescaling_lowers_the_confidence_and_changes_no_prediction(problem: Problem) -> None:
    plain, careful = with_and_without_shift(problem, noisy)
    before, after = (logits_of(model, problem.images).softmax(1).max(1) for model in (plain, careful))
    assert torch.equal(before.indices, after.indices)
    assert bool((after.values < before.values).all())


def test_expected_shift_scales_all_networks_of_an_ensemble_alike(problem: Problem, ensemble: list[nn.Module]) -> None:
    plain, careful = with_and_without_shift(replace(problem, model=ensemble), noisy)
    assert careful.fit.scale < 1
    scaled = {name: careful.fit.scale * weight for name, weight in plain.weights.items()}
    assert careful.weights == pytest.approx(scaled, rel=1e-5)


def test_copies_that_the_model_does_not_recognise_leave_the_weights_as_fitted(problem: Problem) -> None:
    def wrong(images: Tensor) -> Tensor:
        return -10 * images

    with pytest.warns(UserWarning, match="hardly better than chance. The weights stay as fitted"):
        plain, careful = with_and_without_shift(problem, wrong)
    assert careful.fit.scale == 1
    assert careful.weights == plain.weights


def test_copies_on_which_the_model_is_underconfident_do_not_raise_the_confidence(problem: Problem) -> None:
    assert calibrate(problem, views=lambda images: images, expect_shift=True, loss="brier").fit.scale <= 1


def test_rows_left_out_of_the_fit_do_not_choose_the_scale(problem: Problem) -> None:
    images, labels = (torch.cat(parts) for parts in zip(*problem.holdout, strict=True))
    spoilt = images.clone()
    spoilt[7] *= 1e4
    options: dict[str, Any] = {"views": torch.clone, "expect_shift": True, "blocks": []}
    with pytest.warns(UserWarning, match="1 of .* hold-out rows have logits more than 30 times"):
        careful = calibrate(problem, holdout=[(spoilt, labels)], **options)
    without = torch.arange(len(labels)) != 7
    expected = calibrate(problem, holdout=[(images[without], labels[without])], **options)
    assert careful.fit.scale == pytest.approx(expected.fit.scale, rel=1e-6)
    assert careful.fit.nll == pytest.approx(expected.fit.nll, rel=1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"views": None}, "by views=, which is None. Pass views="),
        ({"views": "jiter"}, 'Unknown views="jiter"'),
        ({"views": "noise"}, 'views="noise" needs table rows'),
        ({"views": "shift", "holdout_views": "jitter"}, "expect_shift=True or holdout_views=, not both"),
        ({"expect_shift": "yes"}, "expect_shift='yes': expected True or False"),
    ],
)
def test_options_that_expected_shift_cannot_use_are_refused_before_reading(
    problem: Problem, options: dict[str, Any], message: str
) -> None:
    stages: list[str] = []
    with pytest.raises(ValueError, match=message):
        calibrate(problem, **{"expect_shift": True, "progress": lambda stage, *_: stages.append(stage), **options})
    assert not stages


def test_row_weights_are_refused_where_copies_choose_the_scale() -> None:
    rows = torch.eye(4)
    with pytest.raises(ValueError, match="pass it or row_weights, not both"):
        lates.fit_stack([rows], torch.arange(4), passes=2, expect_shift=True, row_weights=torch.ones(4))


@pytest.mark.parametrize(
    ("passes", "rows", "expect_shift"), [(0, 60, False), (7, 60, False), (1, 60, True), (2, 61, True), (2, 58, True)]
)
def test_rows_that_are_not_so_many_passes_over_the_same_inputs_are_refused(passes: int, rows: int, expect_shift: bool) -> None:
    logits, labels = torch.randn(rows, 3, generator=torch.Generator().manual_seed(0)), torch.arange(rows) % 3
    with pytest.raises(ValueError, match=f"passes={passes}"):
        lates.fit_stack([logits], labels, passes=passes, expect_shift=expect_shift)
