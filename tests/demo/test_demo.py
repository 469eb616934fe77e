"""The demo: its images, network, training and shifts, and that its results agree with `lates.metrics`."""

from importlib.resources import files

import numpy as np
import pytest
import torch
from scipy.ndimage import gaussian_filter
from torch import Tensor, nn

import lates
from lates.demo import (
    LATES,
    NETWORK,
    NO_VIEWS,
    TEMPERATURE,
    Splits,
    load_network,
    load_splits,
    run_experiment,
    shift_split,
    train_network,
)
from lates.demo.shifts import BLUR, CONTRAST, NOISE, add_noise, blur, lower_contrast

SHIPPED_ACCURACY = 0.881
"""As the README states it."""


def same_weights(one: nn.Module, other: nn.Module) -> bool:
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return all(torch.equal(first, second) for first, second in pairs)


@pytest.fixture(scope="module")
def splits() -> Splits:
    return load_splits()


def test_images_come_in_three_balanced_splits(splits: Splits) -> None:
    assert [len(split) for split in (splits.train, splits.holdout, splits.test)] == [6000, 2000, 4000]
    for split in (splits.train, splits.holdout, splits.test):
        assert split.images.shape == (len(split), 1, 28, 28)
        assert (split.images.min(), split.images.max()) == (0, 1)
        shares = torch.bincount(split.labels, minlength=10) / len(split)
        assert shares.shape == (10,)
        assert float((shares - 0.1).abs().max()) < 0.02
    batches = splits.test.batches
    assert torch.equal(torch.cat([labels for _, labels in batches]), splits.test.labels)


def test_images_come_with_their_licence() -> None:
    notice = files("lates").joinpath("data", "NOTICE").read_text(encoding="utf-8")
    assert "MIT License" in notice
    assert "2017 Zalando SE" in notice


def test_network_is_as_accurate_as_stated_and_overconfident(splits: Splits) -> None:
    network = load_network()
    with torch.inference_mode():
        logits = torch.cat([network(images) for images, _ in splits.test.batches])
    assert lates.metrics.accuracy(logits, splits.test.labels) == pytest.approx(SHIPPED_ACCURACY, abs=0.001)
    confidence = float(logits.softmax(1).amax(1).mean())
    assert confidence > SHIPPED_ACCURACY + 0.05
    assert len(files("lates").joinpath("data", "network.safetensors").read_bytes()) < 1_000_000


def test_training_learns_and_is_repeatable(splits: Splits) -> None:
    before = torch.get_rng_state()
    steps: list[tuple[str, int, int | None]] = []
    part = splits.train.first(1280)
    network = train_network(part, epochs=4, progress=lambda *step: steps.append(step))
    assert steps == [("training", done, 40) for done in range(1, 41)]
    assert torch.equal(torch.get_rng_state(), before)
    test = splits.test.first(1000)
    with torch.inference_mode():
        assert lates.metrics.accuracy(network(test.images), test.labels) > 0.5
    small = splits.train.first(256)
    first, again, other = (train_network(small, epochs=1, seed=seed) for seed in (3, 3, 4))
    assert same_weights(first, again)
    assert not same_weights(first, other)


def test_noise_follows_its_deviation_and_seed() -> None:
    grey = torch.full((50, 1, 28, 28), 0.5)
    noisy = add_noise(grey, seed=1)
    assert float((noisy - grey).std()) == pytest.approx(NOISE, rel=0.02)
    assert torch.equal(noisy, add_noise(grey, seed=1))
    assert not torch.equal(noisy, add_noise(grey, seed=2))
    white = add_noise(torch.ones(5, 1, 28, 28))
    assert float(white.max()) == 1


def test_blur_agrees_with_scipy(splits: Splits) -> None:
    images = splits.test.images[:5]
    expected = [gaussian_filter(image.double().numpy(), BLUR, mode="nearest", truncate=3) for image in images[:, 0]]
    np.testing.assert_allclose(blur(images)[:, 0].numpy(), np.stack(expected), atol=1e-6)


def test_contrast_keeps_each_mean_and_scales_each_deviation(splits: Splits) -> None:
    images = splits.test.images[:20]
    changed = lower_contrast(images)
    torch.testing.assert_close(changed.mean((1, 2, 3)), images.mean((1, 2, 3)))
    torch.testing.assert_close(changed.std((1, 2, 3)), CONTRAST * images.std((1, 2, 3)))


def test_results_agree_with_lates_metrics(splits: Splits) -> None:
    few, network = splits.shrink(10), load_network()
    results, _ = run_experiment(network, few)
    stacked = lates.calibrate(network, train=few.train.batches, holdout=few.holdout.batches)
    tempered = lates.calibrate(network, holdout=few.holdout.batches, blocks=[])
    tests = shift_split(few.test)
    assert list(results.comparisons) == list(tests)
    for name, found in results.comparisons.items():
        logits: dict[str, Tensor] = {}
        for method, model in {NETWORK: network, TEMPERATURE: tempered, LATES: stacked}.items():
            with torch.inference_mode():
                logits[method] = torch.cat([model(images) for images, _ in tests[name].batches])
            summary = lates.metrics.summary(logits[method], few.test.labels)
            for metric in ("accuracy", "ece", "nll", "brier"):
                assert found.measured[method][metric].value == pytest.approx(summary[metric], abs=1e-6)
            assert results.auc[name][method] == pytest.approx(summary["auc"], abs=1e-6)
        assert list(found.differences[LATES]) == list(found.differences[NO_VIEWS]) == [TEMPERATURE]
        assert found.differences[NETWORK] == found.differences[TEMPERATURE] == {}
        ours = lates.metrics.bootstrap(lates.metrics.nll, logits[LATES], few.test.labels, other=logits[TEMPERATURE])
        difference = found.differences[LATES][TEMPERATURE]["nll"]
        assert (difference.low, difference.high) == pytest.approx((ours.low, ours.high), abs=1e-6)
    cost, parameters = results.costs[LATES], sum(value.numel() for value in network.parameters())
    assert cost.contributions == pytest.approx(stacked.contributions, abs=1e-6)
    assert cost.added_parameters == stacked.added_parameters / parameters
