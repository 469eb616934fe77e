"""How much anonymous memory a call takes at its peak: what swap would have to hold, mapped files not counted."""

import ctypes
import threading
from typing import Self

INTERVAL = 0.005


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
