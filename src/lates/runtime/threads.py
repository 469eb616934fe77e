"""Chunks of rows, shared among threads that use one core each and synchronise once.

Torch would spread each operation on a small chunk over all cores and wait for the slowest, thousands of times, which takes long
where other programs want the cores too.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
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
    return [slice(rows * part // count, rows * (part + 1) // count) for part in range(count)]


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


@contextmanager
def single_threaded() -> Iterator[None]:
    """Let torch use this thread alone: for many small operations more threads cost more than they bring.

    A new thread inherits the number that any thread has set last. So one that has inherited a 1 sets nothing, which later
    threads would inherit.
    """
    threads = torch.get_num_threads()
    if threads == 1:
        yield
        return
    try:
        torch.set_num_threads(1)
        yield
    finally:
        torch.set_num_threads(threads)


@cache
def _pool(process: int) -> ThreadPoolExecutor:
    """Threads that wait for work. A process that was forked has none of its parent's, hence the key."""
    return ThreadPoolExecutor(os.cpu_count())
