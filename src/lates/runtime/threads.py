"""Work on chunks of rows, shared among threads.

A chunk is small, so that it stays in the processor's cache. Torch would spread each operation on it over all cores and wait for
the slowest, thousands of times, which takes long where other programs want the cores too. Threads that take rows of their own,
and use one core each, synchronise once.
"""

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from functools import cache
from typing import TypeVar

import torch

LEAST_ELEMENTS = 2**16
"""Numbers worth a thread of their own: to wake it costs as much as to take the exponentials of some ten thousand."""

Part = TypeVar("Part")
Result = TypeVar("Result")


def thread_count(elements: int, device: torch.device, least: int = LEAST_ELEMENTS) -> int:
    """How many threads should share `elements` numbers, each at `least` that many: at most torch's number; one on a GPU."""
    return max(1, min(torch.get_num_threads(), elements // least)) if device.type == "cpu" else 1


def split_rows(rows: int, count: int) -> list[slice]:
    """At most `count` slices of successive rows, about equally long; one where there are no rows."""
    count = max(1, min(count, rows))
    return [slice(rows * place // count, rows * (place + 1) // count) for place in range(count)]


def map_threads(function: Callable[[Part], Result], parts: Sequence[Part]) -> list[Result]:
    """The function's result for every part, each in its own thread and on one core; this thread takes the first part."""
    gradients, inference = torch.is_grad_enabled(), torch.is_inference_mode_enabled()

    def work(part: Part) -> Result:
        with single_threaded(), torch.inference_mode(inference), torch.set_grad_enabled(gradients):
            return function(part)

    with single_threaded():  # around all, because a new thread inherits the number that was set last
        others = [_pool(os.getpid()).submit(work, part) for part in parts[1:]]
        try:
            return [function(parts[0]), *(other.result() for other in others)]
        finally:
            wait(others)


_outside: list[int] = []
"""How many threads torch uses outside, for each thread that is within `single_threaded`."""
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_outside.clear)


@contextmanager
def single_threaded() -> Iterator[None]:
    """Let torch use this thread alone: for many small operations more threads cost more than they bring.

    A new thread inherits the number of threads that any thread has set last. One that began within another's context has
    inherited a 1: it leaves here with the number that the other will restore.
    """
    threads = torch.get_num_threads()
    if threads == 1 and not _local.inside:
        threads = max(_outside, default=1)
    if threads == 1:
        yield
        return
    try:
        _local.inside = True
        _outside.append(threads)
        torch.set_num_threads(1)
        yield
    finally:
        _local.inside = False
        torch.set_num_threads(threads)
        with suppress(ValueError):  # stopped by Ctrl-C before it was there
            _outside.remove(threads)


class _Local(threading.local):
    inside = False


_local = _Local()


@cache
def _pool(process: int) -> ThreadPoolExecutor:
    """Threads that wait for work. A process that was forked has none of its parent's, hence the key."""
    return ThreadPoolExecutor(os.cpu_count())
