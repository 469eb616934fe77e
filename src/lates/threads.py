"""Work on chunks of rows, shared among threads.

A chunk is small, so that it stays in the processor's cache, and torch would spread each operation on it over all cores and
wait for the last of them: thousands of meetings, of which each takes long where other programs want the cores too. Threads
that take rows of their own, and work on them without help, meet once.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

LEAST_ELEMENTS = 2**18
"""Numbers worth a thread of their own: to start it costs as much as to take the exponentials of some ten thousand."""

Share = TypeVar("Share")
Result = TypeVar("Result")


def thread_count(elements: int, device: torch.device) -> int:
    """How many threads should share so many numbers: at most as many as torch uses; one where a graphics card works."""
    return max(1, min(torch.get_num_threads(), elements // LEAST_ELEMENTS)) if device.type == "cpu" else 1


def row_shares(rows: int, count: int) -> list[slice]:
    """So many slices of about equally many successive rows, but no more than rows; one where there are none."""
    count = max(1, min(count, rows))
    return [slice(rows * place // count, rows * (place + 1) // count) for place in range(count)]


def in_threads(function: Callable[[Share], Result], shares: Sequence[Share]) -> list[Result]:
    """The function of every share, each in a thread of its own in which torch uses no others; results in order.

    A single share is this thread's.
    """
    threads, gradients, inference = torch.get_num_threads(), torch.is_grad_enabled(), torch.is_inference_mode_enabled()

    def alone(share: Share) -> Result:
        torch.set_num_threads(1)  # of this thread; but threads that begin later inherit it, hence the last line
        with torch.inference_mode(inference), torch.set_grad_enabled(gradients):
            return function(share)

    try:
        if len(shares) == 1:
            return [alone(shares[0])]
        with ThreadPoolExecutor(len(shares)) as pool:
            return list(pool.map(alone, shares))
    finally:
        torch.set_num_threads(threads)
