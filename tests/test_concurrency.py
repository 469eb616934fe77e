"""Threads that calibrate, move and predict at once get what each gets alone, and leave the process's state as it was."""

import random
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from operator import attrgetter
from typing import Any

import numpy as np
import pytest
import torch

import lates
from lates.runtime import full_precision
from tests.networks import draw, loader, network

OPTIONS: dict[str, Any] = {"budget": None, "progress": False}


def calibrate_and_move(seed: int, views: Any) -> Callable[[], list[float]]:
    model = network(seed)

    def work() -> list[float]:
        calibrated = lates.calibrate(model, train=loader(40), holdout=loader(120, seed=1), seed=seed, views=views, **OPTIONS)
        for moved in (calibrated.double(), calibrated.to(torch.bfloat16), calibrated.float()):
            assert moved is calibrated
        assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
        return list(calibrated.weights.values())

    return work


def predict_with_dropout(seed: int) -> Callable[[], list[float]]:
    sampled = lates.mc_dropout(network(), samples=3)

    def work() -> list[float]:
        sampled.generator.manual_seed(seed)
        with torch.no_grad():
            return torch.stack([sampled(draw()[0]) for _ in range(20)]).flatten().tolist()

    return work


def move_like_a_user() -> Callable[[], list[float]]:
    """An optimiser trains nothing where a flag of torch lets a move replace the parameters that it holds."""
    model = network()

    def work() -> list[float]:
        before = list(model.parameters())
        for _ in range(50):
            model.double().float()
        assert all(now is then for now, then in zip(model.parameters(), before, strict=True))
        return []

    return work


def fit_read_only_arrays() -> list[float]:
    logits, labels = np.random.default_rng(0).normal(size=(300, 4)), np.arange(300) % 4
    logits.flags.writeable = False
    return [float(lates.metrics.nll(logits, labels)) for _ in range(20)]


def process_state() -> dict[str, Any]:
    with ThreadPoolExecutor(1) as new:
        threads_of_a_new_one = new.submit(torch.get_num_threads).result()
    products = attrgetter("cuda.matmul", "mkldnn.matmul")(torch.backends)
    return {
        "overwrite": torch.__future__.get_overwrite_module_params_on_conversion(),
        "precision": [product.fp32_precision for product in products],
        "threads": (torch.get_num_threads(), threads_of_a_new_one),
        "warnings": list(warnings.filters),
        "torch": torch.get_rng_state().tolist(),
        "numpy": [np.asarray(part).tolist() for part in np.random.get_state()],
        "python": random.getstate(),
    }


def test_threads_get_what_each_gets_alone_and_leave_the_process_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch.__future__, "set_overwrite_module_params_on_conversion")  # no move needs the flag
    works = [
        calibrate_and_move(0, "jitter"),
        calibrate_and_move(1, lambda images: images + 0.1 * torch.randn(images.shape) + np.random.rand() * random.random()),
        predict_with_dropout(2),
        predict_with_dropout(3),
        move_like_a_user(),
        fit_read_only_arrays,
    ]
    alone = [work() for work in works]
    before = process_state()
    start = threading.Barrier(len(works))

    def begin(work: Callable[[], list[float]]) -> list[float]:
        start.wait(30)
        return work()

    with ThreadPoolExecutor(len(works)) as pool:
        together = list(pool.map(begin, works))
    assert process_state() == before
    for expected, result in zip(alone, together, strict=True):
        assert result == pytest.approx(expected, rel=1e-5)


def test_of_threads_within_full_precision_the_first_may_leave_first() -> None:
    before, (entered, followed, left) = process_state(), [threading.Event() for _ in range(3)]

    def enter_and_leave_first() -> None:
        with full_precision(torch.device("cpu")):
            entered.set()
            assert followed.wait(10)
        left.set()

    def follow() -> None:
        assert entered.wait(10)
        with full_precision(torch.device("cpu")):
            followed.set()
            assert left.wait(10)

    with ThreadPoolExecutor(2) as pool:
        for work in [pool.submit(enter_and_leave_first), pool.submit(follow)]:
            work.result()
    assert process_state() == before
