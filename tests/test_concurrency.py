"""Threads that calibrate, move and predict at once get what each gets alone, and leave the process's state as it was."""

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from operator import attrgetter
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import lates
from tests.networks import draw, loader, network

OPTIONS: dict[str, Any] = {"budget": None, "views": "jitter", "progress": False}


def calibrate_and_move(seed: int) -> Callable[[], list[float]]:
    model = network(seed)

    def work() -> list[float]:
        calibrated = lates.calibrate(model, train=loader(40), holdout=loader(120, seed=1), seed=seed, **OPTIONS)
        calibrated.double()
        assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
        return list(calibrated.weights.values())

    return work


def predict_with_dropout(sampled: nn.Module) -> Callable[[], list[float]]:
    def work() -> list[float]:
        with torch.no_grad():
            return sampled(draw()[0]).exp().sum(1).tolist()

    return work


def process_state() -> dict[str, Any]:
    return {
        "overwrite": torch.__future__.get_overwrite_module_params_on_conversion(),
        "precision": [product.fp32_precision for product in attrgetter("cuda.matmul", "mkldnn.matmul")(torch.backends)],
        "threads": torch.get_num_threads(),
        "torch": torch.get_rng_state().tolist(),
        "numpy": [np.asarray(part).tolist() for part in np.random.get_state()],
        "python": random.getstate(),
    }


@pytest.mark.parametrize("repetition", range(2))
def test_threads_get_what_each_gets_alone_and_leave_the_process_as_it_was(repetition: int) -> None:
    sampled = lates.mc_dropout(network(), samples=3)
    works = [calibrate_and_move(0), calibrate_and_move(1), *[predict_with_dropout(sampled)] * 2]
    alone = [work() for work in works]
    before = process_state()
    with ThreadPoolExecutor(len(works)) as pool:
        together = [future.result() for future in [pool.submit(work) for work in works]]
    assert process_state() == before
    for expected, result in zip(alone, together, strict=True):
        assert result == pytest.approx(expected, rel=1e-5)
