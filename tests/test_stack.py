import subprocess
import sys
import threading
import warnings
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog, minimize
from torch import Tensor

from lates.holdout import Holdout
from lates.losses import LOSSES, brier, nll, soft_ece
from lates.newton import TOLERANCE
from lates.stack import combine, fit_holdout, fit_stack
from tests.problems import awkward, noisy_views, sharpened, two_signals

seeds = st.integers(0, 100_000)


def oracle(members: list[Tensor], labels: Tensor, regularise: float = 0.0) -> tuple[float, np.ndarray]:
    """The same problem by scipy's L-BFGS-B, in plain numpy."""
    n, right = len(labels), (np.arange(len(labels)), labels.numpy())
    logits = torch.stack(members, dim=2).double().numpy()
    scale, penalty = logits.std(axis=(0, 1)), regularise / np.sqrt(n)

    def value_and_gradient(scaled: np.ndarray) -> tuple[float, np.ndarray]:
        weights = scaled / scale
        combined = logits @ weights
        combined -= combined.max(axis=1, keepdims=True)
        log_normaliser = np.log(np.exp(combined).sum(axis=1))
        probabilities = np.exp(combined - log_normaliser[:, None])
        value = (log_normaliser - combined[right]).mean() + penalty / 2 * weights @ weights
        gradient = np.einsum("nc,nck->k", probabilities, logits) / n - logits[right].mean(axis=0) + penalty * weights
        return value, gradient / scale

    found = minimize(
        value_and_gradient,
        scale * np.eye(len(members))[-1],
        jac=True,
        method="L-BFGS-B",
        bounds=[(0, None)] * len(members),
        options={"ftol": 1e-16, "gtol": 1e-12, "maxiter": 10_000, "maxfun": 100_000},
    )
    return found.fun, found.x / scale


def has_no_minimiser(members: list[Tensor], labels: Tensor) -> bool:
    """By linear programming: some v >= 0 lowers no margin and raises one."""
    logits = torch.stack(members, dim=2).numpy()
    excess = (logits - logits[np.arange(len(labels)), labels.numpy()][:, None]).reshape(-1, len(members))
    excess = excess / np.maximum(np.sqrt((excess**2).mean(axis=0)), 1e-300)
    best = linprog(excess.mean(axis=0), A_ub=excess, b_ub=np.zeros(len(excess)), bounds=[(0, 1)] * len(members))
    return -best.fun > 1e-7


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
    assert stack.steps <= 8
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
    warm = fit_stack(logits, labels, start=cold.weights)
    assert warm.steps < cold.steps
    assert warm.weights.tolist() == pytest.approx(cold.weights.tolist(), abs=1e-9)


@pytest.mark.parametrize("loss", ["brier", "soft_ece"])
@pytest.mark.parametrize("regularise", [0.0, 0.5])
def test_losses_that_are_not_convex_never_end_worse_than_the_log_loss_optimum(loss: str, regularise: float) -> None:
    value = {"brier": brier, "soft_ece": soft_ece}[loss]
    for seed in range(3):
        logits, labels = noisy_views(400, 5, 4, seed=seed)
        start = fit_stack(logits, labels, regularise=regularise)
        stack = fit_stack(logits, labels, loss=loss, regularise=regularise)
        penalty = regularise / np.sqrt(400) / 2

        def objective(weights: Tensor, logits: list[Tensor], labels: Tensor, penalty: float = penalty) -> float:
            return float(value(combine(logits, weights), labels) + penalty * weights @ weights)

        assert stack.objective == pytest.approx(objective(stack.weights, logits, labels), abs=1e-12)
        assert stack.objective < objective(start.weights, logits, labels)
        assert not stack.certified
        if loss == "soft_ece":
            assert stack.nll <= 1.01 * start.nll


def test_brier_ends_at_a_stationary_point_that_lbfgsb_cannot_improve() -> None:
    logits, labels = noisy_views(600, 4, 3)
    stack = fit_stack(logits, labels, loss="brier")
    assert stack.residual < 1e-7

    def value(weights: np.ndarray) -> float:
        return float(brier(combine(logits, torch.from_numpy(weights)), labels))

    better = minimize(value, stack.weights.numpy(), method="L-BFGS-B", bounds=[(0, None)] * 3)
    assert stack.objective <= better.fun + 1e-9


def test_the_paper_s_sgd_comes_close_and_depends_on_its_seed_alone() -> None:
    logits, labels = noisy_views(1500, 5, 3, sharpness=0.7)
    exact, sgd = fit_stack(logits, labels), fit_stack(logits, labels, solver="sgd", seed=1)
    assert exact.nll <= sgd.nll <= 1.03 * exact.nll
    assert not sgd.certified
    assert sgd.steps == 50 * 12
    assert torch.equal(sgd.weights, fit_stack(logits, labels, solver="sgd", seed=1).weights)
    assert not torch.equal(sgd.weights, fit_stack(logits, labels, solver="sgd", seed=2).weights)


def test_every_label_right_is_bounded_and_not_certified() -> None:
    logits, _ = noisy_views(100, 4, 3)
    labels = logits[-1].argmax(dim=1)
    for members in (logits, logits[-1:]):
        stack = fit_stack(members, labels)
        assert stack.bounded
        assert not stack.certified
        assert bool(stack.weights.isfinite().all())
        assert max(stack.spread.values()) <= 1000 * (1 + 1e-12)
        assert stack.nll < 0.01
    assert fit_stack(logits, labels, regularise=0.1).certified


def test_one_right_row_alone_is_enough_to_leave_a_member_unbounded() -> None:
    logits, labels = noisy_views(100, 4, 2)
    lone = torch.zeros(100, 4, dtype=torch.float64)
    lone[17, labels[17]] = 5.0
    stack = fit_stack([lone, *logits], labels)
    assert stack.bounded
    assert not stack.certified
    without = fit_stack(logits, labels)
    assert stack.nll < without.nll


def test_repeated_members_share_their_weight_and_constant_ones_stay_at_zero() -> None:
    logits, labels = noisy_views(300, 4, 2)
    alone = fit_stack(logits, labels)
    zeros, constant = torch.zeros(300, 4, dtype=torch.float64), torch.full((300, 4), 3.0, dtype=torch.float64)
    stack = fit_stack([logits[0], zeros, logits[0], constant, logits[1]], labels)
    assert stack.certified
    assert float(stack.weights[0] + stack.weights[2]) == pytest.approx(float(alone.weights[0]), abs=1e-6)
    assert stack.weights[[1, 3]].tolist() == [0, 0]
    assert stack.nll == pytest.approx(alone.nll, abs=1e-12)


def test_members_that_are_always_wrong_get_no_weight() -> None:
    logits, labels = noisy_views(300, 4, 3)
    stack = fit_stack([-member for member in logits], labels)
    assert stack.certified
    assert stack.weights.tolist() == [0, 0, 0]
    assert stack.contributions == {"0": 0.0, "1": 0.0, "head": 0.0}
    assert stack.nll == pytest.approx(np.log(4), abs=1e-12)
    assert fit_stack([-logits[0]], labels).temperature == float("inf")
    mixed = fit_stack([logits[0], -logits[1]], labels)
    assert float(mixed.weights[0]) > 0
    assert float(mixed.weights[1]) == 0


def test_one_class_only_keeps_the_start() -> None:
    stack = fit_stack([torch.randn(5, 1), torch.randn(5, 1)], torch.zeros(5, dtype=torch.int64))
    assert stack.weights.tolist() == [0, 1]
    assert stack.nll == 0


def test_classes_that_the_holdout_lacks() -> None:
    logits, labels = noisy_views(400, 6, 2)
    kept = labels < 4
    stack = fit_stack([member[kept] for member in logits], labels[kept])
    value, _ = oracle([member[kept] for member in logits], labels[kept])
    assert stack.certified
    assert stack.objective == pytest.approx(value, abs=1e-9)


def test_fewer_rows_than_members() -> None:
    logits, labels = noisy_views(4, 3, 9)
    free = fit_stack(logits, labels)
    assert free.bounded == has_no_minimiser(logits, labels)
    held = fit_stack(logits, labels, regularise=0.5)
    assert held.certified
    assert held.objective == pytest.approx(oracle(logits, labels, 0.5)[0], abs=1e-9)


def test_members_recorded_under_inference_mode_can_be_fitted_there_and_elsewhere() -> None:
    logits, labels = noisy_views(100, 3, 2)
    with torch.inference_mode():
        recorded, of_rows = [member.clone() for member in logits], labels.clone()
        inside = fit_stack(recorded, of_rows, loss="brier")
    assert torch.equal(fit_stack(recorded, of_rows, loss="brier").weights, inside.weights)
    assert torch.equal(
        fit_stack([member.requires_grad_() for member in logits], labels, loss="brier").weights, inside.weights
    )


def test_only_a_single_member_has_a_temperature() -> None:
    logits, labels = noisy_views(100, 3, 2)
    with pytest.raises(AttributeError, match="A stack of 2 members has no single temperature"):
        _ = fit_stack(logits, labels).temperature


def test_bad_input_says_what_came_and_what_to_do() -> None:
    logits, labels = noisy_views(50, 3, 2)
    nan, infinite = logits[0].clone(), logits[0].clone()
    nan[7, 1], infinite[9, 2] = torch.nan, -torch.inf
    with pytest.raises(ValueError, match='member "0" hold NaN in row 7'):
        fit_stack([nan, logits[1]], labels)
    with pytest.raises(ValueError, match=r'Member "a" holds -inf in row 9.*clamp'):
        fit_stack({"a": infinite, "head": logits[1]}, labels)
    with pytest.raises(TypeError, match="float"):
        fit_stack(logits, labels.double())
    with pytest.raises(ValueError, match="labels hold 3"):
        fit_stack(logits, labels.clone().fill_(3))
    with pytest.raises(ValueError, match=r"expected \[50\]"):
        fit_stack(logits, labels[:49])
    with pytest.raises(ValueError, match=r'Member "0" has shape \[50, 2\], but the head "head" has \[50, 3\]'):
        fit_stack([logits[0][:, :2], logits[1]], labels)
    with pytest.raises(ValueError, match="empty"):
        fit_stack([logits[0][:0]], labels[:0])
    with pytest.raises(ValueError, match="no members"):
        fit_stack([], labels)
    with pytest.raises(ValueError, match=r"expected \[n, classes, members\]"):
        fit_stack(logits[0], labels)
    with pytest.raises(ValueError, match=r"regularise is -1\.0"):
        fit_stack(logits, labels, regularise=-1.0)
    with pytest.raises(ValueError, match=r'Unknown loss "mse"\. Losses: nll, brier, soft_ece'):
        fit_stack(logits, labels, loss="mse")
    with pytest.raises(ValueError, match=r'Unknown solver "adam"\. Solvers: exact, sgd'):
        fit_stack(logits, labels, solver="adam")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="expected 2 finite weights >= 0"):
        fit_stack(logits, labels, start=torch.tensor([-1.0, 1.0]))
    with pytest.raises(ValueError, match="takes neither start nor reduce"):
        fit_stack(logits, labels, solver="sgd", start=torch.ones(2))


def test_probabilities_passed_as_logits_are_noticed() -> None:
    logits, labels = noisy_views(50, 3, 2)
    with pytest.warns(
        UserWarning, match=r'member "0" look like probabilities.*probabilities\.log\(\) are valid logits'
    ):
        fit_stack([logits[0].softmax(1), logits[1]], labels)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        logs = fit_stack([member.log_softmax(1) for member in logits], labels)
    assert logs.weights.tolist() == pytest.approx(fit_stack(logits, labels).weights.tolist(), abs=1e-8)


MEMORY_TRIAL = """
import resource, torch
from lates.stack import fit_stack
torch.set_num_threads(1)
small = [torch.randn(64, 100) for _ in range(12)]
fit_stack(small, torch.arange(64), loss="brier", regularise=1.0)
n, members = 24_000, [torch.empty(24_000, 100) for _ in range(12)]
for member in members:
    member.normal_()
labels = torch.randint(100, (n,))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
fit_stack(members, labels)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 / (12 * n * 100 * 4))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss is in kilobytes on Linux only")
def test_nothing_of_the_members_size_is_allocated() -> None:
    trial = subprocess.run([sys.executable, "-c", MEMORY_TRIAL], capture_output=True, text=True, check=True)
    assert float(trial.stdout) < 0.25


@pytest.mark.parametrize("order", ["drawn", "by label"])
def test_many_rows_lead_to_the_optimum_that_a_start_of_one_s_own_leads_to(order: str) -> None:
    members, labels = noisy_views(14_000, 4, members=4)
    if order == "by label":
        rows = labels.argsort()
        members, labels = [member[rows] for member in members], labels[rows]
    found, other = fit_stack(members, labels), fit_stack(members, labels, start=torch.full((4,), 0.2))
    assert found.certified
    assert found.residual <= TOLERANCE
    assert found.objective <= fit_stack(members[-1:], labels).objective
    torch.testing.assert_close(found.weights, other.weights, rtol=0, atol=1e-8)


def test_many_rows_of_which_the_few_that_are_looked_at_first_are_all_right() -> None:
    (logits, *_), labels = noisy_views(4_000, 3, members=1)
    logits[::17] = 100 * torch.nn.functional.one_hot(labels[::17], 3).double()
    found, other = fit_stack([logits], labels), fit_stack([logits], labels, start=torch.ones(1))
    assert found.certified
    assert found.weights.tolist() == pytest.approx(other.weights.tolist(), abs=1e-9)


def test_many_rows_that_are_all_right_are_told_from_a_minimum() -> None:
    labels = torch.arange(4_000) % 3
    found = fit_stack([2 * torch.nn.functional.one_hot(labels, 3).double()], labels)
    assert found.bounded
    assert not found.certified


def test_a_fault_of_the_machine_is_not_taken_for_rows_that_are_hard_to_fit() -> None:
    """The solver begins with a few of many rows, and passes over those only where they do not converge."""
    calls = 0

    def fails_once(sums: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        if calls == 4:
            raise RuntimeError("out of memory")
        return sums

    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(3, (6000,), generator=generator)
    logits = torch.randn(6000, 3, generator=generator) + 2 * torch.eye(3)[labels]
    with pytest.raises(RuntimeError, match="out of memory"):
        fit_stack([logits], labels, reduce=fails_once)
