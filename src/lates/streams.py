"""Jobs at once on a graphics card: while one waits for the card's answer, another gives it work."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import TypeVar

import torch

from lates.threads import in_threads

Result = TypeVar("Result")


def side_by_side(jobs: Sequence[Callable[[], Result]], device: torch.device) -> list[Result]:
    """What each job returns. On a graphics card each has a thread and a stream of its own, which begins after what the caller's
    stream was given, and ends before what that is given next; elsewhere they run one after the other."""
    if device.type != "cuda" or len(jobs) < 2:
        return [job() for job in jobs]
    torch.linalg.cholesky_ex(torch.eye(1, device=device))  # loads such operations, which fails in two threads at once
    caller = torch.cuda.current_stream(device)
    streams = [_beside(caller, place) for place in range(len(jobs))]

    def run(place: int) -> Result:
        streams[place].wait_stream(caller)
        with torch.cuda.stream(streams[place]):
            return jobs[place]()

    try:
        return in_threads(run, range(len(jobs)))
    finally:
        for stream in streams:
            caller.wait_stream(stream)


@cache
def _beside(caller: torch.cuda.Stream, place: int) -> torch.cuda.Stream:
    """Kept, and never another caller's: torch gives memory that was freed to the next who asks on the stream that first asked
    for it, here only after the caller's stream has caught up."""
    return torch.cuda.Stream(caller.device)
