"""Ctrl-C, wherever it falls, leaves the user's modules as they were: no hook is ever registered on them."""

import random
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from torch import Tensor

import lates
from tests.networks import Network, loader, network, untouched

PACKAGE = lates.__file__.removesuffix("__init__.py")


def calibrate(model: Network, holdout: Any = None, **options: Any) -> None:
    holdout = loader(24, seed=1) if holdout is None else holdout
    lates.calibrate(model, train=loader(24), holdout=holdout, blocks=1, budget=None, progress=False, **options)


def run_lines(work: Callable[[], None], stop_at: int | None = None) -> list[tuple[str, int]]:
    """The lines of the package that run, in order; at the one numbered `stop_at` Ctrl-C is pressed."""
    lines: list[tuple[str, int]] = []

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        if event == "line":
            lines.append((frame.f_code.co_filename, frame.f_lineno))
            if len(lines) - 1 == stop_at:
                sys.settrace(None)
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return lines


def test_an_interrupt_at_any_line_leaves_the_user_s_modules_as_they_were() -> None:
    model = network().train()
    calibrate(model)
    lines = run_lines(lambda: calibrate(model))
    places = {line: place for place, line in enumerate(lines) if "/network/" in line[0] or "/model/" in line[0]}
    assert len(places) > 300
    for place in random.Random(0).sample(sorted(places.values()), 25):
        # Python cannot undo what an interrupt in the middle of undoing stopped, such as restoring a generator
        with untouched(model, generators=False), pytest.raises(KeyboardInterrupt):
            run_lines(lambda: calibrate(model), stop_at=place)


def test_an_interrupt_in_the_loader_or_the_network_leaves_the_user_s_modules_as_they_were() -> None:
    class Interrupted(Network):
        calls = 0

        def forward(self, images: Tensor) -> Tensor:
            type(self).calls += 1
            if type(self).calls == 4:
                raise KeyboardInterrupt
            return super().forward(images)

    def stopped() -> Any:
        yield from loader(24, seed=1)
        raise KeyboardInterrupt

    class Loader:
        def __iter__(self) -> Any:
            return stopped()

    for model, holdout in ((Interrupted().train(), None), (network().train(), Loader())):
        with untouched(model), pytest.raises(KeyboardInterrupt):
            calibrate(model, holdout)
