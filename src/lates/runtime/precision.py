"""Matrix products in full float32 precision, whatever the caller has set.

TensorFloat-32 would cost more than it saves: the descent of a probe needs more steps to get through its rounding.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from operator import attrgetter

import torch

_PRODUCTS = attrgetter("cuda.matmul", "mkldnn.matmul")
"""Where torch keeps, for the whole process, how coarsely matrices of float32 may be multiplied."""

_lock = threading.Lock()
_users: list[None] = []
_before: list[str] = []


@contextmanager
def full_precision(device: torch.device) -> Iterator[None]:
    """Switch inference mode, autocast and coarse products off.

    The precision is the process's: the first thread to enter saves and sets it, the last to leave restores it.
    """
    products = _PRODUCTS(torch.backends)
    with _lock:
        if not _users:
            _before[:] = [backend.fp32_precision for backend in products]
            for backend in products:
                backend.fp32_precision = "ieee"
        _users.append(None)
    try:
        with torch.inference_mode(False), torch.autocast(device.type, enabled=False):
            yield
    finally:
        with _lock:
            _users.pop()
            if not _users:
                for backend, precision in zip(products, _before, strict=True):
                    backend.fp32_precision = precision
