import os
import subprocess
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from lates import Features, extract, fit_stack, metrics, train_probes
from lates.probes.rows import PER_THREAD
from lates.runtime.threads import LEAST_ELEMENTS, map_threads, split_rows, thread_count
from lates.stack.losses import LOSSES, NLL
from tests.problems import noisy_views

CPU, WIDTH = torch.device("cpu"), 256


def wide_features(rows: int, seed: int) -> Features:
    """One block, of which a few features tell three classes apart."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(rows, WIDTH, generator=generator)
    labels = (values[:, :3] + torch.randn(rows, 3, generator=generator)).argmax(1)
    network = nn.Sequential(OrderedDict(wide=nn.Identity(), head=nn.Linear(WIDTH, 3)))
    return extract(network, [(values, labels)], ["wide"])


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@given(rows=st.integers(0, 1_000), count=st.integers(1, 20))
def test_split_rows_hold_every_row_once_and_are_about_equal(rows: int, count: int) -> None:
    shares = [range(rows)[share] for share in split_rows(rows, count)]
    assert [row for share in shares for row in share] == list(range(rows))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1
    assert len(shares) == max(1, min(rows, count))


@pytest.mark.usefixtures("two_threads")
def test_results_come_in_order_from_threads_in_which_torch_uses_one() -> None:
    both = threading.Barrier(2, timeout=10)

    def work(share: int) -> tuple[int, int, bool]:
        both.wait()
        return share, torch.get_num_threads(), torch.is_grad_enabled()

    with torch.no_grad():
        assert map_threads(work, [7, 8]) == [(7, 1, False), (8, 1, False)]
    assert map_threads(lambda part: torch.get_num_threads(), [7]) == [1]
    assert torch.get_num_threads() == 2


@pytest.mark.usefixtures("two_threads")
def test_parts_of_a_part_are_done_in_its_thread_so_that_no_two_wait_for_each_other() -> None:
    def work(part: int) -> set[int]:
        return {threading.get_ident(), *map_threads(lambda _: threading.get_ident(), [1, 2])}

    assert all(len(threads) == 1 for threads in map_threads(work, range(100)))


@pytest.mark.usefixtures("two_threads")
def test_threads_keep_torch_s_number_while_others_fit() -> None:
    """A thread that first uses torch while another has set its number inherits that number, and keeps it."""
    (members, labels), seen = noisy_views(3_000, 20, members=3), list[int]()

    def work() -> None:
        fit_stack(members, labels)
        seen.append(torch.get_num_threads())

    workers = [threading.Thread(target=work) for _ in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert seen == [2] * 8


@pytest.mark.usefixtures("two_threads")
def test_work_of_one_part_on_a_gpu_stays_in_the_thread_that_has_its_stream() -> None:
    here = threading.get_ident()
    assert map_threads(lambda part: threading.get_ident(), [7], torch.device("cuda")) == [here]


@pytest.mark.usefixtures("two_threads")
def test_the_small_steps_of_sgd_are_taken_in_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside others of their kind they would spend nearly all of their time waiting for one another's threads."""
    seen: set[int] = set()
    shuffle = torch.randperm

    def shuffle_and_look(rows: int, generator: torch.Generator) -> torch.Tensor:
        seen.add(torch.get_num_threads())
        return shuffle(rows, generator=generator)

    monkeypatch.setattr(torch, "randperm", shuffle_and_look)
    fit_stack(*noisy_views(200, 10, members=2), solver="sgd")
    assert seen == {1}
    assert torch.get_num_threads() == 2


@pytest.mark.usefixtures("two_threads")
def test_a_probe_s_rows_are_shared_among_threads_of_one_core(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside one other program, on two cores, torch's own threads took eight times as long."""
    seen: set[tuple[int, int]] = set()

    def look(logits: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        seen.add((threading.get_ident(), torch.get_num_threads()))
        return NLL.value_and_gradient(logits, labels)

    rows = 2 * PER_THREAD // WIDTH
    train, holdout = wide_features(rows, seed=0), wide_features(200, seed=1)
    shared = train_probes(train, holdout)["wide"]
    monkeypatch.setitem(LOSSES, "nll", replace(NLL, value_and_gradient=look))
    torch.set_num_threads(1)
    alone = train_probes(train, holdout)["wide"]
    assert seen == {(threading.get_ident(), 1)}
    torch.set_num_threads(2)
    train_probes(train, holdout)
    assert {count for _, count in seen} == {1}
    assert len({thread for thread, _ in seen}) >= 2
    torch.testing.assert_close(shared.probe.down, alone.probe.down, rtol=1e-2, atol=1e-3)
    assert shared.loss == pytest.approx(alone.loss, rel=1e-4)


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("metric", [metrics.ece, metrics.classwise_ece, metrics.auc])
def test_metrics_share_rows_among_threads_of_one_core(metric: Callable[..., float], monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside other programs torch's own threads made a metric of 10,000 rows and 1,000 classes a hundred times as slow."""
    seen: set[tuple[int, int]] = set()
    largest = torch.Tensor.amax

    def look(*arguments: Any, **options: Any) -> torch.Tensor:
        seen.add((threading.get_ident(), torch.get_num_threads()))
        return largest(*arguments, **options)

    monkeypatch.setattr(torch.Tensor, "amax", look)
    (logits,), labels = noisy_views(3 * LEAST_ELEMENTS // 50, 50, members=1)
    metric(logits, labels)
    assert {count for _, count in seen} == {1}
    assert threading.get_ident() not in {thread for thread, _ in seen}


@pytest.mark.usefixtures("two_threads")
def test_little_work_and_the_work_of_a_gpu_is_not_shared() -> None:
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


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("faulty", [1, 2])
def test_a_fault_in_any_part_is_the_caller_s_once_the_others_are_done(faulty: int) -> None:
    done = threading.Event()

    def work(part: int) -> None:
        if part == faulty:
            raise ValueError(f"part {part}")
        time.sleep(0.05)
        done.set()

    with pytest.raises(ValueError, match=f"part {faulty}"):
        map_threads(work, [1, 2])
    assert done.is_set()
    assert torch.get_num_threads() == 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes do not fork here")
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_forked_process_has_threads_of_its_own() -> None:
    assert map_threads(lambda share: share, [1, 2]) == [1, 2]
    child = os.fork()
    if child == 0:
        os._exit(map_threads(lambda share: share, [3, 4])[1])
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 4


@pytest.mark.parametrize("ending", ["", "threading.Thread.start = refuse"])
def test_a_metric_is_measured_where_no_thread_can_start(ending: str) -> None:
    """While the program ends, and where the system has no more threads to give; nor does the program then wait at its end."""
    script = f"""
import sys, threading, time
import torch
from lates import metrics

def refuse(thread):
    raise RuntimeError("can't start new thread")

def measure_late():
    while threading.main_thread().is_alive():
        time.sleep(0.01)
    print(metrics.accuracy(2 * torch.eye(3), torch.arange(3)))

torch.set_num_threads(2)
threading.Thread(target=measure_late).start()
{ending}
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert (ended.stdout, ended.stderr) == ("1.0\n", "")
