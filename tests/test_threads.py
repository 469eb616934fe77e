import threading
from collections.abc import Iterator

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lates import fit_stack, metrics
from lates.threads import LEAST_ELEMENTS, in_threads, row_shares, thread_count
from tests.problems import noisy_views

CPU = torch.device("cpu")


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@given(rows=st.integers(0, 1_000), count=st.integers(1, 20))
def test_shares_hold_every_row_once_and_are_about_equal(rows: int, count: int) -> None:
    shares = [range(rows)[share] for share in row_shares(rows, count)]
    assert [row for share in shares for row in share] == list(range(rows))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1
    assert len(shares) == max(1, min(rows, count))


@pytest.mark.usefixtures("two_threads")
def test_a_single_row_of_very_many_classes() -> None:
    logits, labels = torch.randn(1, 4 * LEAST_ELEMENTS), torch.tensor([3])
    assert metrics.nll(logits, labels) == pytest.approx(
        float(torch.nn.functional.cross_entropy(logits.double(), labels))
    )


@pytest.mark.usefixtures("two_threads")
def test_results_come_in_order_from_threads_in_which_torch_uses_one() -> None:
    both = threading.Barrier(2, timeout=10)

    def work(share: int) -> tuple[int, int, bool]:
        both.wait()
        return share, torch.get_num_threads(), torch.is_grad_enabled()

    with torch.no_grad():
        assert in_threads(work, [7, 8]) == [(7, 1, False), (8, 1, False)]
    assert torch.get_num_threads() == 2


@pytest.mark.usefixtures("two_threads")
def test_a_single_share_is_the_caller_s_own() -> None:
    here = threading.get_ident()
    assert in_threads(lambda share: (share, threading.get_ident(), torch.get_num_threads()), [7]) == [(7, here, 1)]
    assert torch.get_num_threads() == 2


@pytest.mark.usefixtures("two_threads")
def test_a_fault_in_a_thread_is_the_caller_s() -> None:
    def fail(share: int) -> int:
        raise ValueError(f"share {share}")

    with pytest.raises(ValueError, match="share 1"):
        in_threads(fail, [1, 2])
    assert torch.get_num_threads() == 2


@pytest.mark.usefixtures("two_threads")
def test_little_work_and_the_work_of_a_graphics_card_is_not_shared() -> None:
    assert thread_count(LEAST_ELEMENTS - 1, CPU) == 1
    assert thread_count(100 * LEAST_ELEMENTS, CPU) == 2
    assert thread_count(100 * LEAST_ELEMENTS, torch.device("cuda")) == 1


@pytest.mark.usefixtures("two_threads")
def test_threads_change_no_result_beyond_rounding() -> None:
    members, labels = noisy_views(6_000, 50, members=2)
    members = [member.float() for member in members]
    shared = [fit_stack(members, labels).nll, metrics.auc(members[-1], labels), metrics.ece(members[-1], labels)]
    torch.set_num_threads(1)
    alone = [fit_stack(members, labels).nll, metrics.auc(members[-1], labels), metrics.ece(members[-1], labels)]
    assert shared == pytest.approx(alone, abs=1e-12)
