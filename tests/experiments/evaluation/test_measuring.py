"""Test sets, scores and the workers that compute them."""

import math

import numpy as np
import pytest
import torch

import lates
from experiments.data.corruptions import corrupt
from experiments.data.datasets import ImageSet
from experiments.evaluation import measuring
from experiments.evaluation.image_blocks import block_means
from experiments.evaluation.measuring import CORRUPTION_SEED, METRICS, CorruptedSets, measure_sets, score
from tests.experiments.sample import CORRUPTIONS, SEVERITIES, sample_data


def test_the_clean_set_comes_first_and_each_is_the_benchmarks(sets: CorruptedSets) -> None:
    found = dict(sets)
    test = sample_data().test
    assert list(found) == ["clean", "contrast-5", "gaussian_noise-5"]
    assert len(sets) == 3
    assert torch.equal(found["clean"].images, test.images)
    assert torch.equal(found["gaussian_noise-5"].images, corrupt(test.images, "gaussian_noise", 5, CORRUPTION_SEED))


def test_corrupted_sets_are_made_once_while_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    few = sample_data().test.select(torch.arange(3))
    kept = CorruptedSets(few, CORRUPTIONS, SEVERITIES)
    assert all(kept[name].images is kept[name].images for name in kept)
    monkeypatch.setattr(measuring, "KEPT_BYTES", 2 * few.images.nbytes - 1)
    fresh = CorruptedSets(few, CORRUPTIONS, SEVERITIES)
    first, second = dict(fresh), dict(fresh)
    assert first["contrast-5"].images is not second["contrast-5"].images
    assert torch.equal(first["contrast-5"].images, second["contrast-5"].images)


def test_scores_are_the_librarys() -> None:
    generator = torch.Generator().manual_seed(0)
    logits, labels = torch.randn(300, 5, generator=generator), torch.randint(5, (300,), generator=generator)
    scores = score(logits, labels)
    assert tuple(scores) == METRICS
    for name in ("ece", "nll", "brier", "brier_paper", "accuracy", "auc", "auc_keras", "classwise_ece", "aurc"):
        assert scores[name] == pytest.approx(getattr(lates.metrics, name)(logits, labels), abs=1e-12), name
    assert scores["ece_floor"] == lates.metrics.ece_floor(logits)


@pytest.mark.parametrize("sharpness", [1 / 16, 1.0, 16.0])
def test_the_best_temperature_is_found_however_sharp_the_logits_are(sharpness: float) -> None:
    generator = torch.Generator().manual_seed(1)
    labels = torch.randint(5, (400,), generator=generator)
    logits = torch.randn(400, 5, generator=generator) * 3
    logits[torch.arange(400), labels] += 2
    by_hand = max(lates.metrics.auc(logits * 2**power, labels) for power in np.linspace(-5, 5, 81))
    scores = score(sharpness * logits, labels)
    assert scores["auc_best_temperature"] == pytest.approx(by_hand, abs=1e-4)
    assert scores["auc_best_temperature"] > scores["auc"]
    assert math.isnan(score(logits, labels, ["auc"])["auc_best_temperature"])  # not asked for


def test_a_metric_that_does_not_exist_is_nan() -> None:
    labels = torch.zeros(20, dtype=torch.int64)
    assert math.isnan(score(torch.randn(20, 3), labels)["auc"])
    assert math.isnan(score(torch.randn(20, 3), labels)["auc_best_temperature"])


def test_each_set_is_measured_whole_and_blocks_are_means_over_a_groups_sets() -> None:
    """Two sets like the jitter, one unlike it, and one of other images."""
    test, natural = sample_data().test, sample_data().holdout.select(torch.arange(7))
    sets = CorruptedSets(test, ("contrast", "brightness", "gaussian_blur"), (5,), natural)
    assert len(sets) == len([*sets]) == 5
    mixing = torch.randn(3, 10, generator=torch.Generator().manual_seed(0)) / 20

    def predict(test: ImageSet) -> dict[str, torch.Tensor]:
        logits = test.images.float().mean((2, 3)) @ mixing
        return {"temperature": logits, "network": logits / 2}

    scores, blocks = measure_sets(predict, sets)
    logits, labels = ({name: predict(each) for name, each in sets.items()}, {name: sets[name].labels for name in sets})
    assert list(scores) == [(method, name) for method in ("temperature", "network") for name in logits]
    for (method, name), metrics in scores.items():
        asked = [metric for metric in METRICS if name == "clean" or metric != "auc_best_temperature"]
        assert metrics == pytest.approx(score(logits[name][method], labels[name], asked), rel=1e-6, nan_ok=True)
    groups = {
        "clean": ["clean"],
        "like_jitter": ["contrast-5", "brightness-5"],
        "natural": ["natural"],
        "unlike_jitter": ["gaussian_blur-5"],
    }
    assert list(blocks) == [(method, group) for method in ("network", "temperature") for group in groups]
    for (method, group), values in blocks.items():
        each = [block_means(logits[name][method], labels[name]) for name in groups[group]]
        np.testing.assert_allclose(values, sum(each) / len(each), rtol=1e-6)
