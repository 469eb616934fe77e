"""The generator gives its published answers, and its numbers look like chance."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from experiments.data.corruptions.draws import Draws, philox
from tests.experiments.data.corruptions.references import CPU, SEED


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
    ],
)
def test_philox_gives_its_published_answers(counter: str, key: str, expected: str) -> None:
    c0, c1, c2, c3 = (torch.tensor(int(word, 16)) for word in counter.split())
    low, high = (int(word, 16) for word in key.split())
    assert " ".join(f"{int(word):08x}" for word in philox((c0, c1, c2, c3), (low, high))) == expected


def test_draws_are_uniform_normal_and_independent() -> None:
    source = Draws(SEED, "test", 5, 40, CPU)
    uniform = source.uniform("a", 2501)
    assert stats.kstest(uniform.flatten(), "uniform").pvalue > 0.01
    assert stats.kstest(source.normal("a", 2501).flatten(), "norm").pvalue > 0.01
    others = [
        source.uniform("b", 2501),
        uniform.roll(1, 0),
        uniform.roll(1, 1),
        Draws(SEED + 1, "test", 5, 40, CPU).uniform("a", 2501),
        Draws(SEED + 2**32, "test", 5, 40, CPU).uniform("a", 2501),
        Draws(SEED, "tess", 5, 40, CPU).uniform("a", 2501),
    ]
    for other in others:
        assert abs(np.corrcoef(uniform.flatten(), other.flatten())[0, 1]) < 4 / math.sqrt(uniform.numel())
