"""Noise has the distribution that its name says."""

import numpy as np
import pytest
from scipy import stats

from experiments.data.corruptions import SEVERITIES, corrupt
from experiments.data.corruptions.constants import CIFAR
from tests.experiments.data.corruptions.references import SEED, grey


@pytest.mark.parametrize("severity", SEVERITIES)
def test_gaussian_and_speckle_noise_have_their_deviation(severity: int) -> None:
    for name, level, scale in (("gaussian_noise", 128, 255), ("speckle_noise", 100, 100)):
        (deviation,) = CIFAR[name][severity - 1]
        values = corrupt(grey(level), name, severity, SEED).double() - level
        assert values.std().item() == pytest.approx(scale * deviation, rel=0.02)
        assert values.mean().item() == pytest.approx(-0.5, abs=0.4), "truncation costs half a grey level"
    assert corrupt(grey(0), "speckle_noise", severity, SEED).max() == 0


@pytest.mark.parametrize(("severity", "level"), [(1, 1), (1, 120), (5, 200), (5, 255)])
def test_shot_noise_is_poisson(severity: int, level: int) -> None:
    (photons,) = CIFAR["shot_noise"][severity - 1]
    values = corrupt(grey(level), "shot_noise", severity, SEED).numpy().ravel()
    counts = np.arange(int(photons) + 1)
    chance = stats.poisson.pmf(counts, level * photons / 255)
    chance[-1] = 1 - chance[:-1].sum()  # everything brighter is clipped
    expected = np.bincount((counts / photons * 255 + 1e-6).astype(int), weights=chance, minlength=256) * values.size
    observed = np.bincount(values, minlength=256)
    usual = expected > 20
    assert observed[expected == 0].sum() == 0
    observed, expected = (np.append(x[usual], x[~usual].sum() + 1e-9) for x in (observed, expected))
    assert stats.chisquare(observed, expected * observed.sum() / expected.sum()).pvalue > 0.001


@pytest.mark.parametrize("severity", SEVERITIES)
def test_impulse_noise_hits_its_share(severity: int) -> None:
    (share,) = CIFAR["impulse_noise"][severity - 1]
    values = corrupt(grey(77), "impulse_noise", severity, SEED)
    assert values.unique().tolist() == [0, 77, 255]
    for extreme in (0, 255):
        assert stats.binomtest(int((values == extreme).sum()), values.numel(), share / 2).pvalue > 0.001
