"""What a fit warns of, each once and with what to do; rows that are left out; and the fall-back to temperature scaling."""

import re
import threading
import warnings
from collections.abc import Callable

import pytest
import torch
from scipy.stats import binom
from torch import Tensor

from lates import metrics
from lates.binomial import binomial_tail
from lates.settings import DEFAULT, Settings
from lates.stack import MemberRows, Stack, fit_stack, fit_weights
from lates.stack.safeguards import without_outliers
from tests.problems import dropout_samples, noisy_views


def warnings_of(fit: Callable[[], Stack]) -> tuple[Stack, list[str]]:
    with warnings.catch_warnings(record=True, action="always") as caught:
        return fit(), [str(warning.message) for warning in caught]


def few(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    return logits[:999], labels[:999]


def perfect(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    return 0.2 * logits, logits.argmax(dim=1)


def without_classes(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    kept = (labels != 1) & (labels != 3)
    return logits[kept], labels[kept]


def worst(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    return logits, logits.argmin(dim=1)


def shuffled(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    return 1e-3 * logits, labels.roll(1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            few,
            "The weights are fitted to 999 hold-out rows; the prior keeps them close to the network. Use 1,000 or more",
        ),
        (
            perfect,
            "All 3,000 hold-out rows are classified correctly, .* one error was assumed. By its confidence it .* 1",
        ),
        (without_classes, r"2 of 5 classes have no hold-out row \(1, 3\): .* Add rows of these classes"),
        (worst, "All weights are 0, so that every prediction is uniform: on these 3000 rows no logits agree"),
        (
            shuffled,
            "The network is right on [56].. of 3,000 hold-out rows, no more than by chance .* checkpoint loaded",
        ),
    ],
)
def test_doubtful_holdout_is_warned_of_once(change: Callable[..., tuple[Tensor, Tensor]], message: str) -> None:
    (logits,), labels = noisy_views(3_000, 5, 1)
    sound, silence = warnings_of(lambda: fit_stack([logits], labels))
    assert sound.certified
    assert silence == []
    logits, labels = change(logits, labels)
    stack, (said,) = warnings_of(lambda: fit_stack([logits], labels))
    assert stack.certified
    assert re.match(message, said), said


@pytest.mark.parametrize("samples", [1, 2])
def test_outlier_rows_are_left_out_with_a_warning(samples: int) -> None:
    drawn, labels = dropout_samples(1_200, 4, samples=samples)
    ordinary = torch.arange(1_200) % 400 != 7
    alone = fit([[member[ordinary] for member in sample] for sample in drawn], labels[ordinary])
    for sample in drawn:
        sample[0][7::400] *= 1e5
    stack, (said,) = warnings_of(lambda: fit(drawn, labels))
    assert re.match(r'3 of 1200 hold-out rows .*median \(rows 7, 407, 807; member "0", .* left out of the fit', said), said
    assert torch.equal(stack.weights, alone.weights)
    assert (stack.rows, stack.nll) == (1_197, alone.nll)
    everything, said_of_all = warnings_of(lambda: fit(drawn, labels, Settings(prior=0)))
    assert not any("left out" in warning for warning in said_of_all)
    assert everything.rows == 1_200


def fit(drawn: list[list[Tensor]], labels: Tensor, settings: Settings = DEFAULT) -> Stack:
    draws = [{"0": probe, "head": head} for probe, head in drawn]
    return fit_weights(MemberRows.of(draws, labels, samples_per_network=len(draws)), "nll", settings)


@pytest.mark.parametrize("scale", [1e60, 1e200])
def test_logits_beyond_float64_are_refused(scale: float) -> None:
    logits = scale * torch.randn(1_500, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    with pytest.raises(ValueError, match=r'logits of member "0" vary by .* beyond what float64 can fit; expected at most'):
        fit_stack([logits, logits], torch.arange(1_500) % 5)


def test_outliers_of_shards_are_those_of_all_rows() -> None:
    """The third of the rows in one shard is a thousand times the rest: outliers by the common median alone."""
    (logits,), labels = noisy_views(900, 4, 1)
    logits[600:] *= 1_000
    parts, results, barrier = {}, {}, threading.Barrier(2)

    def work(rank: int, rows: slice) -> None:
        def reduce(sums: Tensor) -> Tensor:
            parts[rank] = sums
            barrier.wait(timeout=30)
            total = parts[0] + parts[1]
            barrier.wait(timeout=30)
            return total

        results[rank] = without_outliers(MemberRows.of([[logits[rows]]], labels[rows], reduce=reduce), warn=False)

    workers = [threading.Thread(target=work, args=each) for each in enumerate((slice(600), slice(600, None)))]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [(len(results[rank].labels), results[rank].rows) for rank in (0, 1)] == [(600, 600), (0, 600)]


def test_tied_logits_count_as_the_first_class_does_in_metrics() -> None:
    labels = torch.tensor([0] * 60 + [1] * 40)
    logits = torch.zeros(100, 2, dtype=torch.float64)
    _, said = warnings_of(lambda: fit_stack([logits], labels))
    assert metrics.accuracy(logits, labels) == 0.6
    assert any(re.match("The network is right on 60 of 100 hold-out rows", warning) for warning in said), said


def test_stack_clearly_less_accurate_than_the_head_falls_back_to_temperature_scaling() -> None:
    """The head is right but hardly sure in nine rows of ten; a probe that errs faintly there knows the rest for certain."""
    labels = torch.arange(2_000) % 4
    right, other = (torch.eye(4, dtype=torch.float64)[(labels + shift) % 4] for shift in (0, 1))
    known = (torch.arange(2_000) % 10 < 9)[:, None]
    head, probe = torch.where(known, 0.1 * right, 2 * other), torch.where(known, 0.4 * other, 8 * right)
    stack, said = warnings_of(lambda: fit_stack([probe, head], labels))
    assert re.match("The stack is right on 200 hold-out rows, the head on 1,800: the probes were dropped", said[0]), said
    scaled = fit_stack([head], labels)
    assert stack.weights.tolist() == pytest.approx([0, float(scaled.weights[0]) or 1.0])
    assert not stack.certified
    assert fit_stack([probe, head], labels, prior=0).contributions["0"] > 0


def test_binomial_tail_matches_scipy() -> None:
    for least, trials, chance in [(0, 5, 0.3), (3, 5, 0.3), (5, 5, 0.3), (520, 1000, 0.5), (1, 9, 0.0), (9, 9, 1.0)]:
        assert binomial_tail(least, trials, chance) == pytest.approx(float(binom.sf(least - 1, trials, chance)))


def test_probes_without_a_vote_are_warned_of() -> None:
    (head,), labels = noisy_views(3_000, 5, 1)
    wrong = -torch.eye(5, dtype=torch.float64)[labels]
    stack, (said,) = warnings_of(lambda: fit_stack([wrong, head], labels))
    assert stack.weights[0] == 0
    assert re.match("No probe got a vote.*More training rows", said), said
