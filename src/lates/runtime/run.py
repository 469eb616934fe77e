"""How a calibration runs, and nothing of what it computes."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

import torch

from lates.runtime.checks import check_seed
from lates.runtime.memory import default_memory
from lates.runtime.processes import ALONE, Processes
from lates.runtime.text import printable

Progress = Callable[[str, int, int | None], None]
"""(stage, steps done, steps in all or None where unknown)"""


@dataclass(frozen=True)
class Run:
    """One object instead of six arguments handed from function to function.

    device     where networks run and probes are trained
    seed       of everything that is drawn
    memory     bytes for what grows with the rows
    processes  that calibrate together
    progress   called with (stage, done, total); None: silence
    float16    features are kept in 16 bits wherever these keep their range and how they vary: on a GPU
    """

    device: torch.device
    seed: int
    memory: int
    processes: Processes = ALONE
    progress: Progress | None = None
    float16: bool = False

    @staticmethod
    @contextmanager
    def start(
        device: torch.device | str,
        *,
        seed: Any = 0,
        memory: int | None = None,
        distributed: bool = False,
        progress: bool | Progress | None = None,
    ) -> Iterator["Run"]:
        """Check the arguments, join the other processes if `distributed`, and show progress on rank 0."""
        seed = check_seed(seed)
        if memory is not None and (not isinstance(memory, Real) or not float(memory) >= 0):
            raise ValueError(f"memory={memory!r}: expected a number of bytes, such as 2 * 2**30 for 2 GiB.")
        device = check_device(device)
        processes = Processes.current() if distributed else ALONE
        memory = default_memory(device, processes.on_this_host()) if memory is None else int(memory)
        with shown(progress if processes.rank == 0 else False) as callback, torch.inference_mode(False):
            yield Run(device, seed, memory, processes, callback, float16=device.type == "cuda")

    def with_share(self, share: float) -> "Run":
        """With this share of the memory."""
        return replace(self, memory=int(share * self.memory))

    def report(self, stage: str, done: int, total: int | None) -> None:
        if self.progress is not None:
            self.progress(stage, done, total)


def check_device(device: torch.device | str) -> torch.device:
    """The device asked for, with its index, if it can be used."""
    try:
        usable = torch.empty(0, device=device).device
    except (RuntimeError, AssertionError, NotImplementedError) as fault:
        raise ValueError(
            f'device="{device}" cannot be used here ({str(fault).splitlines()[0]}). Leave it out to work where the model is.'
        ) from fault
    if usable.type == "meta":
        raise ValueError('device="meta" holds no values. Load the model\'s weights on another device first.')
    return usable


@contextmanager
def shown(progress: bool | Progress | None) -> Iterator[Progress | None]:
    """A callback for the stages: the user's own; bars on a terminal or in a notebook for True; None, silence, otherwise."""
    if progress is not True:
        yield None if progress is False else progress
        return
    from rich.console import Console

    console = Console(stderr=True)
    if not (console.is_terminal or console.is_jupyter):
        yield None
        return
    from rich.markup import escape
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Bars(*columns, console=console, transient=True) as bars:
        tasks = {}

        def update(stage: str, done: int, total: int | None) -> None:
            if stage not in tasks:
                tasks[stage] = bars.add_task(escape(printable(stage)), total=total)
            bars.update(tasks[stage], completed=done)

        yield update
