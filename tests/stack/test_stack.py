"""The stack's optimum agrees with scipy's and does not depend on how its members come; other losses and the paper's SGD."""

import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from torch import Tensor
from torch.nn.functional import cross_entropy

from lates.settings import Settings
from lates.stack import combine, fit_stack, member_names
from lates.stack.losses import LOSSES, NLL
from lates.stack.members import CHUNK_BYTES, MemberRows
from lates.stack.newton import TOLERANCE
from lates.stack.optimum import fit_optimum
from tests.problems import awkward, draw_labels, noisy_views, sharpened, two_signals
from tests.stack.oracles import oracle, penalised

seeds = st.integers(0, 100_000)


@pytest.mark.parametrize(("regularise", "prior"), [(0.0, 0.0), (0.3, 0.0), (0.0, 2.0)])
@pytest.mark.parametrize(("n", "classes", "members"), [(500, 2, 3), (800, 10, 1), (400, 20, 9), (2000, 5, 6)])
def test_stack_matches_lbfgsb(n: int, classes: int, members: int, regularise: float, prior: float) -> None:
    logits, labels = noisy_views(n, classes, members)
    stack = fit_stack(logits, labels, regularise=regularise, prior=prior)
    value, weights = oracle(logits, labels, regularise, prior)
    assert stack.objective == pytest.approx(value, abs=1e-9)
    assert stack.weights.tolist() == pytest.approx(weights.tolist(), abs=1e-5)
    assert stack.certified
    assert not stack.unbounded
    assert stack.residual <= TOLERANCE
    assert stack.steps <= 12
    assert (stack.rows, stack.classes) == (n, classes)
    assert stack.nll == pytest.approx(float(NLL(combine(logits, stack.weights), labels)), abs=1e-12)
    assert stack.nll_network == pytest.approx(float(NLL(logits[-1], labels)), abs=1e-12)
    temperature = fit_stack(logits[-1:], labels, regularise=regularise, prior=prior)
    assert stack.nll_temperature == pytest.approx(temperature.nll, abs=1e-12)
    assert stack.temperature_weights == pytest.approx(temperature.weights.tolist(), abs=1e-12)


def test_known_temperature_is_recovered() -> None:
    logits, labels = sharpened(2.5, n=50_000, classes=10)
    stack = fit_stack([logits], labels)
    assert stack.temperature == pytest.approx(2.5, rel=0.01)
    assert stack.names == ("head",)
    with pytest.raises(AttributeError, match="A stack of 2 members has no single temperature"):
        _ = fit_stack([logits, logits], labels).temperature


def test_temperature_of_an_overconfident_network_takes_few_steps() -> None:
    """Of large logits Newton's full first step overshoots; small ones, whose loss is nearly quadratic, do not pay for that."""
    logits, labels = sharpened(1.5, n=20_000, classes=10)
    assert fit_stack([logits], labels).steps <= 4
    generator = torch.Generator().manual_seed(0)
    faint = torch.randn(20_000, 10, generator=generator) / 10
    assert fit_stack([5 * faint], draw_labels(faint, generator)).steps <= 4


def test_weight_goes_to_members_that_carry_signal() -> None:
    logits, labels, truth = two_signals(n=20_000, classes=8, silent=4)
    stack = fit_stack(logits, labels)
    assert stack.weights.tolist() == pytest.approx(truth.tolist(), abs=0.04)
    assert stack.contributions["0"] == pytest.approx(0.8 / 1.3, abs=0.03)
    assert stack.spread["0"] == pytest.approx(0.8 * 2 * np.sqrt(7 / 8), abs=0.05)


def test_combine_skips_members_of_weight_0() -> None:
    first, second, broken = torch.tensor([[1.0, 2.0]]), torch.tensor([[10.0, 30.0]]), torch.full((1, 2), torch.nan)
    assert combine([first, broken, second], torch.tensor([1.0, 0.0, 0.5])).tolist() == [[6.0, 17.0]]
    assert first.tolist() == [[1.0, 2.0]]


def test_stack_over_more_names_gives_the_others_weight_0() -> None:
    logits, labels = noisy_views(200, 4, 2)
    stack = fit_stack(dict(zip(("b", "head"), logits, strict=True)), labels)
    wider = stack.over(("a", "b", "head"))
    assert wider.weights.tolist() == [0, *stack.weights.tolist()]
    assert wider.spread == {"a": 0.0, **stack.spread}
    assert (wider.nll, wider.numbers) == (stack.nll, stack.numbers)
    with pytest.raises(ValueError, match="gives weight to b, which the model does not have; it has a, head"):
        stack.over(("a", "head"))
    assert member_names([["a", "head"]]) == ("a", "head")
    assert member_names([["a", "head"], ["head"]]) == ("0/a", "0/head", "1/head")


@settings(max_examples=40, deadline=None)
@given(seed=seeds, penalties=st.sampled_from([(0.0, 0.0), (1e-3, 0.0), (1.0, 0.0), (0.0, 2.0), (1.0, 2.0)]))
@example(seed=309, penalties=(0.0, 2.0))  # the network is right in all rows, in one of them by a tie
def test_stack_is_never_worse_than_temperature_nor_temperature_than_network(seed: int, penalties: tuple[float, float]) -> None:
    logits, labels = awkward(seed)
    regularise, prior = penalties
    holdouts = (MemberRows.of([members], labels) for members in (logits, logits[-1:]))
    choices = Settings(regularise=regularise, prior=prior)
    stack, temperature = (fit_optimum(holdout, "nll", choices) for holdout in holdouts)
    one = torch.ones(1, dtype=torch.float64)
    network = float(penalised(NLL, logits[-1:], labels, one, regularise, prior))
    assert stack.objective <= temperature.objective + 1e-12
    assert temperature.objective <= network + 1e-12
    assert bool((stack.weights >= 0).all())
    if regularise > 0 or prior > 0:
        assert stack.certified


@settings(max_examples=15, deadline=None)
@given(seed=seeds, factor=st.floats(1e-4, 1e4), constant=st.floats(-100, 100))
def test_weights_follow_scales_and_ignore_row_constants_and_order(seed: int, factor: float, constant: float) -> None:
    logits, labels = noisy_views(200, 4, 3, seed=seed)
    weights = fit_stack(logits, labels).weights  # of a probe: the scale of the head is that of the network
    row_constants = constant * torch.linspace(-1, 1, 200, dtype=torch.float64)[:, None]
    order = torch.randperm(200, generator=torch.Generator().manual_seed(seed))
    changed = [factor * logits[0] + row_constants, *logits[1:]]
    other = fit_stack([member[order] for member in changed], labels[order]).weights
    other[0] *= factor
    assert other.tolist() == pytest.approx(weights.tolist(), abs=1e-8)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [1.0, 1e-30, 1e3])
def test_temperature_is_exact_in_every_dtype_and_scale(dtype: torch.dtype, scale: float) -> None:
    (logits,), labels = noisy_views(3_000, 5, members=1)
    logits = (scale * logits).to(dtype)
    if not bool(logits.any()) or not bool(logits.isfinite().all()):
        pytest.skip("the dtype does not reach this scale")
    stack = fit_stack([logits], labels, prior=0)
    beta = stack.weights.clone().requires_grad_()
    value = cross_entropy(beta * logits.double(), labels)
    (gradient,) = torch.autograd.grad(value, beta)
    assert stack.certified
    assert float((gradient / stack.deviations).abs()) <= TOLERANCE
    assert stack.nll == pytest.approx(value.item(), abs=1e-12)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_rows_with_equal_logits_do_not_change_the_temperature(dtype: torch.dtype) -> None:
    (logits,), labels = noisy_views(4_000, 3, 1)
    logits = logits.to(dtype)
    logits[::7] = torch.finfo(dtype).max
    ordinary = torch.arange(4_000) % 7 != 0
    alone = fit_stack([logits[ordinary]], labels[ordinary], prior=0)
    assert fit_stack([logits], labels, prior=0).weights.tolist() == pytest.approx(alone.weights.tolist(), abs=1e-8)


def test_forms_of_members_agree_and_names_are_kept() -> None:
    logits, labels = noisy_views(300, 5, 3)
    of_sequence = fit_stack(logits, labels)
    array = torch.stack(logits, dim=2)
    of_mapping = fit_stack(dict(zip(("a", "b", "net"), logits, strict=True)), labels.numpy())
    for other in (fit_stack(array, labels), fit_stack(array.numpy(), labels.int()), of_mapping):
        assert torch.equal(other.weights, of_sequence.weights)
    assert of_sequence.names == ("0", "1", "head")
    assert list(of_mapping.contributions) == ["a", "b", "net"]


def test_members_made_under_inference_mode_or_with_gradients_are_accepted() -> None:
    logits, labels = noisy_views(100, 3, 2)
    with torch.inference_mode():
        recorded, of_rows = [member.clone() for member in logits], labels.clone()
        inside = fit_stack(recorded, of_rows, loss="brier")
    outside = fit_stack(recorded, of_rows, loss="brier")
    with_gradients = fit_stack([member.requires_grad_() for member in logits], labels, loss="brier")
    assert torch.equal(outside.weights, inside.weights)
    assert torch.equal(with_gradients.weights, inside.weights)


@pytest.mark.parametrize("rows", [1, 7, 300, 1000])
def test_chunk_size_does_not_matter(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    logits, labels = noisy_views(300, 5, 3)
    whole = fit_stack(logits, labels)
    monkeypatch.setitem(CHUNK_BYTES, "cpu", rows * 8 * 5 * 5)
    assert fit_stack(logits, labels).weights.tolist() == pytest.approx(whole.weights.tolist(), abs=1e-12)


@pytest.mark.parametrize("perfect", [False, True])
@pytest.mark.parametrize(("members", "scale"), [(1, 1.0), (3, 1.0), (1, 1e11)])
def test_log_losses_of_the_record_are_those_of_its_weights(members: int, scale: float, perfect: bool) -> None:
    logits, labels = noisy_views(1_500, 5, members)
    logits = [scale * member for member in logits]
    labels = logits[-1].argmax(1) if perfect else labels
    stack, head = fit_stack(logits, labels, regularise=0.1), logits[-1].double()
    predictions = head, stack.temperature_weights[0] * head, combine([each.double() for each in logits], stack.weights)
    recorded = stack.nll_network, stack.nll_temperature, stack.nll
    assert recorded == pytest.approx([float(cross_entropy(each, labels)) for each in predictions], rel=1e-15, abs=1e-12)


def test_rows_are_read_once_before_the_steps_and_once_after(monkeypatch: pytest.MonkeyPatch) -> None:
    passes: list[int] = []
    join = MemberRows._join

    def counted(rows: MemberRows, *given: Any) -> Tensor:
        passes.append(len(rows.names[0]))
        return join(rows, *given)

    monkeypatch.setattr(MemberRows, "_join", counted)
    stack = fit_stack(*noisy_views(1_500, 5, 3))
    assert passes.count(3) == 1 + (stack.steps + 1) + 1


def test_search_for_a_row_ends_at_the_chunk_that_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    logits, labels = noisy_views(300, 5, 1)
    rows = MemberRows.of([logits], labels)
    monkeypatch.setitem(CHUNK_BYTES, "cpu", 100 * 8 * 3 * 5)
    for place, found, chunks in (150, True, 2), (300, False, 3):
        parts = list((torch.arange(300) == place).split(100))
        assert rows.any(lambda _, parts=parts: parts.pop(0)) == found
        assert 3 - len(parts) == chunks


def test_sharded_fit_equals_the_whole_fit() -> None:
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
        shards = enumerate((slice(None, 90), slice(90, None)))
        workers = [threading.Thread(target=work, args=(worker, rows, loss)) for worker, rows in shards]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert torch.equal(results[0].weights, results[1].weights)
        whole = fit_stack(logits, labels, loss=loss, regularise=0.2)
        assert results[0].rows == whole.rows
        assert results[0].objective == pytest.approx(whole.objective, abs=1e-6)
        if loss == "nll":
            assert results[0].weights.tolist() == pytest.approx(whole.weights.tolist(), abs=1e-10)


MEMORY_TRIAL = """
import resource, torch
from lates.stack.stack import fit_stack
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
    """In one of several runs: huge pages, which the system gives now and then, only add to what is measured."""
    command = [sys.executable, "-c", MEMORY_TRIAL]
    trials = (subprocess.run(command, capture_output=True, text=True, check=True) for _ in range(8))
    assert any(float(trial.stdout) < 0.25 for trial in trials)


@pytest.mark.parametrize("loss", ["brier", "soft_ece"])
@pytest.mark.parametrize("regularise", [0.0, 0.5])
def test_other_losses_never_end_worse_than_the_log_loss_optimum(loss: str, regularise: float) -> None:
    def objective(weights: Tensor, logits: list[Tensor], labels: Tensor) -> float:
        return float(penalised(LOSSES[loss], logits, labels, weights, regularise, prior=2))

    for seed in range(3):
        logits, labels = noisy_views(400, 5, 4, seed=seed)
        start = fit_stack(logits, labels, regularise=regularise)
        stack = fit_stack(logits, labels, loss=loss, regularise=regularise)
        assert stack.objective == pytest.approx(objective(stack.weights, logits, labels), abs=1e-12)
        assert stack.objective < objective(start.weights, logits, labels)
        assert stack.nll_temperature == start.nll_temperature
        assert not stack.certified
        if loss == "soft_ece":
            assert stack.nll <= 1.01 * start.nll


def test_brier_optimum_cannot_be_improved_by_lbfgsb() -> None:
    logits, labels = noisy_views(600, 4, 3)
    stack = fit_stack(logits, labels, loss="brier")
    assert stack.stationary
    assert not stack.certified

    def value(weights: np.ndarray) -> float:
        return float(penalised(LOSSES["brier"], logits, labels, torch.from_numpy(weights), prior=2))

    better = minimize(value, stack.weights.numpy(), method="L-BFGS-B", bounds=[(0, None)] * 3)
    assert stack.objective <= better.fun + 1e-9


def test_sgd_ends_near_the_optimum_and_depends_on_its_seed_alone() -> None:
    logits, labels = noisy_views(1500, 5, 3, sharpness=0.7)
    exact, sgd = fit_stack(logits, labels), fit_stack(logits, labels, solver="sgd", seed=1)
    assert exact.nll <= sgd.nll <= 1.03 * exact.nll
    assert not sgd.certified
    assert sgd.steps == 50 * 12
    assert (sgd.nll_network, sgd.nll_temperature) == (exact.nll_network, exact.nll_temperature)
    assert torch.equal(sgd.weights, fit_stack(logits, labels, solver="sgd", seed=1).weights)
    assert not torch.equal(sgd.weights, fit_stack(logits, labels, solver="sgd", seed=2).weights)
