"""The stack's optimum is that of scipy, certified where there is one, and the same however its members come."""

import threading
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from lates.holdout import Holdout
from lates.losses import LOSSES, nll
from lates.newton import TOLERANCE
from lates.stack import combine, fit_holdout, fit_stack
from tests.problems import awkward, noisy_views, sharpened, two_signals
from tests.stack_oracles import has_no_minimiser, oracle

seeds = st.integers(0, 100_000)


@pytest.mark.parametrize("regularise", [0.0, 0.3])
@pytest.mark.parametrize(("n", "classes", "members"), [(500, 2, 3), (800, 10, 1), (400, 20, 9), (2000, 5, 6)])
def test_it_finds_what_lbfgsb_finds(n: int, classes: int, members: int, regularise: float) -> None:
    logits, labels = noisy_views(n, classes, members)
    stack = fit_stack(logits, labels, regularise=regularise)
    value, weights = oracle(logits, labels, regularise)
    assert stack.objective == pytest.approx(value, abs=1e-9)
    assert stack.weights.tolist() == pytest.approx(weights.tolist(), abs=1e-5)
    assert stack.certified
    assert not stack.bounded
    assert stack.residual <= TOLERANCE
    assert stack.steps <= 12
    assert stack.nll == pytest.approx(float(nll(combine(logits, stack.weights), labels)), abs=1e-12)


def test_a_known_temperature_is_recovered() -> None:
    logits, labels = sharpened(2.5, n=50_000, classes=10)
    stack = fit_stack([logits], labels)
    assert stack.temperature == pytest.approx(2.5, rel=0.01)
    assert stack.names == ("head",)
    assert stack.steps <= 3  # those of third order, and then Newton's one
    assert stack.early_steps > 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("offset", [0.0, 1000.0])
def test_deviations_are_the_rms_of_centred_logits_whatever_a_row_adds(dtype: torch.dtype, offset: float) -> None:
    logits, labels = noisy_views(500, 5, 3)
    members = [(member + offset).to(dtype) for member in logits]
    members[0][7, 2] = -1e30  # squares of which float32 cannot hold
    found = fit_stack(members[1:], labels).deviations.tolist() + fit_stack(members[:1], labels).deviations.tolist()
    expected = [float(m.double().var(dim=1, correction=0).mean().sqrt()) for m in (*members[1:], members[0])]
    assert found == pytest.approx(expected, rel=1e-6)


def test_steps_are_counted_apart_where_they_cost_less() -> None:
    """By hand: few rows have no early steps, several members begin with the head's, and Brier goes on from the log-loss."""
    logits, labels = noisy_views(500, 5, 4)
    head, stack = fit_stack(logits[-1:], labels), fit_stack(logits, labels)
    assert (head.early_steps, stack.early_steps) == (0, head.steps)
    brier = fit_stack(logits, labels, loss="brier")
    assert brier.early_steps == stack.early_steps
    assert brier.steps > stack.steps


def test_members_are_combined_by_their_weights_and_those_of_weight_0_not_touched() -> None:
    first, second, broken = torch.tensor([[1.0, 2.0]]), torch.tensor([[10.0, 30.0]]), torch.full((1, 2), torch.nan)
    assert combine([first, broken, second], torch.tensor([1.0, 0.0, 0.5])).tolist() == [[6.0, 17.0]]
    assert first.tolist() == [[1.0, 2.0]]


def test_weight_goes_to_the_members_that_carry_signal() -> None:
    logits, labels, truth = two_signals(n=20_000, classes=8, silent=4)
    stack = fit_stack(logits, labels)
    assert stack.weights.tolist() == pytest.approx(truth.tolist(), abs=0.04)
    assert stack.contributions["0"] == pytest.approx(0.8 / 1.3, abs=0.03)
    assert stack.spread["0"] == pytest.approx(0.8 * 2 * np.sqrt(7 / 8), abs=0.05)


@settings(max_examples=40, deadline=None)
@given(seed=seeds, regularise=st.sampled_from([0.0, 1e-3, 1.0]))
def test_the_stack_is_never_worse_than_temperature_nor_temperature_than_the_network(
    seed: int, regularise: float
) -> None:
    logits, labels = awkward(seed)
    stack = fit_stack(logits, labels, regularise=regularise)
    temperature = fit_stack(logits[-1:], labels, regularise=regularise)
    network = float(nll(logits[-1], labels)) + regularise / np.sqrt(len(labels)) / 2
    assert stack.objective <= temperature.objective + 1e-12
    assert temperature.objective <= network + 1e-12
    assert bool((stack.weights >= 0).all())
    if regularise > 0:
        assert stack.certified


@settings(max_examples=40, deadline=None)
@given(seed=seeds)
def test_no_certificate_where_linear_programming_finds_no_minimiser(seed: int) -> None:
    logits, labels = awkward(seed)
    stack = fit_stack(logits, labels)
    assert stack.certified != stack.bounded
    if stack.certified:
        assert not has_no_minimiser(logits, labels)
        assert stack.residual <= TOLERANCE


def test_certified_where_linear_programming_finds_a_minimiser() -> None:
    bounded = []
    for seed in range(60):
        logits, labels = awkward(seed)
        stack = fit_stack(logits, labels)
        assert stack.bounded == has_no_minimiser(logits, labels)
        bounded.append(stack.bounded)
    assert 5 < sum(bounded) < 55


@settings(max_examples=15, deadline=None)
@given(seed=seeds, factor=st.floats(1e-4, 1e4), constant=st.floats(-100, 100))
def test_invariances(seed: int, factor: float, constant: float) -> None:
    logits, labels = noisy_views(200, 4, 3, seed=seed)
    weights = fit_stack(logits, labels).weights
    row_constants = constant * torch.linspace(-1, 1, 200, dtype=torch.float64)[:, None]
    shifted = fit_stack([logits[0] + row_constants, *logits[1:]], labels).weights
    assert shifted.tolist() == pytest.approx(weights.tolist(), abs=1e-8)
    order = torch.randperm(200, generator=torch.Generator().manual_seed(seed))
    permuted = fit_stack([member[order] for member in logits], labels[order]).weights
    assert permuted.tolist() == pytest.approx(weights.tolist(), abs=1e-8)
    rescaled = fit_stack([factor * logits[0], *logits[1:]], labels).weights
    rescaled[0] *= factor
    assert rescaled.tolist() == pytest.approx(weights.tolist(), abs=1e-8)


def test_forms_of_members_agree_and_names_are_kept() -> None:
    logits, labels = noisy_views(300, 5, 3)
    of_sequence = fit_stack(logits, labels)
    array = torch.stack(logits, dim=2)
    of_mapping = fit_stack(dict(zip(("a", "b", "net"), logits, strict=True)), labels.numpy())
    for other in (fit_stack(array, labels), fit_stack(array.numpy(), labels.int()), of_mapping):
        assert torch.equal(other.weights, of_sequence.weights)
    assert of_sequence.names == ("0", "1", "head")
    assert list(of_mapping.contributions) == ["a", "b", "net"]
    single = fit_stack([member.float() for member in logits], labels)
    assert single.certified
    assert single.weights.tolist() == pytest.approx(of_sequence.weights.tolist(), abs=1e-5)


@pytest.mark.parametrize("rows", [1, 7, 300, 1000])
def test_the_size_of_chunks_does_not_matter(rows: int) -> None:
    logits, labels = noisy_views(300, 5, 3)
    stack = fit_holdout(Holdout(((logits, labels),), chunk_rows=rows), ("a", "b", "head"))
    assert stack.weights.tolist() == pytest.approx(fit_stack(logits, labels).weights.tolist(), abs=1e-12)


def test_a_reducer_is_all_that_several_processes_need() -> None:
    logits, labels = noisy_views(300, 5, 3)
    barrier, deposits, results = threading.Barrier(2), {}, {}

    def reducer(worker: int) -> Callable[[Tensor], Tensor]:
        def reduce(sums: Tensor) -> Tensor:
            deposits[worker] = sums
            barrier.wait(timeout=30)
            total = deposits[0] + deposits[1]
            barrier.wait(timeout=30)
            return total

        return reduce

    def work(worker: int, rows: slice, loss: str) -> None:
        mine = [member[rows] for member in logits]
        results[worker] = fit_stack(mine, labels[rows], loss=loss, regularise=0.2, reduce=reducer(worker))

    for loss in LOSSES:
        workers = [
            threading.Thread(target=work, args=(worker, rows, loss))
            for worker, rows in enumerate((slice(None, 90), slice(90, None)))
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert torch.equal(results[0].weights, results[1].weights)
        whole = fit_stack(logits, labels, loss=loss, regularise=0.2)
        assert results[0].objective == pytest.approx(whole.objective, abs=1e-6)
        if loss == "nll":
            assert results[0].weights.tolist() == pytest.approx(whole.weights.tolist(), abs=1e-10)


def test_a_warm_start_ends_in_the_same_place_in_fewer_steps() -> None:
    logits, labels = noisy_views(500, 5, 4)
    cold = fit_stack(logits, labels)
    warm = fit_stack(logits, labels, start=torch.nn.Parameter(cold.weights))
    assert warm.steps < cold.steps
    assert not warm.weights.requires_grad
    assert warm.weights.tolist() == pytest.approx(cold.weights.tolist(), abs=1e-9)
