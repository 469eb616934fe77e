"""How much anonymous memory a call takes at its peak: what swap would have to hold, mapped files not counted."""

import ctypes
import multiprocessing
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import ParamSpec, Self, TypeVar

INTERVAL = 0.005

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def in_fresh_process(
    function: Callable[Arguments, Result], *arguments: Arguments.args, **named: Arguments.kwargs
) -> Result:
    """A function of a module, called where nothing has been kept from whatever was measured before."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *arguments, **named).result()


def anonymous_bytes() -> int:
    """RssAnon of this process."""
    with open("/proc/self/status", encoding="ascii") as status:
        (line,) = [line for line in status if line.startswith("RssAnon")]
    return int(line.split()[1]) * 1024


def return_free_memory() -> None:
    """Give the allocator's free memory back, so that what is taken next is seen; a C library other than GNU's keeps it."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


class PeakMemory:
    """A context that looks at the memory every 5 ms; `peak` and `extra` (beyond what was there before), in bytes."""

    def __enter__(self) -> Self:
        return_free_memory()
        self.before = self.peak = anonymous_bytes()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._over.set()
        self._thread.join()

    @property
    def extra(self) -> int:
        return self.peak - self.before

    def _watch(self) -> None:
        while not self._over.wait(INTERVAL):
            self.peak = max(self.peak, anonymous_bytes())
