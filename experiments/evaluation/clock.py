"""Seconds by stage, and a deadline."""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch


class OutOfTimeError(Exception):
    """The deadline passed. The test sets that were measured are kept; the methods are fitted again next time."""


class Clock:
    """Seconds by stage, the device's work included. No stage begins once `deadline`, by `time.monotonic()`, is past."""

    def __init__(self, device: torch.device, deadline: float = math.inf) -> None:
        self.device, self.deadline = device, deadline
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, stage: str) -> Iterator[None]:
        if time.monotonic() > self.deadline:
            raise OutOfTimeError(f"The time was up before the stage {stage}.")
        started = self._now()
        yield
        self.seconds[stage] = self.seconds.get(stage, 0.0) + self._now() - started

    def _now(self) -> float:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter()
