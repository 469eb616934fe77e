"""Jobs at once on a graphics card: while one waits for the card's answer, another gives it work."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import TypeVar

import torch
from torch import Tensor

from lates.threads import in_threads

AT_ONCE = 2
"""Three took as long."""

Result = TypeVar("Result")


def group_jobs(sizes: Mapping[str, int], memory: float, device: torch.device) -> list[list[str]]:
    """Jobs that take so many bytes, in groups to be run side by side: of one each, but on a graphics card of as many as fit
    into `memory` together, at most `AT_ONCE`."""
    groups: list[list[str]] = []
    for name in sizes:
        together = [*groups[-1], name] if groups else [name]
        if 1 < len(together) <= AT_ONCE and device.type == "cuda" and sum(sizes[each] for each in together) <= memory:
            groups[-1] = together
        else:
            groups.append([name])
    return groups


def side_by_side(
    jobs: Sequence[Callable[[], Result]], device: torch.device, tensors_of: Callable[[Result], Iterable[Tensor]]
) -> list[Result]:
    """What each job returns, with the tensors in it. On a graphics card each has a thread and a stream of its own, which begins
    after what the caller's stream was given, and ends before what that is given next; elsewhere they run one after the other.
    """
    if device.type != "cuda" or len(jobs) < 2:
        return [job() for job in jobs]
    # The first use of torch's linear algebra on a card fails where two threads make it at once.
    torch.linalg.cholesky_ex(torch.eye(1, device=device))
    caller = torch.cuda.current_stream(device)
    streams = [_beside(caller, place) for place in range(len(jobs))]

    def run(place: int) -> Result:
        stream = streams[place]
        stream.wait_stream(caller)
        with torch.cuda.device(stream.device), torch.cuda.stream(stream):  # without the first, another card would wake
            return jobs[place]()

    try:
        results = in_threads(run, range(len(jobs)))
    finally:
        for stream in streams:
            caller.wait_stream(stream)
    for result in results:
        for tensor in tensors_of(result):
            tensor.record_stream(caller)  # or its memory could be given away while the caller's stream still reads it
    return results


@cache
def _beside(caller: torch.cuda.Stream, place: int) -> torch.cuda.Stream:
    """One for each place among a caller's jobs; kept, for torch keeps the memory that a stream has used for that stream."""
    return torch.cuda.Stream(caller.device)
