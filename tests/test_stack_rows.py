"""Many rows: nothing of their size is allocated, and the few that are looked at first mislead nobody."""

import math
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from lates.holdout import Holdout
from lates.newton import TOLERANCE
from lates.stack import fit_stack
from tests.problems import noisy_views

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


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize(("n", "classes"), [(20_000, 10), (4_000, 100)])
def test_the_residual_is_proven_also_where_the_last_step_is_not_looked_at(
    n: int, classes: int, dtype: torch.dtype
) -> None:
    (logits,), labels = noisy_views(n, classes, members=1)
    logits = logits.to(dtype)
    stack = fit_stack([logits], labels)
    beta = stack.weights.clone().requires_grad_()
    value = cross_entropy(beta * logits.double(), labels)
    (gradient,) = torch.autograd.grad(value, beta)
    assert stack.certified
    assert float((gradient / stack.deviations).abs()) <= stack.residual + 1e-14
    assert stack.residual <= TOLERANCE
    assert stack.nll == pytest.approx(value.item(), abs=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "kind", ["sure", "dull", "wrong", "heavy tails", "a few far too sure", "those looked at first sure"]
)
def test_a_temperature_is_the_same_by_whatever_way_it_was_found(kind: str, dtype: torch.dtype) -> None:
    (truth,), labels = noisy_views(4_000, 5, members=1)
    rows = torch.arange(len(labels))[:, None]
    tails = (torch.pi * ((0.618 * rows) % 1 - 0.5)).tan().abs()
    logits = (
        truth
        * {
            "sure": torch.tensor(300.0),
            "dull": torch.tensor(1e-3),
            "wrong": torch.tensor(-1.0),
            "heavy tails": tails,
            "a few far too sure": torch.where(rows % 100 == 0, 1e3, 1.0),
            "those looked at first sure": torch.where(rows % 17 == 0, 30.0, 0.1),
        }[kind]
    )
    quick = fit_stack([logits.to(dtype)], labels)
    orderly = fit_stack([logits.to(dtype)], labels, start=torch.ones(1))
    assert quick.certified
    assert quick.nll == pytest.approx(orderly.nll, abs=1e-12)
    assert quick.weights.tolist() == pytest.approx(orderly.weights.tolist(), rel=1e-7)


def test_at_weights_that_float32_holds_its_gradient_is_ten_times_as_good() -> None:
    (logits,), labels = noisy_views(4_000, 5, members=1)
    fine = Holdout((((logits.float(),), labels),))
    rough = replace(fine, dtype=torch.float32)
    weights = torch.linspace(0.1, 1.0, 10, dtype=torch.float64)[:, None]

    def largest_error(points: list[Tensor]) -> float:
        return max(float((rough.log_loss(point, 1) - fine.log_loss(point, 1))[1].abs()) for point in points)

    held = [rough.held(weight) for weight in weights]
    torch.testing.assert_close(torch.stack(held), weights, rtol=1e-7, atol=0)
    assert 10 * largest_error(held) < largest_error(list(weights))


def test_a_step_of_no_length_moves_no_margin() -> None:
    (logits,), labels = noisy_views(50, 4, members=1)
    steps = torch.tensor([[1.0], [0.0]], dtype=torch.float64)
    raised, lowered = Holdout((((logits,), labels),)).margins_moved(steps, torch.zeros(2))
    assert raised.tolist() == lowered.tolist() == [True, False]


@pytest.mark.parametrize("constant", [0.0, 1e6])
@pytest.mark.parametrize("weight", [0.0, 0.4, 30.0])
def test_one_member_s_derivatives_are_those_of_autograd(weight: float, constant: float) -> None:
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(200, 7, dtype=torch.float64, generator=generator)
    labels = torch.multinomial(logits.softmax(1), 1, generator=generator)[:, 0]
    beta = torch.tensor([weight], dtype=torch.float64, requires_grad=True)
    expected = [cross_entropy(beta * logits, labels, reduction="sum")]
    for _ in range(3):
        (derivative,) = torch.autograd.grad(expected[-1], beta, create_graph=True)
        expected.append(derivative.sum())
    sums = Holdout((((logits + constant,), labels),)).log_loss(beta.detach(), derivatives=3)
    torch.testing.assert_close(sums, torch.stack(expected).detach(), atol=1e-6 if constant else 1e-10, rtol=1e-9)


@pytest.mark.parametrize("classes", [1, 10])
def test_many_rows_that_say_nothing_are_soon_done(classes: int) -> None:
    labels = torch.arange(5000) % classes
    stack = fit_stack([torch.zeros(5000, classes)], labels)
    assert stack.nll == pytest.approx(math.log(classes))
    assert stack.steps + stack.early_steps <= 5


@pytest.mark.parametrize("scale", [1e-30, 1e-23, 1e3])
def test_a_temperature_follows_the_scale_of_float32_logits(scale: float) -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(5000, 10, generator=generator)
    labels = torch.multinomial((2 * logits).softmax(1), 1, generator=generator)[:, 0]
    plain, scaled = fit_stack([logits], labels), fit_stack([scale * logits], labels)
    assert float(scaled.weights[0]) * scale == pytest.approx(float(plain.weights[0]), rel=1e-5)
    assert scaled.nll == pytest.approx(plain.nll, abs=1e-7)
