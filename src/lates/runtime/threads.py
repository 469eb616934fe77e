"""Chunks of rows, shared among threads that use one core each and synchronise once.

Torch would spread each operation on a small chunk over all cores and wait for the slowest, thousands of times, which takes long
where other programs want the cores too.
"""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cache
from threading import Lock, Thread, current_thread
from typing import Any, TypeVar

import torch

LEAST_ELEMENTS = 2**16
"""Numbers worth a thread of their own: to wake it costs as much as to take the exponentials of some ten thousand."""

CPU, WORKER = torch.device("cpu"), "lates-worker"
_changing = Lock()
"""Held while the number that new threads inherit from torch is not the user's: then nobody may read it, nor fork."""
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_changing.acquire, after_in_parent=_changing.release, after_in_child=_changing.release)

Part = TypeVar("Part")
Result = TypeVar("Result")


def thread_count(elements: int, device: torch.device, least: int = LEAST_ELEMENTS) -> int:
    """How many threads should share `elements` numbers, each at `least` that many: at most torch's number; one on a GPU."""
    return max(1, min(torch.get_num_threads(), elements // least)) if device.type == "cpu" else 1


def split_rows(rows: int, count: int) -> list[slice]:
    """At most `count` slices of successive rows, about equally long; one where there are no rows."""
    count = max(1, min(count, rows))
    return [slice(rows * part // count, rows * (part + 1) // count) for part in range(count)]


def map_threads(function: Callable[[Part], Result], parts: Sequence[Part], device: torch.device = CPU) -> list[Result]:
    """The function's result for every part, each in a thread in which torch uses one core.

    This thread takes a single part itself where torch has one core here anyway, or the part is the work of a GPU.
    """
    with _changing:
        cores_here = torch.get_num_threads()
    nested = current_thread().name.startswith(WORKER)  # workers that all wait for workers would wait forever
    if nested or (len(parts) == 1 and (cores_here == 1 or device.type != "cpu")):
        return [function(part) for part in parts]
    gradients, inference = torch.is_grad_enabled(), torch.is_inference_mode_enabled()

    def work(part: Part) -> Result:
        with torch.inference_mode(inference), torch.set_grad_enabled(gradients):
            return function(part)

    try:
        results = [_pool(os.getpid()).submit(work, part) for part in parts]
    except RuntimeError:  # the program is about to end, or the system has no more threads to give
        return [function(part) for part in parts]
    try:
        return [result.result() for result in results]
    finally:
        wait(results)


def on_one_core(function: Callable[..., Result], *arguments: Any, device: torch.device = CPU) -> Result:
    """One call on one core: for operations that take less time than to wake other threads."""
    return map_threads(lambda given: function(*given), [arguments], device)[0]


@cache
def _pool(process: int) -> ThreadPoolExecutor:
    """Threads that wait for work. A forked process has none of its parent's, hence the key."""
    return ThreadPoolExecutor(os.cpu_count(), WORKER, _use_one_core)


def _use_one_core() -> None:
    """Torch sets a thread's number together with the one that new threads inherit; another thread restores that at once."""
    with _changing:
        inherited = torch.get_num_threads()
        torch.set_num_threads(1)
        restoring = Thread(target=torch.set_num_threads, args=(inherited,))
        restoring.start()
        restoring.join()
