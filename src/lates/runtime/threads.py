"""Work on chunks of rows, shared among threads.

A chunk is small, so that it stays in the processor's cache. Torch would spread each operation on it over all cores and wait for
the slowest, thousands of times, which takes long where other programs want the cores too. Threads that take rows of their own,
and use one core each, synchronise once.
"""

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cache
from typing import TypeVar

import torch

LEAST_ELEMENTS = 2**16
"""Numbers worth a thread of their own: to wake it costs as much as to take the exponentials of some ten thousand."""

Share = TypeVar("Share")
Result = TypeVar("Result")


def thread_count(elements: int, device: torch.device, least: int = LEAST_ELEMENTS) -> int:
    """How many threads should share `elements` numbers, each at `least` that many: at most torch's number; one on a GPU."""
    return max(1, min(torch.get_num_threads(), elements // least)) if device.type == "cpu" else 1


def row_shares(rows: int, count: int) -> list[slice]:
    """At most `count` slices of successive rows, about equally long; one where there are no rows."""
    count = max(1, min(count, rows))
    return [slice(rows * place // count, rows * (place + 1) // count) for place in range(count)]


def in_threads(function: Callable[[Share], Result], shares: Sequence[Share]) -> list[Result]:
    """The results of a function for every share, each in its own thread and on one core; this thread takes the first share."""
    gradients, inference = torch.is_grad_enabled(), torch.is_inference_mode_enabled()

    def alone(share: Share) -> Result:
        with unaided(), torch.inference_mode(inference), torch.set_grad_enabled(gradients):
            return function(share)

    with unaided():  # around all: a new thread inherits the number of threads that the latest call has set
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
    """Let torch use this thread alone: for many small operations more threads cost more than they bring.

    A new thread inherits the number of threads that the latest call, from whatever thread, has set. One that started while
    another was in here has inherited a 1, and must not restore that for all later threads.
    """
    threads = torch.get_num_threads()
    if threads == 1:
        threads = max(_to_restore, default=1)
    if _here.unaided or threads == 1:  # to set the 1 that is there already would hand it on to all later threads
        yield
        return
    try:
        _here.unaided = True
        _to_restore.append(threads)
        torch.set_num_threads(1)
        yield
    finally:
        _here.unaided = False
        torch.set_num_threads(threads)
        with suppress(ValueError):  # stopped by Ctrl-C before it was there
            _to_restore.remove(threads)


@cache
def _helpers(process: int) -> ThreadPoolExecutor:
    """Threads that wait for work. A process that was forked has none of its parent's, hence the key."""
    return ThreadPoolExecutor(os.cpu_count())
