"""Work on chunks of rows, shared among threads.

A chunk is small, so that it stays in the processor's cache, and torch would spread each operation on it over all cores and
wait for the last of them: thousands of meetings, of which each takes long where other programs want the cores too. Threads
that take rows of their own, and work on them without help, meet once.

Threads and the memory of their chunks are kept for the next pass: to start a thread, and to be given fresh pages for a
chunk, takes as long as the exponentials of a hundred thousand numbers each.
"""

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import TypeVar

import torch
from torch import Tensor

LEAST_ELEMENTS = 2**16
"""Numbers worth a thread of their own: to wake it costs as much as to take the exponentials of some ten thousand."""
OF_ROWS = 2**18
KEPT_BUFFERS, KEPT_BYTES = 4, 2**23

Share = TypeVar("Share")
Result = TypeVar("Result")


def thread_count(elements: int, device: torch.device, least: int = LEAST_ELEMENTS) -> int:
    """How many threads should share so many numbers, each at `least` so many: at most as many as torch uses; one where a
    graphics card works."""
    return max(1, min(torch.get_num_threads(), elements // least)) if device.type == "cpu" else 1


def row_shares(rows: int, count: int) -> list[slice]:
    """So many slices of about equally many successive rows, but no more than rows; one where there are none."""
    count = max(1, min(count, rows))
    return [slice(rows * place // count, rows * (place + 1) // count) for place in range(count)]


def in_threads(function: Callable[[Share], Result], shares: Sequence[Share]) -> list[Result]:
    """The function of every share, each in a thread of its own in which torch uses no others; results in order.

    The first share is this thread's.
    """
    gradients, inference = torch.is_grad_enabled(), torch.is_inference_mode_enabled()

    def alone(share: Share) -> Result:
        with unaided(), torch.inference_mode(inference), torch.set_grad_enabled(gradients):
            return function(share)

    with unaided():  # also afterwards: threads that begin later inherit what the others set
        others = [_helpers(os.getpid()).submit(alone, share) for share in shares[1:]]
        try:
            return [alone(shares[0]), *(other.result() for other in others)]
        finally:
            for other in others:
                other.exception()


class _Here(threading.local):
    """Whether this thread is within an `unaided`."""

    unaided = False


_here = _Here()
_to_restore: list[int] = []
"""How many threads torch uses outside, for each thread that is within an `unaided`."""
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_to_restore.clear)


@contextmanager
def unaided() -> Iterator[None]:
    """Within this `with` torch uses this thread alone: for a few operations on all rows, help costs more than it brings, and
    very much where other programs want the cores.

    Torch lets a new thread use as many as the latest call, of whatever thread, has set. So one that began while another was in
    here has inherited that one's 1, and must not restore it for all that come later.
    """
    if _here.unaided:
        yield
        return
    threads = torch.get_num_threads()
    if threads == 1:
        threads = max(_to_restore, default=1)
    _to_restore.append(threads)
    torch.set_num_threads(1)
    _here.unaided = True
    try:
        yield
    finally:
        _here.unaided = False
        torch.set_num_threads(threads)
        _to_restore.remove(threads)


def of_rows(function: Callable[[Tensor], Tensor], values: Tensor) -> Tensor:
    """A function of rows that gives one number for each, or one row, computed in threads, a few rows at a time."""
    step = max(1, OF_ROWS // max(1, values[:1].numel()))

    def of_share(rows: slice) -> Tensor:
        return torch.cat([function(part) for part in values[rows].split(step)])

    return torch.cat(in_threads(of_share, row_shares(len(values), thread_count(values.numel(), values.device))))


@cache
def _helpers(process: int) -> ThreadPoolExecutor:
    """Threads that wait for work. A process that was forked has none of its parent's, hence the key."""
    return ThreadPoolExecutor(os.cpu_count())


class _Spare(threading.local):
    """Memory that this thread has used and keeps."""

    def __init__(self) -> None:
        self.buffers: list[Tensor] = []


_spare = _Spare()


@contextmanager
def borrowed(elements: int, dtype: torch.dtype, device: torch.device) -> Iterator[Tensor]:
    """Memory for so many numbers, whatever stands in it, within a `with`: [elements]."""
    size = elements * dtype.itemsize
    if device.type != "cpu" or size > KEPT_BYTES:  # a graphics card's memory is kept by torch
        yield torch.empty(elements, dtype=dtype, device=device)
        return
    fitting = [place for place, buffer in enumerate(_spare.buffers) if len(buffer) >= size]
    with torch.inference_mode(False):  # or nobody could write into it outside
        buffer = _spare.buffers.pop(fitting[0]) if fitting else torch.empty(size, dtype=torch.uint8)
    try:
        yield buffer[:size].view(dtype)
    finally:
        _spare.buffers = [buffer, *_spare.buffers][:KEPT_BUFFERS]
