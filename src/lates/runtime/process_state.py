"""State of the whole process, changed for a while and restored: random generators, and the precision of matrix products.

Shuffling loaders, users' views and dropout draw from the global generators of Python, numpy and torch, and nothing local could
stand in. So they are seeded for the time of a reading or a sampled prediction, and restored under one lock. Whatever can draw
from a generator of its own does that instead.
"""

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

process_lock = threading.RLock()
"""Held by whoever changes state of the whole process for a while: these generators, switches of torch's exporters."""

_lock = threading.Lock()
_precisions: list[list[str]] = []


@contextmanager
def seeded_globally(seed: int, device: torch.device) -> Iterator[None]:
    """Within, the global generators start from `seed`, torch's on the CPU and on `device`; afterwards they are as before."""
    with process_lock:
        python_state, numpy_state = random.getstate(), np.random.get_state()
        try:
            with torch.random.fork_rng([device] if device.type == "cuda" else []):
                random.seed(seed)
                np.random.seed(seed % 2**32)
                torch.default_generator.manual_seed(seed)  # torch.manual_seed would seed GPUs that nobody restores
                if device.type == "cuda":
                    with torch.cuda.device(device):
                        torch.cuda.manual_seed(seed)
                yield
        finally:
            random.setstate(python_state)
            np.random.set_state(numpy_state)


def mix_seeds(*numbers: int) -> int:
    """One seed from several numbers, each of which changes it beyond recognition."""
    entropy = [abs(number) for number in numbers]
    return int(np.random.SeedSequence(entropy).generate_state(1, np.uint64)[0]) >> 1


@contextmanager
def full_precision(device: torch.device) -> Iterator[None]:
    """Switch inference mode, autocast and coarse products off: with TensorFloat-32 the descent of a probe needs more steps.

    The precision belongs to the process, and threads may enter and leave in any order. A stack keeps what each one found: the
    last to leave takes the bottom entry and restores what was before the first.
    """
    backends: Any = torch.backends
    products = backends.cuda.matmul, backends.mkldnn.matmul
    with _lock:
        _precisions.append([backend.fp32_precision for backend in products])
        for backend in products:
            backend.fp32_precision = "ieee"
    try:
        with torch.inference_mode(False), torch.autocast(device.type, enabled=False):
            yield
    finally:
        with _lock:
            for backend, precision in zip(products, _precisions.pop(), strict=True):
                backend.fp32_precision = precision
